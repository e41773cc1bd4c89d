package checkpointer

import (
	"context"
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

// told is a consensus and the members at once: it notes what a saver does, in order. Its state changes at no time.
type told struct {
	state consensus.State
	acts  []string
}

func (t *told) State() consensus.State   { return t.state }
func (t *told) Changed() <-chan struct{} { return nil }

func (t *told) Propose(_ context.Context, e consensus.Entry) error {
	saved := e.(consensus.StageSaved)
	t.acts = append(t.acts, fmt.Sprintf("report %d of %d: %v", saved.Step, saved.Generation, saved.Layers[0].Holders))
	return nil
}

func (t *told) Ask(_ context.Context, peer plan.PeerID, _ string, request any) ([]byte, error) {
	t.acts = append(t.acts, fmt.Sprintf("copy of %d to %s", request.(copyRequest).Step, peer))
	return nil, nil
}

func (t *told) Serve(string, func(context.Context, plan.PeerID, []byte) ([]byte, error)) {}

// TestWhoSavesWaitsForAPlanBeforeItMakesCopies: in a pause each replica reports its state as soon as it is stored, and the
// next plan fetches it there; else a copy comes first.
func TestWhoSavesWaitsForAPlanBeforeItMakesCopies(t *testing.T) {
	current := plan.Plan{Generation: 3, Start: 20, Replicas: []plan.Pipeline{
		{Stages: []plan.Placement{{Peer: "me", Holder: "b", Layers: plan.LayerRange{End: 1}}}},
		{Stages: []plan.Placement{{Peer: "me", Holder: "c", Layers: plan.LayerRange{End: 1}}}},
	}}
	paused := consensus.State{Run: &plan.RunSpec{}, Plan: current, PauseWanted: 1, Checkpoint: consensus.Checkpoint{Step: 20}}
	first := paused
	first.Checkpoint = consensus.Checkpoint{}
	stopped := consensus.State{Run: &plan.RunSpec{}, Plan: current, StopWanted: true}
	for _, c := range []struct {
		name    string
		state   consensus.State
		last    bool
		left    bool // in memory, after the plan's end
		replica plan.Replica
		follows time.Duration // when the plan ends; 0 is never
		want    []string
	}{
		{"a checkpoint in the middle", stopped, false, false, 0, 0, []string{"copy of 23 to b", "report 23 of 3: [me b]"}},
		{"which one replica saves", stopped, false, false, 1, 0, nil},
		{"the last one of a run", stopped, true, false, 0, 0, []string{"copy of 23 to b", "report 23 of 3: [me b]"}},
		{"which one replica saves", stopped, true, false, 1, 0, nil},
		{"a pause", paused, true, false, 0, time.Second, []string{"report 23 of 3: [me]"}},
		{"another replica has the same", paused, true, false, 1, time.Second, []string{"report 23 of 3: [me]"}},
		{"a pause before the first checkpoint", first, true, false, 0, 0, []string{"copy of 23 to b", "report 23 of 3: [me b]"}},
		{"what is left after the plan's end", paused, false, true, 1, 0, []string{"report 23 of 3: [me]"}},
		{"no plan comes", paused, true, false, 0, 0, []string{"report 23 of 3: [me]", "copy of 23 to b", "report 23 of 3: [me b]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, err := checkpoint.Open(t.TempDir(), checkpoint.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer store.Close()
				ctx, end := context.WithCancel(t.Context())
				defer end()
				if c.follows > 0 {
					time.AfterFunc(c.follows, end)
				}
				log := &told{state: c.state}
				saver := New(Config{Self: "me", Store: store, Consensus: log, Peers: log, Log: slog.New(slog.DiscardHandler)}).For(current)
				if c.left {
					saver = saver.Checkpointer.Salvage(current)
				}
				err = saver.Save(ctx, pipeline.State{
					Step: 23, Last: c.last, Replica: c.replica, Layers: []pipeline.LayerState{{Reader: strings.NewReader("state")}},
				})
				if err != nil || !slices.Equal(log.acts, c.want) {
					t.Errorf("%v, %v; want %v", log.acts, err, c.want)
				}
			})
		})
	}
}

// TestWhoHasLoadedTheStateSaysSo, so that a member that leaves need not stay, and then has copies made.
func TestWhoHasLoadedTheStateSaysSo(t *testing.T) {
	next := plan.Plan{Generation: 4, Start: 23, Replicas: []plan.Pipeline{{Stages: []plan.Placement{
		{Peer: "me", Holder: "b", Layers: plan.LayerRange{End: 1}},
		{Peer: "b", Holder: "me", Layers: plan.LayerRange{First: 1, End: 2}},
		{Peer: "me", Holder: "b", Layers: plan.LayerRange{First: 2, End: 3}},
	}}}}
	for _, c := range []struct {
		name    string
		step    plan.Step
		holders [3][]plan.PeerID // by layer
		want    []string
	}{
		{"the leaver had all", 23, [3][]plan.PeerID{{"leaver"}, {"b"}, {"leaver"}}, []string{
			"report 23 of 3: [me]", "report 23 of 3: [me]", "copy of 23 to b", "report 23 of 3: [me b]", "copy of 23 to b", "report 23 of 3: [me b]",
		}},
		{"all is where it belongs", 23, [3][]plan.PeerID{{"me", "b"}, {"b"}, {"b", "me"}}, nil},
		{"the run went back", 10, [3][]plan.PeerID{{"leaver"}, {"b"}, {"leaver"}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			made := consensus.Checkpoint{Step: c.step, Generation: 3}
			for i, h := range c.holders {
				made.Layers = append(made.Layers, consensus.LayerRef{Layer: i, Holders: h})
			}
			log := &told{state: consensus.State{Plan: next, Checkpoint: made}}
			saver := New(Config{Self: "me", Consensus: log, Peers: log, Log: slog.New(slog.DiscardHandler)}).For(next)
			if err := saver.Settle(t.Context()); err != nil || !slices.Equal(log.acts, c.want) {
				t.Errorf("%v, %v; want %v", log.acts, err, c.want)
			}
		})
	}
}
