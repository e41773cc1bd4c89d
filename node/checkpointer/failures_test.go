package checkpointer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pnode/checkpoint"
	"pnode/pipeline"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// apart is told with holders that do not answer: requests to each of them fail after a time.
type apart struct {
	told
	fakeLog
	fails map[plan.PeerID]time.Duration
	deny  error // what the log answers to a CopyFailed; nil is that it takes it
}

func (a *apart) State() consensus.State   { return a.fakeLog.State() }
func (a *apart) Changed() <-chan struct{} { return a.fakeLog.Changed() }

func (a *apart) Propose(ctx context.Context, e consensus.Entry) error {
	failed, ok := e.(consensus.CopyFailed)
	if !ok {
		return a.told.Propose(ctx, e)
	}
	a.acts = append(a.acts, fmt.Sprintf("%s does not get to %s", failed.Peer, failed.Holder))
	if a.deny != nil {
		return a.deny
	}
	next, err := consensus.Apply(a.State(), e)
	if err == nil {
		a.set(next)
	}
	return err
}

func (a *apart) Ask(ctx context.Context, peer plan.PeerID, protocol string, request any) ([]byte, error) {
	answer, err := a.told.Ask(ctx, peer, protocol, request) // notes it
	if took, fails := a.fails[peer]; fails {
		time.Sleep(took)
		return nil, errors.New("no way there")
	}
	return answer, err
}

// TestAHolderOutOfReachIsReplaced: once copies have not got there for some time, whether one waits for that long or several fail at once. One
// that fails alone changes nothing, nor do more where there is nobody else. Nothing is said twice.
func TestAHolderOutOfReachIsReplaced(t *testing.T) {
	const every = 8 * time.Second
	for name, c := range map[string]struct {
		members []plan.PeerID
		fails   map[plan.PeerID]time.Duration
		back    plan.Step // from which on they do not fail any more
		deny    error
		want    []string // of each save, from step 21 on
	}{
		"which does not answer": {members: []plan.PeerID{"b", "c", "me"}, fails: map[plan.PeerID]time.Duration{"b": 30 * time.Second}, want: []string{
			"copy of 21 to b, me does not get to b, copy of 21 to c, report 21 of 3: [me c]",
			"copy of 22 to c, report 22 of 3: [me c]",
		}},
		"which cannot be dialed": {members: []plan.PeerID{"b", "c", "me"}, fails: map[plan.PeerID]time.Duration{"b": 0}, want: []string{
			"copy of 21 to b, report 21 of 3: [me]",
			"copy of 22 to b, report 22 of 3: [me]",
			"copy of 23 to b, me does not get to b, copy of 23 to c, report 23 of 3: [me c]",
			"copy of 24 to c, report 24 of 3: [me c]",
		}},
		"and so is the next one": {members: []plan.PeerID{"b", "c", "d", "me"}, fails: map[plan.PeerID]time.Duration{"b": 30 * time.Second, "c": 30 * time.Second}, want: []string{
			"copy of 21 to b, me does not get to b, copy of 21 to c, me does not get to c, copy of 21 to d, report 21 of 3: [me d]",
			"copy of 22 to d, report 22 of 3: [me d]",
		}},
		"not for a moment": {members: []plan.PeerID{"b", "c", "me"}, fails: map[plan.PeerID]time.Duration{"b": 0}, back: 23, want: []string{
			"copy of 21 to b, report 21 of 3: [me]",
			"copy of 22 to b, report 22 of 3: [me]",
			"copy of 23 to b, report 23 of 3: [me b]",
			"copy of 24 to b, report 24 of 3: [me b]",
		}},
		"not without another one": {members: []plan.PeerID{"b", "me"}, fails: map[plan.PeerID]time.Duration{"b": 30 * time.Second}, want: []string{
			"copy of 21 to b, me does not get to b, report 21 of 3: [me]",
			"copy of 22 to b, report 22 of 3: [me]",
			"copy of 23 to b, report 23 of 3: [me]",
		}},
		"not where the log refuses it": {
			members: []plan.PeerID{"b", "c", "me"}, fails: map[plan.PeerID]time.Duration{"b": 30 * time.Second}, deny: consensus.ErrRejected,
			want: []string{"copy of 21 to b, me does not get to b, report 21 of 3: [me]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				current := plan.Plan{Generation: 3, Start: 20, Replicas: []plan.Pipeline{
					{Stages: []plan.Placement{{Peer: "me", Holder: "b", Layers: plan.LayerRange{End: 1}}}},
				}}
				store, err := checkpoint.Open(t.TempDir(), checkpoint.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer store.Close()
				log := &apart{fails: c.fails, deny: c.deny}
				log.changed = make(chan struct{})
				log.set(consensus.State{Run: &plan.RunSpec{}, Plan: current, Members: members(c.members...), Checkpoint: consensus.Checkpoint{
					Step: 20, Generation: 2, Layers: []consensus.LayerRef{{Holders: []plan.PeerID{"me", "b"}}},
				}})
				saver := New(Config{Self: "me", Store: store, Consensus: log, Peers: log, Log: slog.New(slog.DiscardHandler)}).For(current)
				var got []string
				for step := plan.Step(21); len(got) < len(c.want); step++ {
					if step == c.back {
						log.fails = nil
					}
					if err := saver.Save(t.Context(), pipeline.State{Step: step, Layers: []pipeline.LayerState{{Reader: strings.NewReader("state")}}}); err != nil {
						t.Fatal(err)
					}
					got, log.acts = append(got, strings.Join(log.acts, ", ")), nil
					time.Sleep(every)
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("got  %q\nwant %q", got, c.want)
				}
			})
		})
	}
}

// TestACopyEndsWhereItsHolderDoesNotAnswer: long before its connection does, but for one that takes long and whose holder answers now and then.
func TestACopyEndsWhereItsHolderDoesNotAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		answers func(since time.Duration) bool
		ends    time.Duration // 0 is never
	}{
		"never":        {func(time.Duration) bool { return false }, holderPatience},
		"not any more": {func(since time.Duration) bool { return since < 15*time.Second }, 14*time.Second + holderPatience},
		"now and then": {func(since time.Duration) bool { return since%(holderPatience-answerEvery) == 0 }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				checkpointer := &Checkpointer{Config: Config{Answers: func(context.Context, plan.PeerID) bool { return c.answers(time.Since(began)) }}}
				ctx, free := checkpointer.untilSilent(t.Context(), "b")
				defer free()
				select {
				case <-ctx.Done():
				case <-time.After(10 * time.Minute):
				}
				if took := time.Since(began); c.ends != 0 && took != c.ends || !errors.Is(context.Cause(ctx), errSilent) != (c.ends == 0) {
					t.Errorf("after %v: %v, want after %v", took, context.Cause(ctx), c.ends)
				}
			})
		})
	}
}
