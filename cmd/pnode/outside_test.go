package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// ordered checks the lines of --json on standard output: no place twice, none after a newer
// one, and no step left out within a generation. It gives the losses by step.
func (p *process) ordered() map[int]json.Number {
	p.t.Helper()
	losses := map[int]json.Number{}
	var before step
	for line := range strings.Lines(p.stdout.String()) {
		var s step
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			p.t.Fatalf("%q: %v", line, err)
		}
		switch {
		case before.Step == 0, s.Generation > before.Generation && s.Step <= before.Step+1:
		case s.Generation != before.Generation || s.Step != before.Step+1:
			p.t.Errorf("step %d of generation %d follows step %d of generation %d", s.Step, s.Generation, before.Step, before.Generation)
		}
		before = s
		losses[s.Step] = s.Loss
	}
	return losses
}

// TestANodeOutsideThePlanTellsEveryStep: the plan has room for one node, so the one that
// joins never computes. Their devices wait instead of computing, so that there is time to join.
func TestANodeOutsideThePlanTellsEveryStep(t *testing.T) {
	t.Parallel()
	const steps = 200
	device := deviceFile(t, "4GFLOP/s") // 0.1 s a step
	p := start(t, "train", "--config", runFile(t, steps), "--micros", "1", "--checkpoint-every", "50", "--dir", t.TempDir(), "--json", "--replicas", "1", "--stages", "1",
		"--listen", "127.0.0.1:0", "--emulate", device)
	invite := p.stderr.await(t, `pnode join (pnode1-\S+)`)
	p.until(3)
	j := start(t, "join", invite[1], "--dir", t.TempDir(), "--json", "--emulate", device)
	want, got := p.finish(0), j.finish(0)
	if len(got) == 0 || got[steps] != want[steps] {
		t.Fatalf("%d steps, the last with loss %q, want %q:\n%s", len(got), got[steps], want[steps], j.stderr)
	}
	for s, loss := range j.ordered() {
		if loss != want[s] {
			t.Errorf("step %d has loss %s, want %s", s, loss, want[s])
		}
	}
	if heldOut := func(p *process) string { return fmt.Sprint(*p.last.HeldOut) }; heldOut(j) != heldOut(p) {
		t.Errorf("held-out loss %s, want %s", heldOut(j), heldOut(p))
	}
	j.stderr.await(t, `done: finished at step 200: held-out loss`)
}

// TestTheOthersTellEveryStepInOrder: of three nodes one computes. When it is killed another
// one does, and the lines of all of them make one sequence.
func TestTheOthersTellEveryStepInOrder(t *testing.T) {
	t.Parallel()
	const steps = 24
	file := runFile(t, steps)
	p := start(t, "train", "--config", file, "--dir", t.TempDir(), "--json", "--local", "3", "--replicas", "1", "--stages", "1")
	computes := p.stderr.await(t, `-(\d): state: training`)
	pid := p.stderr.await(t, fmt.Sprintf(`-%s: pid (\d+)`, computes[1]))
	p.until(8)
	kill(t, pid[1])
	p.finish(0)
	if p.last.Generation < 2 {
		t.Errorf("the run ended in generation %d: nobody noticed the kill", p.last.Generation)
	}
	got := p.ordered()
	if len(got) != steps {
		t.Errorf("%d steps, want %d", len(got), steps)
	}
	same(t, "with a kill", got, alone(t, file, steps))
}
