package main

import (
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// deployed returns the files of deploy/ for users, by their paths in it: all but the programs that make releases.
func deployed(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	folder := os.DirFS(filepath.Join(root, "deploy"))
	err := fs.WalkDir(folder, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			if name == "release" || name == "image" {
				return fs.SkipDir
			}
			return err
		}
		text, err := fs.ReadFile(folder, name)
		files[name] = string(text)
		return err
	})
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files in deploy/: %v", len(files), err)
	}
	return files
}

// TestDeployedFilesAreDocumented: who looks for a way to keep a node alive finds each in a document.
func TestDeployedFilesAreDocumented(t *testing.T) {
	all := documents(t)
	text := all["docs/operations.md"] + all["docs/metrics.md"]
	for name := range deployed(t) {
		if !strings.Contains(text, "deploy/"+name) {
			t.Errorf("docs/operations.md does not name deploy/%s", name)
		}
	}
}

var (
	inProse  = regexp.MustCompile("(?:^|[\\s`\"/;=])pnode((?: [^`;|\n]*)?)")
	flowList = regexp.MustCompile(`\[([^\[\]]*)\]`)
)

// deployedCommands returns the command lines of pnode in a file of deploy/, without the program's name.
func deployedCommands(t *testing.T, name, text string) (commands [][]string) {
	t.Helper()
	var known []string
	for _, c := range (environment{}).rootCommand().Commands() {
		known = append(known, c.Name())
	}
	add := func(words []string) {
		if len(words) > 0 && slices.Contains(known, words[0]) {
			commands = append(commands, words)
		}
	}
	switch filepath.Ext(name) {
	case ".plist", ".xml":
		add(markedUp(t, text))
	case ".yaml":
		for _, m := range flowList.FindAllStringSubmatch(text, -1) {
			words := strings.Split(strings.ReplaceAll(m[1], `"`, ""), ", ")
			if slices.Contains([]string{"CMD", "/usr/local/bin/pnode"}, words[0]) {
				words = slices.DeleteFunc(words, func(w string) bool { return w == "CMD" || strings.HasPrefix(w, "/usr/local/bin/") })
			}
			add(words)
		}
	}
	for line := range strings.Lines(text) {
		for _, m := range inProse.FindAllStringSubmatch(line, -1) {
			add(shellWords(strings.TrimSpace(m[1])))
		}
	}
	return commands
}

// markedUp returns the arguments of a program in a property list of launchd or a task of Windows.
func markedUp(t *testing.T, text string) (words []string) {
	t.Helper()
	for d, list, arguments := xml.NewDecoder(strings.NewReader(text)), false, false; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return slices.DeleteFunc(words, func(w string) bool { return strings.HasSuffix(w, "/pnode") })
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			list = list || token.Name.Local == "array"
			arguments = token.Name.Local == "Arguments"
		case xml.EndElement:
			list = list && token.Name.Local != "array"
			arguments = false
		case xml.CharData:
			if said := strings.TrimSpace(string(token)); said != "" && (list || arguments) {
				words = append(words, strings.Fields(said)...)
			}
		}
	}
}

// TestCommandsOfDeployedFilesParse takes every command line in files of deploy/: pnode's commands and flags are known. Each
// file that starts a node has one.
func TestCommandsOfDeployedFilesParse(t *testing.T) {
	starts := []string{
		"compose.yaml", "service/pnode.service", "service/pnode.plist", "service/pnode.xml", "kubernetes/base/node.yaml",
		"cloud/cloud-init.yaml", "cloud/skypilot.yaml", "cloud/dstack.yaml",
	}
	files := deployed(t)
	for name, text := range files {
		commands := deployedCommands(t, name, text)
		joins := 0
		for _, words := range commands {
			checkCommand(t, "deploy/"+name, words)
			if words[0] == "join" && slices.Contains(words, "--dir") {
				joins++
			}
		}
		want := 0
		if slices.Contains(starts, name) {
			want = 1
		}
		if joins != want {
			t.Errorf("deploy/%s starts %d nodes, want %d: %q", name, joins, want, commands)
		}
	}
	for _, name := range starts {
		if files[name] == "" {
			t.Errorf("there is no deploy/%s", name)
		}
	}
}

// TestServicesGiveTheTimeThatTheySay: what kills a node leaves it more time than it is told.
func TestServicesGiveTheTimeThatTheySay(t *testing.T) {
	grace := regexp.MustCompile(`(?s)--grace(?:,? |</string>\s*<string>)(\d+s)|containers/0/args/6\n *value: (\d+s)`)
	limit := regexp.MustCompile(`(?:TimeoutStopSec=|terminationGracePeriodSeconds(?:: |\n *value: )|stop_grace_period: |stop_duration: |<key>ExitTimeOut</key>\s*<integer>)(\d+)`)
	files := deployed(t)
	for _, name := range []string{
		"compose.yaml", "service/pnode.service", "service/pnode.plist", "kubernetes/base/node.yaml", "kubernetes/spot-gke/kustomization.yaml",
		"kubernetes/spot-aks/kustomization.yaml", "cloud/cloud-init.yaml", "cloud/dstack.yaml",
	} {
		told, kills := grace.FindStringSubmatch(files[name]), limit.FindStringSubmatch(files[name])
		if told == nil || kills == nil {
			t.Fatalf("%s: grace %q, limit %q", name, told, kills)
		}
		own, err := time.ParseDuration(told[1] + told[2])
		killed, err2 := time.ParseDuration(kills[1] + "s")
		if err := errors.Join(err, err2); err != nil || own >= killed {
			t.Errorf("%s: the node is told %s and killed after %s: %v", name, own, killed, err)
		}
	}
}

// TestContainersTellTheirLimits: a node is told of less memory than its container may take, with room for the program itself, and of as many threads as
// it has processors.
func TestContainersTellTheirLimits(t *testing.T) {
	files := deployed(t)
	told := regexp.MustCompile(`--threads, "(\d+)", --memory, cpu=(\d+)GiB`)
	limits := regexp.MustCompile(`(?:cpus: (\d+)\n *mem_limit: (\d+)g|requests: \{cpu: "(\d+)",.*\n *limits: \{memory: (\d+)Gi\})`)
	for _, name := range []string{"compose.yaml", "kubernetes/base/node.yaml"} {
		node, container := told.FindStringSubmatch(files[name]), limits.FindStringSubmatch(files[name])
		if node == nil || container == nil {
			t.Fatalf("%s: the node is told %q, of %q", name, node, container)
		}
		memory, err := strconv.Atoi(node[2])
		limit, err2 := strconv.Atoi(container[2] + container[4])
		if err := errors.Join(err, err2); err != nil || limit-memory < 2 || node[1] != container[1]+container[3] {
			t.Errorf("%s: the node is told of %s threads and %s GiB of %s processors and %d GiB: %v", name, node[1], node[2], container[1]+container[3], limit, err)
		}
	}
}

// TestSpotFleetsTakeTheGrace: the parts for spot machines replace the value of --grace, by its place among the arguments.
func TestSpotFleetsTakeTheGrace(t *testing.T) {
	args := regexp.MustCompile(`args: \[(.*)\]`).FindStringSubmatch(deployed(t)["kubernetes/base/node.yaml"])
	if args == nil {
		t.Fatal("the node has no arguments")
	}
	if words := strings.Split(args[1], ", "); len(words) < 7 || words[5] != "--grace" {
		t.Errorf("argument 6 is not the value of --grace: %q", words)
	}
}

// TestCloudInitHasTheService: user data for spot instances has the very unit that deploy/service explains.
func TestCloudInitHasTheService(t *testing.T) {
	files := deployed(t)
	var unit strings.Builder
	for line := range strings.Lines(files["service/pnode.service"]) {
		if !strings.HasPrefix(line, "#") && (unit.Len() > 0 || line != "\n") {
			if line != "\n" {
				unit.WriteString("      ")
			}
			unit.WriteString(line)
		}
	}
	_, found, _ := strings.Cut(files["cloud/cloud-init.yaml"], "pnode.service\n    permissions: \"0644\"\n    content: |\n")
	found, _, _ = strings.Cut(found, "runcmd:")
	if found != unit.String() {
		t.Errorf("the unit in cloud-init.yaml is\n%s\nwant that of deploy/service without comments:\n%s", found, unit.String())
	}
	for _, name := range []string{"cloud/aws/main.tf", "cloud/gcp/main.tf", "cloud/azure/main.tf"} {
		for _, place := range []string{"pnode1-...", "https://example.com/pnode/v0.1.0"} {
			if !strings.Contains(files[name], `"`+place+`", var.`) || strings.Count(files["cloud/cloud-init.yaml"], place) != 1 {
				t.Errorf("%s puts no value in the place of %q, or it is not once in cloud-init.yaml", name, place)
			}
		}
	}
}

// TestProbesAskTheNode: what Kubernetes and Compose run to see whether a node is well is about the folder of the node.
func TestProbesAskTheNode(t *testing.T) {
	files := deployed(t)
	for name, want := range map[string]int{"kubernetes/base/node.yaml": 2, "compose.yaml": 1} {
		var node string
		var asked []string
		for _, words := range deployedCommands(t, name, files[name]) {
			if i := slices.Index(words, "--dir"); i >= 0 && i+1 < len(words) {
				switch words[0] {
				case "join":
					node = words[i+1]
				case "status":
					asked = append(asked, words[i+1])
				}
			}
		}
		if len(asked) != want || slices.ContainsFunc(asked, func(dir string) bool { return dir != node }) || node == "" {
			t.Errorf("%s: the probes ask %q, want %d times %q", name, asked, want, node)
		}
	}
}
