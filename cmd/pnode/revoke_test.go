package main

import (
	"path/filepath"
	"strings"
	"testing"

	"pnode/node/qrcode"
)

// TestAnOwnerRemovesANode in real processes: a node that came by an invite is removed, told why, and stays out after the
// owner's node was killed and started again; a second owner, made by an invite, lets in and revokes like the first.
func TestAnOwnerRemovesANode(t *testing.T) {
	t.Parallel()
	dir, ada, eve := t.TempDir(), filepath.Join(t.TempDir(), "ada"), filepath.Join(t.TempDir(), "eve")
	device := deviceFile(t, "1GFLOP/s")
	p := start(t, "train", "--config", runFile(t, 100000), "--dir", dir, "--name", "desk", "--listen", "127.0.0.1:0", "--emulate", device)
	p.stderr.await(t, `pnode join (pnode1-\S+)`)
	ask := func(code int, args ...string) (out, problem string) {
		t.Helper()
		c := start(t, args...)
		c.finish(code)
		return strings.TrimSpace(c.stdout.String()), c.stderr.String()
	}
	invite, _ := ask(0, "invite", "--dir", dir)
	if len(invite) > 110 {
		t.Errorf("an invite of %d characters: %s", len(invite), invite)
	}

	j := start(t, "join", invite, "--dir", ada, "--name", "ada", "--emulate", device)
	j.stderr.await(t, `(state: (?:standby|waiting))`)
	if _, problem := ask(exitUnreachable, "join", invite, "--dir", eve); !strings.Contains(problem, "invite is used up") {
		t.Errorf("an invite for one, twice: %s", problem)
	}
	if _, problem := ask(exitUnreachable, "revoke", "desk", "--dir", ada); !strings.Contains(problem, "only desk can revoke") {
		t.Errorf("a member revokes: %s", problem)
	}
	if out, _ := ask(0, "revoke", "ada", "--dir", dir, "--reason", "sends nonsense"); !strings.Contains(out, "ada is removed from the run") {
		t.Errorf("revoke: %s", out)
	}
	j.finish(exitUnreachable)
	told := func(problem string) {
		t.Helper()
		if !strings.Contains(problem, "this node was removed from the run by desk: sends nonsense") {
			t.Errorf("the removed node is told: %s", problem)
		}
	}
	told(j.stderr.String())

	p.kill()
	p = start(t, "train", "--resume", "--dir", dir, "--emulate", device)
	p.stderr.await(t, `pnode join (pnode1-\S+)`)
	_, problem := ask(exitUnreachable, "join", "--dir", ada, "--emulate", device)
	told(problem)

	owners, _ := ask(0, "invite", "--owner", "--dir", dir)
	o := start(t, "join", owners, "--dir", eve, "--name", "eve", "--emulate", device)
	o.stderr.await(t, `(state: (?:standby|waiting))`)
	second, code := ask(0, "invite", "--qr", "--dir", eve)
	if drawn, err := qrcode.Terminal(second, false); err != nil || !strings.HasSuffix(code, ":\n"+drawn) {
		t.Errorf("the code of %s: %v\n%s", second, err, code)
	}
	if out, _ := ask(0, "revoke", second, "--dir", eve); !strings.Contains(out, "nobody comes in by invite") {
		t.Errorf("a second owner revokes its invite: %s", out)
	}
	out, _ := ask(0, "invite", "--list", "--dir", dir)
	for _, want := range []string{"ada (removed)", "owner   0 of 1", "eve"} {
		if !strings.Contains(out, want) {
			t.Errorf("the list lacks %q:\n%s", want, out)
		}
	}
	o.kill()
	p.kill()
}
