package pipeline

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"pnode/pipeline/collective"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

var errShadow = errors.New("nobody sends anything for float32 shadows any more")

// noShadows is an exchange in which nobody has float32 shadows.
type noShadows struct {
	collective.Exchange
	program
}

func (e noShadows) Receive(ctx context.Context, from plan.PeerID, tag wire.Tag) ([]byte, error) {
	if tag.Kind == wire.Activation && plan.Micro(tag.Index) >= e.shadowMicro(0) {
		return nil, fmt.Errorf("%w: %v", errShadow, tag)
	}
	return e.Exchange.Receive(ctx, from, tag)
}

// TestASubstituteHasShadowsWhereOthersHave: the first stage has no float32 shadow, so all drop theirs with the first commit. Who goes on in
// the place of a later stage has none then either, and waits for nothing that nobody sends.
func TestASubstituteHasShadowsWhereOthersHave(t *testing.T) {
	run := halved(testRun())
	run.Train.Steps, run.Train.CheckpointEvery = 2, 2
	p := cut(run, "1f1b", []int{0, 1, 2}, []int{0, 1, 2})
	alone := func(c *Config, _ bool) {
		if c.Worker.Peer == "peer-0-0" {
			c.Device = floatless{c.Device}
		}
	}
	late := 0
	decide := func(c *Config, substitute bool) {
		alone(c, substitute)
		if substitute && c.Plan.Start > 0 {
			late++
			c.Exchange = noShadows{c.Exchange, program{spec: run, plan: p}}
		}
	}
	want := train(t, run, p, &memoryKeeper{})
	clear(want.floats)
	for after, lived := 0, false; !lived; after += 9 {
		got := loss{run, p, "peer-0-1", "peer-1-1", after, decide}.train(t)
		equal(t, fmt.Sprintf("after %d", after), got.result, want)
		lived = got.lived
	}
	if late < 2 {
		t.Errorf("in %d runs a worker is lost after the first commit", late)
	}
}

// TestCommitsKnowWhetherShadowsAreLeft: from the newest evaluation of a generation on, until another schedule begins.
func TestCommitsKnowWhetherShadowsAreLeft(t *testing.T) {
	loss := 2.0
	var commits Commits
	for i, c := range []struct {
		generation plan.Generation
		commit     wire.Commit
		want       bool
	}{
		{1, wire.Commit{}, false},
		{1, wire.Commit{HeldOut: &loss, HeldOutF32: &loss}, false},
		{1, wire.Commit{HeldOut: &loss}, true},
		{1, wire.Commit{}, true},
		{1, wire.Commit{Next: "gpipe"}, false},
		{1, wire.Commit{HeldOut: &loss}, true},
		{2, wire.Commit{}, false},
		{2, wire.Commit{HeldOut: &loss}, true},
		{2, wire.Commit{HeldOut: &loss, Next: "gpipe"}, false},
	} {
		c.commit.Step = plan.Step(i + 1)
		commits.Put(c.generation, c.commit)
		if got := commits.Unmeasured(c.generation, c.commit.Step); got != c.want {
			t.Errorf("after step %d: %t, want %t", c.commit.Step, got, c.want)
		}
	}
	if commits.Unmeasured(1, 8) {
		t.Error("another generation's commit counts")
	}
}
