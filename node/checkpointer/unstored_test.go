package checkpointer

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pnode/checkpoint"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// inMemory opens a store for "me" that has a chunk which is not durable yet. again opens it after the machine was off.
func inMemory(t *testing.T, data string) (store *checkpoint.Store, dir string, h plan.Hash, again func() *checkpoint.Store) {
	t.Helper()
	dir = quickDir(t)
	store, err := checkpoint.Open(dir, checkpoint.Options{Self: "me"})
	if err == nil {
		writing := store.BeginBehind()
		h, err = writing.PutChunk([]byte(data))
		writing.Abort()
	}
	if err != nil {
		t.Fatal(err)
	}
	return store, dir, h, func() *checkpoint.Store {
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		after, err := checkpoint.Open(dir, checkpoint.Options{Self: "me"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { after.Close() })
		return after
	}
}

// TestACopyOfWhatIsInMemoryIsDurable: a stage's holder computes the same layers in another replica.
func TestACopyOfWhatIsInMemoryIsDurable(t *testing.T) {
	store, _, h, again := inMemory(t, "state")
	log := &fakeLog{changed: make(chan struct{})}
	log.set(consensus.State{
		Run: &plan.RunSpec{Train: plan.TrainSpec{Steps: 100}}, Members: members("a", "me"), Checkpoint: consensus.Checkpoint{Step: 20, Generation: 3},
		Plan: plan.Plan{Generation: 3, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a", Holder: "me", Layers: plan.LayerRange{End: 1}}}}}},
	})
	c := &Checkpointer{Config: Config{Self: "me", Store: store, Fetcher: Fetcher{Self: "me", Store: store, Living: func() []plan.PeerID { return nil }}, Consensus: log, Log: slog.New(slog.DiscardHandler)}}
	if answer, err := c.hold(t.Context(), "a", []byte(`{"generation":3,"step":23,"chunks":["`+h.String()+`"]}`)); len(answer) > 0 || err != nil {
		t.Fatalf("%q, %v", answer, err)
	}
	if !again().HasChunk(h) {
		t.Error("a copy was acknowledged that the end of the process took along")
	}
}

// diskAt is a log that looks, when it is told something, whether a chunk is durable.
type diskAt struct {
	*fakeLog
	dir  string
	seen int // chunks in memory alone then
}

func (d *diskAt) Propose(ctx context.Context, e consensus.Entry) error {
	left, err := os.ReadDir(filepath.Join(d.dir, "tmp"))
	d.seen = len(left)
	return errors.Join(err, d.fakeLog.Propose(ctx, e))
}

// TestAWholeCopyIsDurable before the log counts it, also what a replica here has in memory for which the log does not name this node.
func TestAWholeCopyIsDurable(t *testing.T) {
	store, dir, h, _ := inMemory(t, "state")
	t.Cleanup(func() { store.Close() })
	r := newWholeRig(t, store)
	log := &diskAt{fakeLog: r.log, dir: dir}
	r.whole.Consensus = log
	r.state.Checkpoint = consensus.Checkpoint{Step: 10, Generation: 1, Layers: []consensus.LayerRef{{SizeBytes: 5, Chunks: []plan.Hash{h}, Holders: []plan.PeerID{"a"}}}}
	log.set(r.state)
	r.look(t, 10, nil)
	if l := log.State().Checkpoint.Layers[0]; !l.StoredBy("me") || log.seen > 0 {
		t.Errorf("the log was told of %+v with %d chunks in memory alone", l, log.seen)
	}
}

// TestWhatWasLostWithAProcessIsToldAgain: a member that was started again has loaded the layers, or is to hold copies of them. That the
// process before had them in memory says nothing of this one.
func TestWhatWasLostWithAProcessIsToldAgain(t *testing.T) {
	next := plan.Plan{Generation: 4, Start: 23, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "me", Holder: "b", Layers: plan.LayerRange{End: 1}}}}}}
	layer := consensus.LayerRef{Holders: []plan.PeerID{"b", "me"}, Unstored: []consensus.Process{{Peer: "me", ProcessEpoch: 4}, {Peer: "b", ProcessEpoch: 4}}}
	log := &mortal{}
	log.changed = make(chan struct{})
	state := consensus.State{Run: &plan.RunSpec{}, Epoch: 1, Plan: next, Members: members("b", "me"), Checkpoint: consensus.Checkpoint{Step: 23, Generation: 3, Layers: []consensus.LayerRef{layer}}}
	state.Members[0].ProcessEpoch, state.Members[1].ProcessEpoch = 5, 5
	log.set(state)
	store := emptyStore(t)
	saver := New(Config{Self: "me", Store: store, Fetcher: Fetcher{Store: store}, Consensus: log, Peers: log, Log: slog.New(slog.DiscardHandler)}).For(next)
	stepped := make(chan struct{})
	close(stepped)
	if err, want := saver.Settle(t.Context(), stepped), []string{"report 23 of 3: [me]", "copy of 23 to b", "report 23 of 3: [b]"}; err != nil || !slices.Equal(log.acts, want) {
		t.Errorf("%q, %v; want %q", log.acts, err, want)
	}
	log.acts = nil
	ctx, end := context.WithTimeout(t.Context(), time.Second)
	defer end()
	log.ended = end
	if err, want := saver.KeepCopies(ctx), []string{"copy of 23 to b", "report 23 of 3: [b]"}; err != nil || !slices.Equal(log.acts, want) {
		t.Errorf("%q, %v; want %q", log.acts, err, want)
	}
}

// TestALostLayerIsNotOfAllNodes: one that was lost with the only process that had it is still that node's in a manifest, and nobody else's.
func TestALostLayerIsNotOfAllNodes(t *testing.T) {
	state := consensus.State{Run: &plan.RunSpec{Run: "r"}, Members: []consensus.Member{{Peer: "b", ProcessEpoch: 4, State: consensus.Gone}, {Peer: "me", ProcessEpoch: 5, State: consensus.Active}}}
	state.Checkpoint.Layers = []consensus.LayerRef{
		{Holders: []plan.PeerID{"b"}, Unstored: []consensus.Process{{Peer: "b", ProcessEpoch: 4}}},
		{Layer: 1, Holders: []plan.PeerID{"b", "me"}, Unstored: []consensus.Process{{Peer: "b", ProcessEpoch: 4}}},
	}
	m := manifestOf(state)
	for i, want := range [][]plan.PeerID{{"b"}, {"me"}} {
		if got := m.Layers[i].Holders; !slices.Equal(got, want) {
			t.Errorf("layer %d is held by %v, want %v", i, got, want)
		}
	}
}
