package checkpointer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lukechampine.com/blake3"

	"pnode/checkpoint"
	"pnode/checkpoint/disk"
	"pnode/pipeline"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestWhoSavesWaitsForAPlanBeforeItMakesCopies: in a pause each replica reports its state as soon as it can be read, and the
// next plan fetches it there; else it is stored first, and a copy made.
func TestWhoSavesWaitsForAPlanBeforeItMakesCopies(t *testing.T) {
	current := plan.Plan{Generation: 3, Start: 20, Replicas: []plan.Pipeline{
		{Stages: []plan.Placement{{Peer: "me", Holder: "b", Layers: plan.LayerRange{End: 1}}}},
		{Stages: []plan.Placement{{Peer: "me", Holder: "c", Layers: plan.LayerRange{End: 1}}}},
	}}
	paused := consensus.State{Run: &plan.RunSpec{}, Plan: current, PauseWanted: 1, Checkpoint: consensus.Checkpoint{Step: 20}, Members: members("b", "c", "me")}
	paused.Members[2].ProcessEpoch = 5
	first := paused
	first.Checkpoint = consensus.Checkpoint{}
	ending, stopping := paused, paused
	ending.Run, stopping.StopWanted = &plan.RunSpec{Train: plan.TrainSpec{Steps: 23}}, true
	stopped := consensus.State{Run: &plan.RunSpec{}, Plan: current, StopWanted: true, Members: paused.Members}
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
		{"a pause", paused, true, false, 0, time.Second, []string{"report 23 of 3: [me] in memory of process 5"}},
		{"another replica has the same", paused, true, false, 1, time.Second, []string{"report 23 of 3: [me] in memory of process 5"}},
		{"a pause before the first checkpoint", first, true, false, 0, 0, []string{"copy of 23 to b", "report 23 of 3: [me b]"}},
		{"what is left after the plan's end", paused, false, true, 1, 0, []string{"report 23 of 3: [me] in memory of process 5"}},
		{"what is left of the run's last step", ending, true, true, 0, 0, []string{"report 23 of 3: [me]"}},
		{"what is left of a run that stops", stopping, true, true, 0, 0, []string{"report 23 of 3: [me]"}},
		{"the run's last step in a pause", ending, true, false, 0, time.Second, []string{"report 23 of 3: [me]"}},
		{"no plan comes", paused, true, false, 0, 0, []string{"report 23 of 3: [me] in memory of process 5", "copy of 23 to b", "report 23 of 3: [me b]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, err := checkpoint.Open(quickDir(t), checkpoint.Options{})
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

// TestWhatAPauseKeepsInMemoryIsStoredBehind: no sync is waited for before the report of a pause. The log hears that the layers are stored once
// they are, and not of those that have not come so far.
func TestWhatAPauseKeepsInMemoryIsStoredBehind(t *testing.T) {
	dir, syncs, broken := quickDir(t), 0, false
	store, err := checkpoint.Open(dir, checkpoint.Options{Self: "me", Disk: disk.Disk{Before: func(c disk.Change, path string) error {
		switch {
		case c != disk.Sync || !strings.HasPrefix(path, filepath.Join(dir, "tmp")):
		case broken:
			return errors.New("the disk is broken")
		default:
			syncs++
		}
		return nil
	}}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	syncs = 0
	current := plan.Plan{Generation: 3, Start: 20, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "me", Layers: plan.LayerRange{End: 1}}}}}}
	state := consensus.State{Run: &plan.RunSpec{Run: "run"}, Plan: current, PauseWanted: 1, Checkpoint: consensus.Checkpoint{Step: 20}, Members: members("b", "me")}
	state.Members[1].ProcessEpoch = 5
	log := &told{state: state}
	made := New(Config{Self: "me", Store: store, Fetcher: Fetcher{Self: "me", Store: store}, Consensus: log, Peers: log, Log: slog.New(slog.DiscardHandler)})
	ctx, end := context.WithCancel(t.Context())
	log.ended = end // the next plan follows the report
	err = made.For(current).Save(ctx, pipeline.State{Step: 23, Last: true, Layers: []pipeline.LayerState{{Reader: strings.NewReader("state")}}})
	if want := []string{"report 23 of 3: [me] in memory of process 5"}; err != nil || !slices.Equal(log.acts, want) || syncs != 0 {
		t.Fatalf("%v after %d syncs, %v; want %v", log.acts, syncs, err, want)
	}
	log.acts = nil
	hash := plan.Hash(blake3.Sum256([]byte("state")))
	layer := consensus.LayerRef{SizeBytes: 5, Chunks: []plan.Hash{hash}, Holders: []plan.PeerID{"me"}, Unstored: []consensus.Process{{Peer: "me", ProcessEpoch: 5}}}
	log.state.Checkpoint = consensus.Checkpoint{Step: 23, Generation: 3, Layers: []consensus.LayerRef{layer}}
	broken = true
	if err := errors.Join(made.Commit(log.state), made.Stored(t.Context(), log.state)); err == nil || len(log.acts) > 0 {
		t.Errorf("%v while the disk is broken, %v", log.acts, err)
	}
	broken = false
	if err := made.Commit(log.state); err != nil || syncs == 0 {
		t.Fatalf("%d syncs, %v", syncs, err)
	}
	err = made.Stored(t.Context(), log.state)
	if want := []string{"report 23 of 3: [me]"}; err != nil || !slices.Equal(log.acts, want) {
		t.Errorf("%v, %v; want %v", log.acts, err, want)
	}
	log.acts = nil
	pending := consensus.Checkpoint{Step: 23, Generation: 3, Last: true, Layers: []consensus.LayerRef{layer}}
	err = made.Stored(t.Context(), consensus.State{Pending: []consensus.Checkpoint{pending}})
	if want := []string{"report 23 of 3: [me]"}; err != nil || !slices.Equal(log.acts, want) || !log.last {
		t.Errorf("%v, %v; want %v of the last step, which the others have yet to report", log.acts, err, want)
	}
	log.acts = nil
	log.state.Checkpoint.Layers = append(log.state.Checkpoint.Layers, layer)
	log.state.Checkpoint.Layers[0].Unstored = nil
	log.state.Checkpoint.Layers[1].Layer, log.state.Checkpoint.Layers[1].Chunks = 1, []plan.Hash{{9}}
	if err := made.Stored(t.Context(), log.state); err != nil || len(log.acts) > 0 {
		t.Errorf("%v, %v: one layer is stored already, the other one is not here", log.acts, err)
	}
}

// TestAReportedStageIsSavedWhateverItsPin: the log counts on it. Only a sweep might take it, of which the user is told.
func TestAReportedStageIsSavedWhateverItsPin(t *testing.T) {
	broken := false
	store, err := checkpoint.Open(quickDir(t), checkpoint.Options{Self: "me", Disk: disk.Disk{Before: func(disk.Change, string) error {
		if broken {
			return errors.New("the disk is broken")
		}
		return nil
	}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	current := plan.Plan{Generation: 3, Start: 20, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "me", Layers: plan.LayerRange{End: 1}}}}}}
	state := consensus.State{Run: &plan.RunSpec{}, Plan: current, PauseWanted: 1, Checkpoint: consensus.Checkpoint{Step: 20}, Members: members("me")}
	state.Members[0].ProcessEpoch = 5
	ctx, end := context.WithCancel(t.Context())
	var warned strings.Builder
	log := &told{state: state, ended: func() { broken = true; end() }}
	saver := New(Config{Self: "me", Store: store, Consensus: log, Peers: log, Log: slog.New(slog.NewTextHandler(&warned, nil))}).For(current)
	err = saver.Save(ctx, pipeline.State{Step: 23, Last: true, Layers: []pipeline.LayerState{{Reader: strings.NewReader("state")}}})
	if want := []string{"report 23 of 3: [me] in memory of process 5"}; err != nil || !slices.Equal(log.acts, want) {
		t.Errorf("%v, %v; want %v", log.acts, err, want)
	}
	if !strings.Contains(warned.String(), "may be swept") || !strings.Contains(warned.String(), "the disk is broken") {
		t.Errorf("told %q", warned.String())
	}
}

// TestFetchedStateStaysUntilALaterCheckpoint: the log has the checkpoint that a plan starts from before its manifest is stored
// here, and a sweep for the one before comes last.
func TestFetchedStateStaysUntilALaterCheckpoint(t *testing.T) {
	store, err := checkpoint.Open(quickDir(t), checkpoint.Options{Self: "me"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	data := []byte("state")
	h := plan.Hash(blake3.Sum256(data))
	next := plan.Plan{Generation: 4, Start: 23, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "me", Layers: plan.LayerRange{End: 1}}}}}}
	log := &told{state: consensus.State{Run: &plan.RunSpec{Run: "r", Train: plan.TrainSpec{KeepCheckpoints: 1}}, Plan: next, Members: members("b", "me"), Checkpoint: consensus.Checkpoint{
		Step: 23, Generation: 3, Layers: []consensus.LayerRef{{SizeBytes: int64(len(data)), Chunks: []plan.Hash{h}, Holders: []plan.PeerID{"b"}}},
	}}}
	made := New(Config{Self: "me", Store: store, Consensus: log, Peers: log, Log: slog.New(slog.DiscardHandler), Fetcher: Fetcher{
		Self: "me", Store: store, Living: func() []plan.PeerID { return []plan.PeerID{"b"} },
		Fetch: func(_ context.Context, _ plan.PeerID, _ []plan.Hash, put func(plan.Hash, []byte) error) error {
			return put(h, data)
		},
	}})
	_, rest := made.For(next).Fetch(t.Context(), []int{0})
	rest()
	if _, err := store.Sweep(); err != nil || !store.HasChunk(h) {
		t.Errorf("%v, the chunk is here: %t", err, store.HasChunk(h))
	}
	if err := made.Commit(log.state); err != nil || !store.HasChunk(h) {
		t.Errorf("%v, after the commit the chunk is here: %t", err, store.HasChunk(h))
	}
	if pins, err := store.Pins(); err != nil || len(pins) > 0 {
		t.Errorf("%v, pins %q are left", err, pins)
	}
}

// TestOneHolderIsAskedForAllLayersAtOnce: each question costs a round trip.
func TestOneHolderIsAskedForAllLayersAtOnce(t *testing.T) {
	store, err := checkpoint.Open(quickDir(t), checkpoint.Options{Self: "me"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	state := map[plan.Hash][]byte{}
	made := consensus.Checkpoint{Step: 23}
	for l := range 3 {
		data := []byte{byte(l)}
		h := plan.Hash(blake3.Sum256(data))
		state[h] = data
		made.Layers = append(made.Layers, consensus.LayerRef{Layer: l, SizeBytes: 1, Chunks: []plan.Hash{h}, Holders: []plan.PeerID{"b"}})
	}
	log := &told{state: consensus.State{Checkpoint: made, Members: members("b", "me")}}
	var asked []int
	saver := New(Config{Self: "me", Store: store, Consensus: log, Peers: log, Log: slog.New(slog.DiscardHandler), Fetcher: Fetcher{
		Self: "me", Store: store, Living: func() []plan.PeerID { return []plan.PeerID{"b"} },
		Fetch: func(_ context.Context, _ plan.PeerID, hashes []plan.Hash, put func(plan.Hash, []byte) error) error {
			asked = append(asked, len(hashes))
			for _, h := range hashes {
				if err := put(h, state[h]); err != nil {
					return err
				}
			}
			return nil
		},
	}}).For(plan.Plan{Start: 23})
	loads, rest := saver.Fetch(t.Context(), []int{0, 2})
	rest()
	var got bytes.Buffer
	if err := loads.Load(t.Context(), 2, pipeline.Whole, &got); err != nil || !slices.Equal(got.Bytes(), []byte{2}) || !slices.Equal(asked, []int{2}) {
		t.Errorf("%v: loaded %v, asked for %v chunks, want 2 at once", err, got.Bytes(), asked)
	}
}

// TestACheckpointThatComesTooLateIsNoFailure: a pause has had a later step saved meanwhile. The last step of a plan must be
// taken.
func TestACheckpointThatComesTooLateIsNoFailure(t *testing.T) {
	current := plan.Plan{Generation: 3, Start: 20, Replicas: []plan.Pipeline{
		{Stages: []plan.Placement{{Peer: "me", Holder: "b", Layers: plan.LayerRange{End: 1}}}},
	}}
	for _, last := range []bool{false, true} {
		store, err := checkpoint.Open(quickDir(t), checkpoint.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		log := &told{
			state:   consensus.State{Run: &plan.RunSpec{}, Plan: current, StopWanted: last, Members: members("b", "me")},
			refuses: fmt.Errorf("%w: %w", consensus.ErrRejected, consensus.ErrStale),
		}
		saver := New(Config{Self: "me", Store: store, Consensus: log, Peers: log, Log: slog.New(slog.DiscardHandler)}).For(current)
		err = saver.Save(t.Context(), pipeline.State{Step: 23, Last: last, Layers: []pipeline.LayerState{{Reader: strings.NewReader("state")}}})
		if want := []string{"copy of 23 to b", "report 23 of 3: [me b]"}; errors.Is(err, consensus.ErrStale) != last || !slices.Equal(log.acts, want) {
			t.Errorf("last %t: %v, %v", last, log.acts, err)
		}
	}
}

// late refuses all reports as made from an older state.
type late struct{ *told }

func (l late) Propose(ctx context.Context, e consensus.Entry) error {
	_ = l.told.Propose(ctx, e)
	return fmt.Errorf("%w: %w", consensus.ErrRejected, consensus.ErrStale)
}

// TestAReplicaThatSavesLateIsNoFailure: in a pause the log has had the same layers from another replica, and has the next plan,
// which goes on with what is in memory.
func TestAReplicaThatSavesLateIsNoFailure(t *testing.T) {
	current := plan.Plan{Generation: 3, Start: 20, Replicas: []plan.Pipeline{
		{Stages: []plan.Placement{{Peer: "b", Layers: plan.LayerRange{End: 1}}}},
		{Stages: []plan.Placement{{Peer: "me", Layers: plan.LayerRange{End: 1}}}},
	}}
	store, err := checkpoint.Open(quickDir(t), checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	log := late{&told{state: consensus.State{
		Run: &plan.RunSpec{}, Plan: current, PauseWanted: 1, Checkpoint: consensus.Checkpoint{Step: 20}, Members: members("b", "me"),
	}}}
	saver := New(Config{Self: "me", Store: store, Consensus: log, Peers: log, Log: slog.New(slog.DiscardHandler)}).For(current)
	err = saver.Save(t.Context(), pipeline.State{Step: 23, Last: true, Replica: 1, Layers: []pipeline.LayerState{{Reader: strings.NewReader("state")}}})
	if want := []string{"report 23 of 3: [me]"}; err != nil || !slices.Equal(log.acts, want) {
		t.Errorf("%v, %v; want %v", log.acts, err, want)
	}
}

// sayings is a log that takes what is proposed down.
type sayings struct {
	Consensus
	said []consensus.Entry
}

func (l *sayings) Propose(_ context.Context, e consensus.Entry) error {
	l.said = append(l.said, e)
	return nil
}

// TestAReportSaysNothingOfWholeCopies: the log has counted one of the layers that a worker reports a copy of.
func TestAReportSaysNothingOfWholeCopies(t *testing.T) {
	log := &sayings{}
	s := PlanSaver{Checkpointer: &Checkpointer{Config: Config{Self: "a", Store: emptyStore(t), Consensus: log}}}
	saved := consensus.StageSaved{Step: 5, Layers: []consensus.LayerRef{{Holders: []plan.PeerID{"a", "b"}, Whole: 1}}}
	if err := s.report(t.Context(), saved, "a", "c"); err != nil {
		t.Fatal(err)
	}
	if got := log.said[0].(consensus.StageSaved).Layers[0]; got.Whole != 0 || !slices.Equal(got.Holders, []plan.PeerID{"a", "c"}) || saved.Layers[0].Whole != 1 {
		t.Errorf("reported %+v of %+v", got, saved.Layers[0])
	}
}
