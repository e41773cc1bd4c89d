package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"pnode/node/config"
)

// The invite of "pnode join" comes from the argument, standard input, a file or the environment.
func TestWhereTheInviteComesFrom(t *testing.T) {
	file := filepath.Join(t.TempDir(), "invite.txt")
	if err := os.WriteFile(file, []byte("  pnode1-file \nmore\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "empty.txt")
	if err := os.WriteFile(empty, []byte("\npnode1-late"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		arg, file, env, stdin string
		want, problem         string
	}{
		"none":              {},
		"argument":          {arg: "pnode1-a", env: "pnode1-e", want: "pnode1-a"},
		"standard input":    {arg: "-", stdin: "pnode1-s\r\n", env: "pnode1-e", want: "pnode1-s"},
		"no line end":       {arg: "-", stdin: "pnode1-s", want: "pnode1-s"},
		"nothing there":     {arg: "-", problem: "no invite in standard input"},
		"file":              {file: file, env: "pnode1-e", want: "pnode1-file"},
		"empty file":        {file: empty, problem: "no invite in " + empty},
		"no file":           {file: file + "x", problem: "--invite-file"},
		"file and argument": {arg: "pnode1-a", file: file, problem: "give one of them"},
		"environment":       {env: "pnode1-e", want: "pnode1-e"},
	} {
		t.Setenv(config.InviteEnv, c.env)
		got, err := environment{stdin: strings.NewReader(c.stdin)}.target(c.arg, c.file)
		if got != c.want || (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if code, _, stderr := pnode(t, "join", "--invite-file", file+"x"); code != exitUsage || !strings.Contains(stderr, "--invite-file") {
		t.Errorf("a missing file: %d %s", code, stderr)
	}
}

// TestJoinWithoutARun: where nothing is unfinished, and nobody is at a terminal or in the local network, the last line says what there is to do.
func TestJoinWithoutARun(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	for args, want := range map[string]string{
		"join":       "no run found on this machine that is unfinished, and nobody is at a terminal",
		"join --lan": "no run found in the local network: ",
	} {
		code, out, problem := pnode(t, strings.Fields(args)...)
		last := problem[strings.LastIndex(strings.TrimSpace(problem), "\n")+1:]
		if code != exitUsage || out != "" || !strings.HasPrefix(last, "pnode: "+want) || !strings.Contains(last, "`pnode join INVITE`") {
			t.Errorf("%s: exit code %d, %q, %s", args, code, out, problem)
		}
	}
}

// TestJoinComesBackToTheUnfinishedRun: `pnode join` alone returns to the one run of this machine that is not over, and says which; of several
// it names the commands.
func TestJoinComesBackToTheUnfinishedRun(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir()) // a register with the runs of this test alone
	t.Setenv("XDG_DATA_HOME", t.TempDir())  // and no others in the default folder
	file := runFile(t, 100000)
	begin := func() string {
		dir := t.TempDir()
		p := start(t, "train", "--config", file, "--dir", dir, "--json")
		p.until(6)
		p.interrupt()
		p.finish(0)
		return dir
	}
	first := begin()
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	back := launchBinary(t, binary, []string{"XDG_DATA_HOME=" + os.Getenv("XDG_DATA_HOME")}, "join", "--json")
	back.stderr.await(t, `coming back to run \S+ as \S+, at step \d+ of 100,?000, in `+regexp.QuoteMeta(first)+"\n")
	back.until(back.last.Step + 8)
	if code, _, problem := pnode(t, "join"); code != exitUsage || !strings.Contains(problem, "shows the one in "+first) {
		t.Errorf("while it runs: %d %s", code, problem)
	}
	back.interrupt()
	back.finish(0)
	second := begin()
	code, _, problem := pnode(t, "join")
	for _, dir := range []string{first, second} {
		if code != exitUsage || !strings.Contains(problem, "`pnode train --resume --dir "+dir+"` (at step ") {
			t.Errorf("with two runs: %d %s", code, problem)
		}
	}
	near := start(t, "train", "--resume", "--lan", "--dir", second, "--json") // which was on this machine alone
	near.stderr.await(t, `announced in the local network`)                    // or not, on a machine without multicast
	near.until(near.last.Step + 1)
	near.interrupt()
	near.finish(0)
}
