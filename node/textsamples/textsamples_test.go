package textsamples

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"pnode/node/api"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// rig is a Sampler whose model writes its step, unless it is to fail.
type rig struct {
	*Sampler
	told []plan.Step
	fail error
	hold chan struct{} // nil, or what a text waits for
	log  bytes.Buffer
}

// begin starts a Sampler in a bubble of synctest.
func begin(t *testing.T, train plan.TrainSpec) *rig {
	r := &rig{}
	r.Sampler = New(Config{
		Every: 10, Spec: func() plan.RunSpec { return plan.RunSpec{Train: train} }, Log: slog.New(slog.NewTextHandler(&r.log, nil)),
		Write: func(_ context.Context, _ plan.RunSpec, c consensus.Checkpoint) (string, error) {
			if r.hold != nil {
				<-r.hold
			}
			return fmt.Sprint(c.Step), r.fail
		},
		Publish: func(e api.Event) {
			if e.Kind != api.KindSample || e.Message != fmt.Sprint(e.Step) || e.Steps != train.Steps {
				t.Errorf("%+v", e)
			}
			r.told = append(r.told, e.Step)
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go r.Run(ctx)
	return r
}

// whole tells of checkpoints, each once the one before was looked at, and compares what the model has written then.
func (r *rig) whole(t *testing.T, want []plan.Step, steps ...plan.Step) {
	t.Helper()
	for _, step := range steps {
		r.Whole(consensus.Checkpoint{Step: step})
		synctest.Wait()
	}
	if !slices.Equal(r.told, want) {
		t.Errorf("after %v: the model wrote at %v, want %v", steps, r.told, want)
	}
}

// TestTheModelWritesWhereAMultipleIsReached: at the first checkpoint that reaches or passes one, again where the run goes back, and not at the
// run's last step, which has a text of its own.
func TestTheModelWritesWhereAMultipleIsReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := begin(t, plan.TrainSpec{Steps: 60, SampleTokens: 1})
		r.whole(t, nil, 4, 9)
		r.whole(t, []plan.Step{12}, 12, 15, 19)
		r.whole(t, []plan.Step{12, 47}, 47, 48)
		r.whole(t, []plan.Step{12, 47, 33}, 33)
		r.whole(t, []plan.Step{12, 47, 33}, 60)
	})
	synctest.Test(t, func(t *testing.T) {
		begin(t, plan.TrainSpec{Steps: 60}).whole(t, []plan.Step{60}, 60)
	})
}

// TestTheNewestCheckpointIsWrittenFrom: while a text is being written only the newest of the checkpoints that come is kept, and nobody waits.
func TestTheNewestCheckpointIsWrittenFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := begin(t, plan.TrainSpec{Steps: 60})
		r.hold = make(chan struct{})
		r.whole(t, nil, 12, 24, 36, 48)
		close(r.hold)
		synctest.Wait()
		r.whole(t, []plan.Step{12, 48})
	})
}

// TestAModelThatCannotWriteIsTriedAgain, and said once.
func TestAModelThatCannotWriteIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := begin(t, plan.TrainSpec{Steps: 60})
		r.fail = errors.New("no memory")
		r.whole(t, nil, 12, 13, 21)
		if n := strings.Count(r.log.String(), "no memory"); n != 1 {
			t.Errorf("said %d times", n)
		}
		r.fail = nil
		r.whole(t, []plan.Step{22}, 22)
	})
}

// TestNobodyAsked: a Sampler without a number of steps takes checkpoints in, and writes nothing.
func TestNobodyAsked(t *testing.T) {
	s := New(Config{})
	s.Run(t.Context())
	for step := range plan.Step(3) {
		s.Whole(consensus.Checkpoint{Step: step})
	}
}
