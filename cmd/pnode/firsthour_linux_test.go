package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pnode/swarm/netlab"
)

// releaseFolder has a release for TestFirstHour to install. Without one the program of the other tests stands in every PATH already.
var releaseFolder = flag.String("release", "", "`FOLDER` of a release that the first hour installs")

// firstHour has what TestFirstHour carries out.
const firstHour = "../../docs/first-hour.md"

// entry is a block of commands of the first hour: on which machine, and lines that must be shown after it begins.
type entry struct {
	machine, script string
	shows           []string
}

// fences are the blocks of a text: "```sh MACHINE" has commands, "```text" below it what is shown.
var fences = regexp.MustCompile("(?ms)^```(sh|text)(?: (\\w+))?\n(.*?)^```$")

func readFirstHour(t *testing.T) (entries []entry) {
	t.Helper()
	text, err := os.ReadFile(firstHour)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range fences.FindAllStringSubmatch(string(text), -1) {
		switch kind, machine, body := m[1], m[2], m[3]; {
		case kind == "sh" && machine != "":
			entries = append(entries, entry{machine: machine, script: body})
		case kind == "text" && len(entries) > 0:
			last := &entries[len(entries)-1]
			last.shows = append(last.shows, strings.Split(strings.TrimSpace(body), "\n")...)
		default:
			t.Fatalf("%s: a block of %s names no machine, or comes first:\n%s", firstHour, kind, body)
		}
	}
	if len(entries) == 0 {
		t.Fatalf("%s has no blocks of commands", firstHour)
	}
	return entries
}

// terminal is a shell of a person at a machine, which takes commands one block after the other and keeps jobs.
type terminal struct {
	t     *testing.T
	input io.WriteCloser
	said  *watched
	read  int // what was shown before the newest block
	count int
}

func openTerminal(t *testing.T, h *netlab.Host, env ...string) *terminal {
	t.Helper()
	cmd := exec.Command("bash", "--noprofile", "--norc", "/dev/fd/3") // not its standard input, of which jobs may read
	home := t.TempDir()
	cmd.Dir = home
	cmd.Env = slices.DeleteFunc(slices.Clone(outerEnv), func(e string) bool { return strings.HasPrefix(e, "XDG_") })
	cmd.Env = append(cmd.Env, append(env, "HOME="+home, "PATH="+home+"/.local/bin:"+os.Getenv("PATH"))...)
	s := &terminal{t: t, said: &watched{fresh: make(chan struct{}, 1)}}
	cmd.Stdout, cmd.Stderr = s.said, s.said
	commands, input, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer commands.Close()
	cmd.ExtraFiles, s.input = []*os.File{commands}, input
	if err := h.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = input.Close() // at which the shell ends its jobs
		_ = cmd.Wait()
	})
	s.write("set -em; trap 'echo \"" + shellEnd + "\"; kill -KILL $(jobs -p) 2>/dev/null' EXIT\n")
	if *releaseFolder == "" {
		binary, err := buildOnce()
		if err != nil {
			t.Fatal(err)
		}
		s.write(fmt.Sprintf("mkdir -p ~/.local/bin; ln -s %q ~/.local/bin/pnode\n", binary))
	}
	return s
}

// shellEnd closes what a shell says after a command that failed.
const shellEnd = "@ the shell ends"

func (s *terminal) write(text string) {
	s.t.Helper()
	if _, err := io.WriteString(s.input, text); err != nil {
		s.t.Fatalf("the shell has ended: %v:\n%s", err, s.said)
	}
}

// carryOut types a block and waits until its commands, but for jobs, have ended well and all that it should show is there. It returns what
// stands for each <NAME>.
func (s *terminal) carryOut(e entry) (names map[string]string) {
	s.t.Helper()
	s.count++
	s.read = len(s.said.String())
	done := fmt.Sprintf("@ block %d ended", s.count)
	s.write(e.script + "\necho '" + done + "'\n")
	s.await(regexp.MustCompile(regexp.QuoteMeta(done)), e)
	names = map[string]string{}
	for _, line := range e.shows {
		pattern := shown(line)
		s.await(pattern, e)
		m := pattern.FindStringSubmatch(s.said.String()[s.read:])
		for i, name := range pattern.SubexpNames() {
			if name != "" {
				names[name] = m[i]
			}
		}
	}
	return names
}

// shown is the pattern of a line that a block shows: "..." stands for anything, <NAME> for a word to keep.
func shown(line string) *regexp.Regexp {
	pattern := regexp.QuoteMeta(strings.TrimSpace(line))
	pattern = strings.ReplaceAll(pattern, `\.\.\.`, `.*?`)
	return regexp.MustCompile(regexp.MustCompile(`<([A-Z]+)>`).ReplaceAllString(pattern, `(?P<$1>[^\s,;)]+)`))
}

// await waits until a pattern is shown since the newest block began.
func (s *terminal) await(pattern *regexp.Regexp, e entry) {
	s.t.Helper()
	deadline := time.After(endToEndTimeout)
	for {
		if pattern.MatchString(s.said.String()[s.read:]) {
			return
		}
		if strings.Contains(s.said.String()[s.read:], shellEnd) {
			s.t.Fatalf("on %s:\n%s\na command failed:\n%s", e.machine, e.script, s.said.String()[s.read:])
		}
		select {
		case <-s.said.fresh:
		case <-deadline:
			s.t.Fatalf("on %s:\n%s\nno %q within %v in:\n%s", e.machine, e.script, pattern, endToEndTimeout, s.said.String()[s.read:])
		}
	}
}

// lackedBy returns which program a block needs and this machine lacks. python is the folder of one with transformers.
func lackedBy(e entry, python string) string {
	if strings.Contains(e.script, "transformers") && python == "." {
		return "PNODE_TRANSFORMERS_PYTHON"
	}
	for _, program := range []string{"prometheus", "curl"} {
		if _, err := exec.LookPath(program); err != nil && strings.Contains(e.script, program+" -") {
			return program
		}
	}
	return ""
}

// TestFirstHour carries out what docs/first-hour.md tells a new user, on three machines, two of which share a local network.
func TestFirstHour(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes take minutes")
	}
	t.Parallel()
	entries := readFirstHour(t)
	lab := netlab.New(t)
	python := filepath.Dir(os.Getenv("PNODE_TRANSFORMERS_PYTHON"))
	hosts := map[string]*netlab.Host{}
	for _, name := range []string{"desk", "laptop", "server"} {
		hosts[name] = lab.Host(name, netlab.Public)
	}
	lab.Cable(hosts["desk"], hosts["laptop"])
	machines, names := map[string]*terminal{}, map[string]string{"URL": "file://" + *releaseFolder}
	for _, e := range entries {
		if *releaseFolder == "" && strings.Contains(e.script, "$URL") {
			continue // the program is there
		}
		if lacks := lackedBy(e, python); lacks != "" {
			t.Logf("left out for want of %s:\n%s", lacks, e.script)
			continue
		}
		if machines[e.machine] == nil {
			machines[e.machine] = openTerminal(t, hosts[e.machine])
		}
		s := machines[e.machine]
		var set strings.Builder
		for name, value := range names {
			fmt.Fprintf(&set, "%s='%s'\n", name, value)
		}
		if python != "." {
			fmt.Fprintf(&set, "PATH=%s:$PATH\n", python)
		}
		begun := time.Now()
		for name, value := range s.carryOut(entry{e.machine, set.String() + e.script, e.shows}) {
			names[name] = value
		}
		t.Logf("%s, %.1f s:\n%s", e.machine, time.Since(begun).Seconds(), e.script)
	}
}
