package checkpointer

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"lukechampine.com/blake3"

	"pnode/checkpoint"
	"pnode/pipeline/model"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// wholeRig is an owner's node "me" without a part in the plan, beside two members that hold two layers each.
type wholeRig struct {
	log   *fakeLog
	whole *Whole
	state consensus.State
	data  map[plan.Hash][]byte
	// sent counts the chunks that each member has sent. meanwhile is called once, while the next one is under way.
	mu        sync.Mutex // guards what follows
	sent      map[plan.PeerID]int
	meanwhile func()
}

const rigSteps = 60

func newWholeRig(t *testing.T, store *checkpoint.Store) *wholeRig {
	t.Helper()
	m, err := model.Preset("nano")
	if err != nil {
		t.Fatal(err)
	}
	m.Blocks = 2
	r := &wholeRig{
		log:  &fakeLog{changed: make(chan struct{})},
		data: map[plan.Hash][]byte{}, sent: map[plan.PeerID]int{},
		state: consensus.State{Run: &plan.RunSpec{Run: "r", Model: m, Train: plan.TrainSpec{Steps: rigSteps, CheckpointEvery: 10, KeepCheckpoints: 1}}, Members: members("a", "b", "me"), Owners: []plan.PeerID{"me"}},
	}
	c := New(Config{Self: "me", Store: store, Consensus: r.log, Peers: deafPeers{}, Log: slog.New(slog.DiscardHandler), Fetcher: Fetcher{
		Self: "me", Store: store, Fetch: r.fetch, Living: func() []plan.PeerID { return []plan.PeerID{"a", "b", "me"} },
	}})
	r.whole = &Whole{Checkpointer: c, Keeps: func(consensus.State) bool { return true }}
	c.Awaited = func() []plan.Step { have := r.whole.Copy(); return []plan.Step{have.Step, have.Next} }
	return r
}

type deafPeers struct{}

func (deafPeers) Ask(context.Context, plan.PeerID, string, any) ([]byte, error) {
	return nil, errors.New("not asked for")
}

func (deafPeers) Serve(string, func(context.Context, plan.PeerID, []byte) ([]byte, error)) {}

// fetch sends chunks.
func (r *wholeRig) fetch(_ context.Context, peer plan.PeerID, hashes []plan.Hash, put func(plan.Hash, []byte) error) error {
	for _, h := range hashes {
		r.mu.Lock()
		r.sent[peer]++
		if r.meanwhile != nil {
			r.meanwhile()
			r.meanwhile = nil
		}
		data := r.data[h]
		r.mu.Unlock()
		if err := put(h, data); err != nil {
			return err
		}
	}
	return nil
}

// look has the node act on the newest state, and compares what it keeps then.
func (r *wholeRig) look(t *testing.T, want plan.Step, wrong error) {
	t.Helper()
	if err := r.whole.look(t.Context(), r.log.State(), 0); !errors.Is(err, wrong) {
		t.Fatalf("got %v, want %v", err, wrong)
	}
	if got := r.whole.Copy(); got != (plan.WholeCopy{Step: want, Generation: plan.Generation(min(want, 1))}) {
		t.Fatalf("whole is %+v, want step %d alone", got, want)
	}
}

// commit makes a checkpoint of a step, one chunk a layer, the newest.
func (r *wholeRig) commit(t *testing.T, step plan.Step) {
	t.Helper()
	made := consensus.Checkpoint{Step: step, Generation: 1}
	for layer := range r.state.Run.Model.Layers() {
		data := []byte{byte(step), byte(layer)}
		h := plan.Hash(blake3.Sum256(data))
		r.data[h] = data
		holder := []plan.PeerID{"a", "b"}[layer%2]
		made.Layers = append(made.Layers, consensus.LayerRef{Layer: layer, SizeBytes: int64(len(data)), Chunks: []plan.Hash{h}, Holders: []plan.PeerID{holder}})
	}
	if now := r.log.State(); now.Run != nil {
		r.state = now
	}
	if r.state.Checkpoint.Step > 0 {
		r.state.Older = []consensus.Checkpoint{r.state.Checkpoint}
	}
	r.state.Checkpoint = made
	r.log.set(r.state)
	if err := r.whole.Commit(r.state); err != nil {
		t.Fatal(err)
	}
}

// TestTheWholeCopyOnASlowLine: a checkpoint is brought to its end although newer ones are committed, then the newest of
// these; the run's last one ends a fetch that is under way, and what only older ones need goes.
func TestTheWholeCopyOnASlowLine(t *testing.T) {
	store := emptyStore(t)
	r := newWholeRig(t, store)
	r.commit(t, 10)
	r.meanwhile = func() { r.commit(t, 20); r.commit(t, 30) }
	r.look(t, 10, nil)
	if r.sent["a"] != 2 || r.sent["b"] != 2 {
		t.Errorf("the members sent %v chunks, want 2 of each", r.sent)
	}
	if !HasWhole(store, 10) {
		t.Error("the checkpoint that was on its way was dropped")
	}
	r.look(t, 30, nil)
	if HasWhole(store, 10) || !HasWhole(store, 30) {
		t.Error("want the layers of the newest checkpoint, and of no older one")
	}
	r.commit(t, 40)
	r.meanwhile = func() { r.commit(t, rigSteps) }
	r.look(t, 30, errReplaced)
	r.look(t, rigSteps, nil)
	if sent := r.sent["a"] + r.sent["b"]; sent > 4*3+3 {
		t.Errorf("%d chunks were sent: the fetch of step 40 went on", sent)
	}
}

// TestTheWholeCopyFollowsTheRunBack: what the run went back from counts no more, and the same step of a later generation is
// brought again.
func TestTheWholeCopyFollowsTheRunBack(t *testing.T) {
	store := emptyStore(t)
	r := newWholeRig(t, store)
	r.commit(t, 10)
	back := r.state
	r.commit(t, 20)
	r.look(t, 20, nil)
	r.whole.Keeps = func(consensus.State) bool { return false }
	r.log.set(back)
	if err := r.whole.look(t.Context(), back, 0); err != nil {
		t.Fatal(err)
	}
	if got := r.whole.Copy(); got != (plan.WholeCopy{Off: true}) {
		t.Errorf("whole is %+v after the run went back, want none", got)
	}
}

// TestWhyThereIsNoWholeCopyIsTold: the reason stands in what others are told until the checkpoint is here.
func TestWhyThereIsNoWholeCopyIsTold(t *testing.T) {
	store := emptyStore(t)
	r := newWholeRig(t, store)
	r.commit(t, 10)
	data := r.data
	r.data = nil
	if err := r.whole.look(t.Context(), r.log.State(), 0); !errors.Is(err, ErrNoChunks) {
		t.Fatalf("got %v, want a lack of chunks", err)
	}
	const want = "of step 10 it cannot get layer 0 from a, layer 1 from b, layer 2 from a, others; it tries again"
	if got := r.whole.Copy(); got.Why != want || got.Next != 0 || got.Step != 0 {
		t.Errorf("told is %+v, want the reason: %s", got, want)
	}
	r.data = data
	r.look(t, 10, nil)
}

// TestACheckpointThatWouldBeLateIsPassedOver: where the run's last checkpoint is committed before the one before it would be
// here, the line is left free for it.
func TestACheckpointThatWouldBeLateIsPassedOver(t *testing.T) {
	w := &Whole{took: 10 * time.Second, bytes: 1000, commits: commitClock{interval: 4 * time.Second}}
	state := consensus.State{Run: &plan.RunSpec{Train: plan.TrainSpec{Steps: 60, CheckpointEvery: 10}}}
	for step, want := range map[plan.Step]bool{40: false, 50: true, 55: true, 60: false} {
		state.Checkpoint.Step = step
		if got := w.late(state, 1000); got != want {
			t.Errorf("the checkpoint of step %d is late: %v, want %v", step, got, want)
		}
	}
	state.Checkpoint.Step = 50
	if w.late(state, 300) {
		t.Error("a checkpoint of which little is missing is late")
	}
	state.StopWanted = true
	if w.late(state, 1000) {
		t.Error("the checkpoint of a run that stops is late")
	}
}

// TestWhatOneSourceLacksComesFromAnother: a member that fails is asked no more; others have its chunks.
func TestWhatOneSourceLacksComesFromAnother(t *testing.T) {
	store := emptyStore(t)
	var layers []consensus.LayerRef
	data := map[plan.Hash][]byte{}
	for layer := range 5 {
		bytes := []byte{byte(layer)}
		h := plan.Hash(blake3.Sum256(bytes))
		data[h] = bytes
		layers = append(layers, consensus.LayerRef{Layer: layer, SizeBytes: 1, Chunks: []plan.Hash{h}, Holders: []plan.PeerID{"bad", "gone"}})
	}
	var mu sync.Mutex
	var asked []plan.PeerID
	f := Fetcher{Self: "me", Store: store, Living: func() []plan.PeerID { return []plan.PeerID{"bad", "good"} }}
	f.Fetch = func(_ context.Context, peer plan.PeerID, hashes []plan.Hash, put func(plan.Hash, []byte) error) error {
		mu.Lock()
		asked = append(asked, peer)
		mu.Unlock()
		if peer == "bad" {
			return put(hashes[0], []byte("changed on its way"))
		}
		for _, h := range hashes {
			if err := put(h, data[h]); err != nil {
				return err
			}
		}
		return nil
	}
	first := func(int) int64 { return 1 }
	if err := f.Gather(t.Context(), layers, first, store.PutNamed); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(asked[:1], []plan.PeerID{"bad"}) || !slices.Contains(asked, "good") {
		t.Errorf("asked were %v", asked)
	}
	full := errors.New("no room")
	if err := f.Gather(t.Context(), layers[:1], first, func(plan.Hash, []byte) error { return full }); err != nil {
		t.Errorf("with all of it here: %v", err)
	}
}

// TestTheWholeCopyLetsAPlanBegin: it waits while members fetch what a plan begins with, and no longer than it has to.
func TestTheWholeCopyLetsAPlanBegin(t *testing.T) {
	store := emptyStore(t)
	r := newWholeRig(t, store)
	changing := true
	r.whole.Changing = func(consensus.State) bool { return changing }
	r.commit(t, 10)
	r.look(t, 0, errChanging)
	if len(r.sent) > 0 {
		t.Errorf("the members sent %v chunks", r.sent)
	}
	changing = false
	r.look(t, 10, nil)
	changing = true
	r.commit(t, 20)
	r.look(t, 10, errChanging)
	if err := r.whole.look(t.Context(), r.log.State(), changePatience); err != nil || r.whole.Copy().Step != 20 {
		t.Errorf("%v, the copy is %+v after %v", err, r.whole.Copy(), changePatience)
	}
}

// TestAWholeCopyIsToldWhenItsNodeIsBack: the log takes no word of who is gone.
func TestAWholeCopyIsToldWhenItsNodeIsBack(t *testing.T) {
	r := newWholeRig(t, emptyStore(t))
	r.commit(t, 10)
	gone, back := r.log.State(), r.log.State().Members
	gone.Members = slices.Clone(back)
	gone.Members[2].State = consensus.Gone
	r.log.set(gone)
	r.look(t, 10, nil)
	gone.Members = back
	r.log.set(gone)
	r.look(t, 10, nil)
	for _, l := range r.log.State().Checkpoint.Layers {
		if !slices.Contains(l.Holders, "me") {
			t.Errorf("layer %d is with %v", l.Layer, l.Holders)
		}
	}
}

// TestTheWholeCopyLeavesANewerCheckpoint: while a checkpoint comes, a newer one is committed, and a stage here fetches a layer
// of it that the log has with others alone.
func TestTheWholeCopyLeavesANewerCheckpoint(t *testing.T) {
	store := emptyStore(t)
	r := newWholeRig(t, store)
	r.commit(t, 10)
	var fetched plan.Hash
	r.meanwhile = func() {
		r.commit(t, 20)
		fetched = r.state.Checkpoint.Layers[1].Chunks[0]
		if err := store.PutNamed(fetched, r.data[fetched]); err != nil {
			t.Error(err)
		}
	}
	r.look(t, 10, nil)
	if !store.HasChunk(fetched) {
		t.Error("the layer was dropped with those of older checkpoints")
	}
}

// TestTheLogCountsAWholeCopy: as a holder of each layer, for as long as all of them are here; the manifest says so, too.
func TestTheLogCountsAWholeCopy(t *testing.T) {
	store := emptyStore(t)
	r := newWholeRig(t, store)
	holds := func(c consensus.Checkpoint, want bool) {
		t.Helper()
		m, err := store.Manifest(c.Step)
		if err != nil {
			t.Fatal(err)
		}
		for i, l := range c.Layers {
			here := !slices.ContainsFunc(l.Chunks, func(h plan.Hash) bool { return !store.HasChunk(h) })
			if slices.Contains(l.Holders, "me") != want || slices.Contains(m.Layers[i].Holders, "me") != want || here != want {
				t.Errorf("step %d, layer %d: the log has it with %v, the manifest with %v, here: %v; want %v", c.Step, i, l.Holders, m.Layers[i].Holders, here, want)
			}
		}
	}
	r.commit(t, 10)
	holds(r.log.State().Checkpoint, false)
	r.look(t, 10, nil)
	holds(r.log.State().Checkpoint, true)
	r.commit(t, 20)
	holds(r.log.State().Older[0], true)
	r.look(t, 20, nil)
	holds(r.log.State().Checkpoint, true)
	holds(r.log.State().Older[0], false)
	again := newWholeRig(t, store) // started again
	again.log.set(r.log.State())
	again.whole.Consensus = again.log
	again.look(t, 20, nil)
	holds(again.log.State().Checkpoint, true)
}

// TestADamagedChunkIsFetchedAgain: all chunks here are spoilt on the disk; each is had from another member when it is read.
func TestADamagedChunkIsFetchedAgain(t *testing.T) {
	dir := quickDir(t)
	store, err := checkpoint.Open(dir, checkpoint.Options{Self: "me"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	r := newWholeRig(t, store)
	r.commit(t, 10)
	r.look(t, 10, nil)
	spoilt := 0
	if err := filepath.WalkDir(filepath.Join(dir, "chunks"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		spoilt++
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		data[len(data)/2] ^= 1
		return os.WriteFile(path, data, 0o600)
	}); err != nil {
		t.Fatal(err)
	}
	layers := r.log.State().Checkpoint.Layers
	if spoilt < len(layers) {
		t.Fatalf("%d files spoilt for %d layers", spoilt, len(layers))
	}
	for _, l := range layers {
		got := make([]byte, l.SizeBytes)
		if err := r.whole.Read(t.Context(), l, got); err != nil {
			t.Fatal(err)
		}
		var want []byte
		for _, h := range l.Chunks {
			want = append(want, r.data[h]...)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("layer %d is other than what was saved", l.Layer)
		}
	}
}
