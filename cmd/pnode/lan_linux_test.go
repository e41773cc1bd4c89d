package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pnode/swarm/admission"
	"pnode/swarm/netlab"
)

// TestJoinInTheLocalNetwork: a machine finds a run on its own cable, shows a code, and joins once that was entered on the owner's machine; with another
// code it is not let in. A machine elsewhere finds nothing.
func TestJoinInTheLocalNetwork(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes take minutes")
	}
	lab := netlab.New(t)
	desk, laptop, away := lab.Host("desk", netlab.Public), lab.Host("laptop", netlab.Public), lab.Host("away", netlab.Public)
	_, at := lab.Cable(desk, laptop)
	run := filepath.Join(t.TempDir(), "run")
	_, stop := trainsOn(t, desk, run, "--lan", "--name", "desk")
	defer stop()
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	begin := func(args ...string) (log *watched, end func() int) {
		t.Helper()
		log = &watched{fresh: make(chan struct{}, 1)}
		cmd := exec.Command(binary, append([]string{"join", "--name", "laptop", "--emulate", deviceFile(t, "1GFLOP/s")}, args...)...)
		home := t.TempDir() // without a run to come back to
		cmd.Env, cmd.Stderr = append(outerEnv, "HOME="+home, "XDG_STATE_HOME="+home, "XDG_DATA_HOME="+home), log
		if err := laptop.Start(cmd); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // before its folders go
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		return log, func() int {
			_ = cmd.Wait() // the code says it
			return cmd.ProcessState.ExitCode()
		}
	}
	const asks = `asking desk to let this machine into run \w+\. On desk, if it shows the same code \d{3} \d{3}, enter: pnode admit (\d{6})`
	admit := func(code int, args ...string) string {
		t.Helper()
		out, errs, got := on(t, desk, nil, append([]string{"admit", "--dir", run}, args...)...)
		if got != code {
			t.Fatalf("admit %v: exit code %d, want %d:\n%s%s", args, got, code, out, errs)
		}
		return out + errs
	}
	if out := admit(0); !strings.Contains(out, "nobody in the local network asks to join") {
		t.Errorf("nobody asks: %s", out)
	}

	refused, ended := begin("--lan=desk")
	code := refused.await(t, asks)[1]
	if out := admit(0); !strings.Contains(out, "laptop  "+at.String()+"  "+code) {
		t.Errorf("who asks: %s", out)
	}
	other := "000000"
	if code == other {
		other = "000001"
	}
	if out := admit(exitUnreachable, other); !strings.Contains(out, "no newcomer shows that code: the one that waited was refused") {
		t.Errorf("another code: %s", out)
	}
	if got := ended(); got != exitUnreachable || !strings.Contains(refused.String(), "desk has not let this machine in: ") {
		t.Errorf("who is refused: exit code %d, %s", got, refused)
	}

	alone, ended := begin() // nothing to come back to
	if got := ended(); got == 0 || !strings.Contains(alone.String(), "nobody is at a terminal to say whose run of the local network to join") {
		t.Errorf("without --lan or a terminal: exit code %d, %s", got, alone)
	}
	joined, _ := begin("--lan")
	code = joined.await(t, asks)[1]
	time.Sleep(admission.TimeLimit + time.Second) // people take longer than a stranger's connection lasts
	if out := admit(0, code[:3]+" "+code[3:]); !strings.Contains(out, "laptop ("+at.String()+") may join") {
		t.Errorf("the code that it shows: %s", out)
	}
	joined.await(t, `state: (?:standby|waiting|training)`)
	if out, errs, got := on(t, desk, nil, "invite", "--list", "--dir", run); got != 0 || !strings.Contains(out, "0 of 1") || !strings.Contains(out, "laptop") {
		t.Errorf("invites: %s%s", out, errs)
	}

	_, errs, got := on(t, away, nil, "join", "--lan", "--dir", filepath.Join(t.TempDir(), "away"))
	if got != exitUsage || !strings.Contains(errs, "no run found in the local network") {
		t.Errorf("elsewhere: exit code %d, %s", got, errs)
	}
}
