package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pnode/node/config"
)

// root is the folder of the module as this package's tests see it.
const root = "../.."

// documents returns the paths of all documents for people, by their paths from the module's root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", ".github/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			name, err := filepath.Rel(root, file)
			if err != nil {
				t.Fatal(err)
			}
			texts[filepath.ToSlash(name)] = string(text)
		}
	}
	if len(texts) < 5 || texts["README.md"] == "" {
		t.Fatalf("%d documents only: is the test in the right folder?", len(texts))
	}
	return texts
}

var (
	link   = regexp.MustCompile(`\[[^\]]*\]\(([^)\s]+)\)`)
	quoted = regexp.MustCompile("`([^`\n]+)`")
	inTree = regexp.MustCompile(`^(cmd|node|swarm|planner|pipeline|kernels|checkpoint|deploy|docs|\.ci|\.github)/[\w./-]+$`)
)

// TestDocumentsPointToWhatIsThere follows every link within the repository and every path between backquotes.
func TestDocumentsPointToWhatIsThere(t *testing.T) {
	all := documents(t)
	for name, text := range all {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := name
			if target != "" {
				file = filepath.ToSlash(filepath.Join(filepath.Dir(name), target))
			}
			if !exists(file) {
				t.Errorf("%s links to %s, which is not there", name, m[1])
			} else if anchor != "" && !slices.Contains(anchors(all[file]), anchor) {
				t.Errorf("%s links to %s, which has no such heading", name, m[1])
			}
		}
		for _, m := range quoted.FindAllStringSubmatch(text, -1) {
			// `pipeline/link.Session.Send` is a function: node/ways_test.go looks for it.
			extension := filepath.Ext(m[1])
			isFile := slices.Contains([]string{"", ".go", ".md", ".py", ".yaml", ".yml", ".txt"}, extension)
			if inTree.MatchString(m[1]) && isFile && !exists(m[1]) {
				t.Errorf("%s names %s, which is not there", name, m[1])
			}
		}
	}
}

func exists(name string) bool {
	_, err := os.Stat(filepath.Join(root, name))
	return err == nil
}

// anchors returns the names under which the headings of a document are linked.
func anchors(text string) (names []string) {
	drop := regexp.MustCompile(`[^a-z0-9 -]`)
	for line := range strings.Lines(text) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			title = drop.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			names = append(names, strings.ReplaceAll(title, " ", "-"))
		}
	}
	return names
}

// TestReadmeIsAFrontDoor bounds README and holds the two commands near its top.
func TestReadmeIsAFrontDoor(t *testing.T) {
	lines := strings.Split(strings.TrimSuffix(documents(t)["README.md"], "\n"), "\n")
	if len(lines) > 120 {
		t.Errorf("README.md has %d lines; at most 120", len(lines))
	}
	top := strings.Join(lines[:min(25, len(lines))], "\n")
	for _, command := range []string{"\ngo run ./cmd/pnode train ", "\ngo test -timeout 45m ./... "} {
		if !strings.Contains(top, command) {
			t.Errorf("README.md lacks %q in its first 25 lines", command)
		}
	}
}

var environmentSetting = regexp.MustCompile(`^[A-Z_]+=`)

// TestCommandsInDocumentsParse takes every command line in a code block or between backquotes: pnode's commands
// and flags are known, and `go test` names a folder with such a test or benchmark.
func TestCommandsInDocumentsParse(t *testing.T) {
	for name, text := range documents(t) {
		seen := 0
		for _, line := range commandLines(text) {
			words := shellWords(line)
			for len(words) > 0 && environmentSetting.MatchString(words[0]) {
				words = words[1:]
			}
			switch {
			case len(words) == 0:
			case words[0] == "pnode" || words[0] == "./pnode":
				seen++
				checkCommand(t, name, words[1:])
			case len(words) > 3 && strings.Join(words[:3], " ") == "go run ./cmd/pnode":
				seen++
				checkCommand(t, name, words[3:])
			case len(words) > 2 && words[0] == "go" && words[1] == "test":
				checkGoTest(t, name, words[2:])
			}
		}
		if name == "README.md" && seen < 15 {
			t.Errorf("README.md shows %d commands only: does the test read them?", seen)
		}
	}
}

// TestExamplesOfCommandsParse takes the command lines that the help texts show.
func TestExamplesOfCommandsParse(t *testing.T) {
	e := environment{}
	seen := 0
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		for line := range strings.Lines(c.Example) {
			if words := shellWords(strings.TrimSpace(line)); len(words) > 1 && words[0] == "pnode" {
				seen++
				checkCommand(t, c.CommandPath(), words[1:])
			}
		}
		for _, child := range c.Commands() {
			visit(child)
		}
	}
	visit(e.rootCommand())
	if seen < 30 {
		t.Errorf("%d examples only: does the test read them?", seen)
	}
}

// commandLines returns the lines of code blocks for a shell, and what stands between backquotes elsewhere.
func commandLines(text string) (lines []string) {
	inBlock, shell := false, false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if language, ok := strings.CutPrefix(line, "```"); ok {
			inBlock, shell = !inBlock, language == "sh"
			continue
		}
		switch {
		case inBlock && shell:
			lines = append(lines, line)
		case !inBlock:
			for _, m := range quoted.FindAllStringSubmatch(line, -1) {
				lines = append(lines, m[1])
			}
		}
	}
	return lines
}

// shellWords parts a line at blanks outside of quotes. It ends before a comment, a pipe, a redirection, or the
// words that help texts put after two blanks.
func shellWords(line string) (words []string) {
	var word strings.Builder
	quote, within := rune(0), false
	end := func() {
		if within {
			words = append(words, word.String())
		}
		word.Reset()
		within = false
	}
	for i, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '"' || r == '\'':
			quote, within = r, true
		case strings.HasPrefix(line[i:], "  "), !within && r == '#', r == '|' && !within, r == '>', r == ';':
			end()
			return words
		case r == ' ':
			end()
		default:
			word.WriteRune(r)
			within = true
		}
	}
	end()
	return words
}

func checkCommand(t *testing.T, where string, args []string) {
	t.Helper()
	e := environment{}
	c, rest, err := e.rootCommand().Find(args)
	if err != nil {
		t.Errorf("%s: pnode %s: %v", where, strings.Join(args, " "), err)
		return
	}
	if c.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") && c.Name() != "completion" {
		t.Errorf("%s: pnode %s: %v", where, strings.Join(args, " "), knownCommand(c, rest))
		return
	}
	var flags []string
	c.DisableFlagParsing = false
	c.InitDefaultHelpFlag()
	if err := c.ParseFlags(rest); err != nil {
		t.Errorf("%s: pnode %s: %v", where, strings.Join(args, " "), err)
	}
	c.Flags().Visit(func(f *pflag.Flag) { flags = append(flags, f.Name) })
	if c.Name() == "train" && slices.Contains(flags, "config") {
		if file := c.Flags().Lookup("config").Value.String(); strings.Contains(file, "/") && !exists(file) {
			t.Errorf("%s: there is no file %s", where, file)
		}
	}
}

// checkGoTest looks for the folders, and in them for what -run and -bench ask for.
func checkGoTest(t *testing.T, where string, args []string) {
	t.Helper()
	var dirs []string
	patterns := map[string]string{}
	for i, arg := range args {
		switch {
		case strings.HasPrefix(arg, "./"):
			dirs = append(dirs, strings.TrimSuffix(strings.TrimPrefix(arg, "./"), "..."))
		case (arg == "-run" || arg == "-bench") && i+1 < len(args) && args[i+1] != "-":
			patterns[map[string]string{"-run": "Test", "-bench": "Benchmark"}[arg]] = args[i+1]
		}
	}
	for _, dir := range dirs {
		if !exists(dir) {
			t.Errorf("%s: go test %s: there is no folder %s", where, strings.Join(args, " "), dir)
		}
	}
	for kind, pattern := range patterns {
		want := regexp.MustCompile(`(?m)^func ` + kind + `\w*` + strings.TrimSuffix(pattern, ".") + `\w*\(`)
		found := false
		for _, dir := range dirs {
			files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				found = found || want.Match(text)
			}
		}
		if !found {
			t.Errorf("%s: go test %s: nothing in %v matches %s%s", where, strings.Join(args, " "), dirs, kind, pattern)
		}
	}
}

// TestExamplesAreRead reads every file of docs/examples as the program would.
func TestExamplesAreRead(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "docs", "examples", "*"))
	if err != nil || len(files) < 5 {
		t.Fatalf("%d examples: %v", len(files), err)
	}
	for _, file := range files {
		switch name := filepath.Base(file); {
		case name == "run.yaml":
			_, err = config.Effective(file, config.Default(), func(string) bool { return false })
		case name == "emulate.yaml":
			_, err = config.LoadEmulation(file)
		case name == "cluster.yaml" || strings.HasPrefix(name, "fleet-"):
			_, err = config.LoadCluster(file)
		default:
			t.Errorf("nothing reads docs/examples/%s", name)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// TestExamplesArePlanned runs the "pnode plan" of each example that has one, as it stands there, and finds what people
// look for in wide enough a terminal. Short runs leave out those that take seconds.
func TestExamplesArePlanned(t *testing.T) {
	t.Chdir(root)
	files, err := filepath.Glob(filepath.Join("docs", "examples", "fleet-*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	command, planned := regexp.MustCompile(`(?m)^#   pnode (plan .*)$`), 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m := command.FindSubmatch(text)
		if m == nil {
			continue
		}
		planned++
		if !strings.Contains(string(m[1]), file) {
			t.Errorf("%s: plans another file: %s", file, m[1])
		}
		if testing.Short() && !strings.Contains(file, "gaming") {
			continue
		}
		code, out, stderr := pnode(t, strings.Fields(string(m[1]))...)
		if code != exitOK || stderr != "" {
			t.Errorf("%s: exit code %d: %s", m[1], code, stderr)
		}
		for _, want := range []string{"in flight", "\ntokens/s", "\n600 steps", "\nbound by", "\nLeft out\n", "\nWhat would use them (planned, not guessed)\n  --"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: nothing says %q:\n%s", m[1], want, out)
			}
		}
		for line := range strings.Lines(out) {
			if utf8.RuneCountInString(line) > 101 {
				t.Errorf("%s: too wide: %s", m[1], line)
			}
		}
	}
	if planned != 4 {
		t.Errorf("%d examples are planned, want 4", planned)
	}
}
