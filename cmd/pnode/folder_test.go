package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pnode/node/config"
)

// TestARunOutlivesDamagedFiles: each small file that a node cannot do without is kept twice.
func TestARunOutlivesDamagedFiles(t *testing.T) {
	t.Parallel()
	const steps = 40
	file, dir := runFile(t, steps), t.TempDir()
	p := start(t, "train", "--config", file, "--dir", dir, "--json")
	p.until(3)
	p.interrupt()
	first := p.finish(0)
	for _, name := range []string{"membership.json", "identity.key", "owner.key", "run.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ls := start(t, "checkpoints", "ls", "--dir", dir)
	ls.finish(0)
	if text := ls.stdout.String(); strings.Contains(text, " - ") {
		t.Errorf("a stopped node does not know how old its checkpoints are:\n%s", text)
	}
	damaged := func(when string, want bool) {
		t.Helper()
		for _, name := range []string{"membership.json", "identity.key", "owner.key", "run.json"} {
			if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || (string(data) == "{}") != want {
				t.Errorf("%s: %s has %d bytes, %v; damaged is to be %v", when, name, len(data), err, want)
			}
		}
	}
	damaged("looking changes nothing", true)
	rest := start(t, "train", "--resume", "--dir", dir, "--json").finish(0)
	damaged("a start mends", false)
	if len(first)+len(rest) != steps {
		t.Errorf("%d steps before the damage and %d after it, want %d", len(first), len(rest), steps)
	}
}

// TestALoneRunWhoseCheckpointIsDamaged says so, and how to train again.
func TestALoneRunWhoseCheckpointIsDamaged(t *testing.T) {
	t.Parallel()
	file, dir := runFile(t, 100), t.TempDir()
	p := start(t, "train", "--config", file, "--dir", dir, "--json", "--keep", "1")
	p.until(6)
	p.interrupt()
	p.finish(0)
	chunks, err := filepath.Glob(filepath.Join(dir, "store", "chunks", "*", "*"))
	if err != nil || len(chunks) == 0 {
		t.Fatalf("%d chunks, %v", len(chunks), err)
	}
	for _, c := range chunks {
		if info, err := os.Stat(c); err != nil || info.Size() < 300_000 { // the text stays
			continue
		}
		if err := os.WriteFile(c, []byte("damage"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	again := start(t, "train", "--resume", "--dir", dir)
	again.finish(exitFailure)
	lines := strings.Split(strings.TrimSpace(again.stderr.String()), "\n")
	last := lines[len(lines)-1]
	for _, want := range []string{"pnode: ", "the only checkpoint, of step", "another --dir", "--init"} {
		if !strings.Contains(last, want) {
			t.Errorf("the last line lacks %q:\n%s", want, again.stderr)
		}
	}
}

// TestAnAddressOfAnotherRunIsRefused: a folder's node goes where its run is.
func TestAnAddressOfAnotherRunIsRefused(t *testing.T) {
	t.Parallel()
	file, mine, other := runFile(t, 100_000), t.TempDir(), t.TempDir()
	p := start(t, "train", "--config", file, "--dir", mine, "--json")
	p.until(2)
	p.interrupt()
	p.finish(0)
	q := start(t, "train", "--config", file, "--dir", other, "--listen", "127.0.0.1:0")
	invite := q.stderr.await(t, `pnode join (pnode1-\S+)`)[1]
	status := start(t, "status", "--dir", other)
	status.finish(0)
	address := ""
	for word := range strings.FieldsSeq(status.stdout.String()) {
		if strings.Contains(word, "/quic-v1/p2p/") {
			address = word
		}
	}
	for _, target := range []string{address, invite} {
		j := start(t, "join", target, "--dir", mine)
		j.finish(exitUsage)
		if text := j.stderr.String(); !strings.Contains(text, "is in run") || !strings.Contains(text, "another --dir") && !strings.Contains(text, "another folder with --dir") {
			t.Errorf("%.60s:\n%s", target, text)
		}
	}
	j := start(t, "join", address, "--dir", other+"x")
	j.finish(exitUnreachable)
	if text := j.stderr.String(); !strings.Contains(text, "invite") {
		t.Errorf("an address in a fresh folder:\n%s", text)
	}
}

// TestPsSaysWhatItCannotRead: the list that is empty for want of rights does not look like that of a machine without nodes.
func TestPsSaysWhatItCannotRead(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_STATE_HOME", filepath.Join(home, "state"))
	t.Setenv("XDG_DATA_HOME", filepath.Join(home, "data"))
	state, err := config.StateDir()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(state, home) {
		t.Skip("the folder for state is not named by the environment here")
	}
	if code, out, stderr := pnode(t, "ps"); code != exitOK || stderr != "" || !strings.Contains(out, "no nodes of yours") {
		t.Errorf("without any: %d %q %q", code, out, stderr)
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(state, "nodes"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"ps"}, {"ps", "--json"}, {"status"}} {
		if code, _, stderr := pnode(t, args...); code == exitOK || !strings.Contains(stderr, "make that folder readable") {
			t.Errorf("%v: %d %q", args, code, stderr)
		}
	}
}
