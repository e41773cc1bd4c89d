package checkpointer

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"lukechampine.com/blake3"

	"pnode/pipeline"
	"pnode/pipeline/model"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// applied is a log that takes what is proposed.
type applied struct{ *fakeLog }

func (l applied) Propose(_ context.Context, e consensus.Entry) error {
	next, err := consensus.Apply(l.State(), e)
	if err == nil {
		l.set(next)
	}
	return err
}

// apartRig is a node with both replicas of a plan with local steps, after an outer step that asks for a checkpoint.
func apartRig(t *testing.T) (*Checkpointer, applied) {
	t.Helper()
	m, err := model.Preset("nano")
	if err != nil {
		t.Fatal(err)
	}
	m.Blocks = 1
	run := &plan.RunSpec{Run: "r", Model: m, Train: plan.TrainSpec{Steps: 60, KeepCheckpoints: 2, Sync: plan.SyncRule{Local: true}}}
	stage := []plan.Placement{{Peer: "me", Holder: "b", Layers: plan.LayerRange{End: 3}}}
	log := applied{&fakeLog{changed: make(chan struct{}), state: consensus.State{
		Run: run, Members: members("b", "me"),
		Plan:    plan.Plan{Run: "r", Generation: 3, Local: &plan.Local{Rounds: plan.Rounds{Every: 20, Fragments: 1}, Codec: "int8"}, Replicas: []plan.Pipeline{{Stages: stage}, {Stages: stage}}},
		Pending: []consensus.Checkpoint{{Step: 20, Generation: 3, Own: []consensus.OwnState{{Replica: 0}, {Replica: 1}}, Stream: plan.Stream{Fresh: 77}}},
	}}}
	store := emptyStore(t)
	return New(Config{
		Self: "me", Store: store, Consensus: log, Peers: deafPeers{}, Log: slog.New(slog.DiscardHandler),
		Fetcher: Fetcher{Self: "me", Store: store, Living: func() []plan.PeerID { return nil }},
	}), log
}

// part is a vector of a state: of a layer, a replica that is not 0 alone, and with a number.
func part(bytesOf, layer int, r plan.Replica, number int) string {
	return strings.Repeat(fmt.Sprintf("%d%d%d ", layer, r, number), bytesOf/4)
}

// saveApart saves what replicas have at a step.
func saveApart(t *testing.T, c *Checkpointer, step plan.Step, last bool, replicas ...plan.Replica) {
	t.Helper()
	now := c.Consensus.State()
	for _, r := range replicas {
		common := pipeline.State{Replica: r, Step: step, Last: last}
		own := common
		own.Own = true
		for l := range now.Run.Model.Layers() {
			params, trained := 4*now.Run.Model.LayerLen(l), 4*now.Run.Model.TrainedLen(l)
			common.Layers = append(common.Layers, pipeline.LayerState{Layer: l, Reader: strings.NewReader(part(params, l, 0, 1) + part(trained, l, 0, 2))})
			own.Layers = append(own.Layers, pipeline.LayerState{Layer: l, Reader: strings.NewReader(part(2*trained, l, r, 3) + part(trained, l, r, 4))})
		}
		saver := c.For(now.Plan)
		for _, s := range []pipeline.State{own, common} {
			if err := saver.Save(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestReplicasSaveAndLoadWhatTheyHave: what all have in common once, and what each has for itself. The next plan's replicas load what it says, and the
// manifests of newer checkpoints, and of those before, keep all of it.
func TestReplicasSaveAndLoadWhatTheyHave(t *testing.T) {
	c, log := apartRig(t)
	saveApart(t, c, 20, false, 1)
	now := log.State()
	if now.Checkpoint.Step != 20 || len(now.Checkpoint.Own[0].Layers) != 0 || len(now.Checkpoint.Own[1].Layers) != 3 {
		t.Fatalf("the log has %+v", now.Checkpoint)
	}
	for _, l := range now.Checkpoint.Layers {
		if !slices.Equal(l.Holders, []plan.PeerID{"me"}) {
			t.Errorf("layer %d is with %v", l.Layer, l.Holders)
		}
	}
	if err := c.Commit(now); err != nil {
		t.Fatal(err)
	}
	saveApart(t, c, 20, false, 0) // late
	if _, err := c.Store.Sweep(); err != nil {
		t.Fatal(err)
	}
	next := log.State().Plan
	next.Start, next.Replicas = 20, slices.Clone(next.Replicas)
	next.Replicas[0].Own, next.Replicas[1].Own = &plan.Own{Replica: 1, Step: 20}, &plan.Own{Replica: 0, Step: 20}
	check := func(when string) {
		t.Helper()
		for r := range next.Replicas {
			for l := range 3 {
				params, trained := 4*now.Run.Model.LayerLen(l), 4*now.Run.Model.TrainedLen(l)
				from := next.Replicas[r].Own.Replica
				for of, want := range map[pipeline.Part]string{
					pipeline.Parameters: part(params, l, 0, 1), pipeline.OuterMomentum: part(trained, l, 0, 2),
					pipeline.Moments: part(2*trained, l, from, 3), pipeline.Missed: part(trained, l, from, 4),
				} {
					var got bytes.Buffer
					if err := c.For(next).Of(plan.Replica(r)).Load(t.Context(), l, of, &got); err != nil || got.String() != want {
						t.Errorf("%s: replica %d layer %d part %d: %d bytes, want %d of replica %d: %v", when, r, l, of, got.Len(), len(want), from, err)
					}
				}
			}
		}
	}
	check("saved")
	state := log.State()
	state.Pending = []consensus.Checkpoint{{Step: 40, Generation: 3, Own: []consensus.OwnState{{Replica: 0}, {Replica: 1}}}}
	log.set(state)
	saveApart(t, c, 40, false, 0, 1)
	if err := c.Commit(log.State()); err != nil {
		t.Fatal(err)
	}
	if pins, err := c.Store.Pins(); err != nil || len(pins) != 2 { // of what the newest manifest may lack
		t.Errorf("pinned are %v, %v", pins, err)
	}
	check("a checkpoint later")
	m, err := c.Store.Manifest(20)
	if err != nil || len(m.Own) != 2 || m.Stream.Fresh != 77 {
		t.Errorf("the manifest of step 20 has own states of %d replicas, %v: %v", len(m.Own), m.Stream, err)
	}
	if report, err := c.Store.Verify(t.Context(), nil); err != nil || !report.OK() {
		t.Errorf("the store has %+v: %v", report, err)
	}
	if !HasWhole(c.Store, 20) || !HasWhole(c.Store, 40) {
		t.Error("checkpoints are not whole")
	}
	state = log.State()
	state.Checkpoint, state.Older = consensus.Checkpoint{}, nil // by the manifests
	log.set(state)
	check("without the log")
}

// TestWhatReplicasHaveInMemoryIsStored, their own states too, once the log can name them.
func TestWhatReplicasHaveInMemoryIsStored(t *testing.T) {
	c, log := apartRig(t)
	state := log.State()
	state.Members[1].ProcessEpoch = 4
	state.Checkpoint.Step = 10
	log.set(state)
	saveApart(t, c, 20, true, 0, 1)
	inMemory := func() (n int) {
		made := log.State().Checkpoint
		for _, o := range append(made.Own, consensus.OwnState{Layers: made.Layers}) {
			for _, l := range o.Layers {
				if !l.StoredBy("me") {
					n++
				}
			}
		}
		return n
	}
	if n := inMemory(); n != 9 {
		t.Fatalf("%d layers are in memory alone, want 9", n)
	}
	if err := c.Stored(t.Context(), log.State()); err != nil {
		t.Fatal(err)
	}
	if n := inMemory(); n != 0 {
		t.Errorf("%d layers are in memory alone, want none", n)
	}
}

// TestStateOfOtherSizesIsNotLoaded: what is neither with nor without what only some codecs and optimizers keep.
func TestStateOfOtherSizesIsNotLoaded(t *testing.T) {
	c, log := apartRig(t)
	saveApart(t, c, 20, false, 0, 1)
	state := log.State()
	next := state.Plan
	next.Start, next.Replicas = 20, []plan.Pipeline{{Own: &plan.Own{Step: 20}}}
	without := state
	without.Checkpoint.Layers, without.Checkpoint.Own = slices.Clone(state.Checkpoint.Layers), []consensus.OwnState{{Layers: slices.Clone(state.Checkpoint.Own[0].Layers)}}
	without.Checkpoint.Layers[1].SizeBytes = int64(4 * state.Run.Model.LayerLen(1))
	without.Checkpoint.Own[0].Layers[1].SizeBytes -= int64(4 * state.Run.Model.TrainedLen(1))
	log.set(without)
	for _, of := range []pipeline.Part{pipeline.OuterMomentum, pipeline.Missed} {
		var got bytes.Buffer
		if err := c.For(next).Load(t.Context(), 1, of, &got); err != nil || got.Len() > 0 {
			t.Errorf("part %d: %d bytes, %v", of, got.Len(), err)
		}
	}
	without.Checkpoint.Layers[1].SizeBytes++
	without.Checkpoint.Own[0].Layers[1].SizeBytes++
	log.set(without)
	for of := pipeline.Parameters; of <= pipeline.Missed; of++ {
		if err := c.For(next).Load(t.Context(), 1, of, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "size_bytes") {
			t.Errorf("part %d: %v", of, err)
		}
	}
	next.Replicas[0].Own = &plan.Own{Replica: 5, Step: 20}
	if err := c.For(next).Load(t.Context(), 1, pipeline.Moments, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "step 20") {
		t.Errorf("another replica's: %v", err)
	}
}

// TestTheWholeCopyHasOneReplicasState: the first whose state is held whole, and no other's.
func TestTheWholeCopyHasOneReplicasState(t *testing.T) {
	store := emptyStore(t)
	r := newWholeRig(t, store)
	r.commit(t, 10)
	made := &r.state.Checkpoint
	for q := range plan.Replica(3) {
		own := consensus.OwnState{Replica: q}
		for _, l := range made.Layers {
			if q == 0 && l.Layer == 0 { // it has not said all
				continue
			}
			data := []byte{10, byte(l.Layer), 1 + byte(q)}
			h := plan.Hash(blake3.Sum256(data))
			r.data[h] = data
			l.SizeBytes, l.Chunks, l.Holders = int64(len(data)), []plan.Hash{h}, []plan.PeerID{"b"}
			own.Layers = append(own.Layers, l)
		}
		made.Own = append(made.Own, own)
	}
	r.log.set(r.state)
	if err := r.whole.Commit(r.state); err != nil {
		t.Fatal(err)
	}
	r.look(t, 10, nil)
	for q, o := range r.log.State().Checkpoint.Own {
		for _, l := range o.Layers {
			if store.HasChunk(l.Chunks[0]) != (q == 1) || slices.Contains(l.Holders, "me") != (q == 1) {
				t.Errorf("layer %d of replica %d is with %v, here: %t", l.Layer, q, l.Holders, store.HasChunk(l.Chunks[0]))
			}
		}
	}
	if !HasWhole(store, 10) {
		t.Error("the copy is not whole")
	}
	r.state = r.log.State()
	r.commit(t, 20)
	r.look(t, 20, nil)
	for _, o := range made.Own {
		for _, l := range o.Layers {
			if store.HasChunk(l.Chunks[0]) {
				t.Errorf("layer %d of replica %d stays here for no newer copy", l.Layer, o.Replica)
			}
		}
	}
}

// TestOwnStatesAreFetchedAhead from who has them, of the replicas that are here, and without what a copy has no use for.
func TestOwnStatesAreFetchedAhead(t *testing.T) {
	c, log := apartRig(t)
	c.Fetcher.Living = func() []plan.PeerID { return []plan.PeerID{"b", "me"} }
	state := log.State()
	own := consensus.OwnState{Replica: 0}
	for l := range 3 {
		cut := ownCutOf(*state.Run, l, int64(3*4*state.Run.Model.TrainedLen(l)))
		ref := consensus.LayerRef{Layer: l, SizeBytes: cut.Bytes, Holders: []plan.PeerID{"b"}}
		for i := 0; cut.Begins(i) < cut.Bytes; i++ {
			ref.Chunks = append(ref.Chunks, plan.Hash{byte(l), byte(i), 1})
		}
		own.Layers = append(own.Layers, ref)
	}
	state.Checkpoint = consensus.Checkpoint{Step: 20, Generation: 3, Own: []consensus.OwnState{own}}
	log.set(state)
	next := state.Plan
	next.Start, next.Replicas = 20, []plan.Pipeline{
		{Own: &plan.Own{Step: 20}, Stages: []plan.Placement{{Peer: "b", Layers: plan.LayerRange{End: 3}}}},
		{Own: &plan.Own{Step: 20}, Stages: []plan.Placement{{Peer: "b", Layers: plan.LayerRange{End: 2}}, {Peer: "me", Layers: plan.LayerRange{First: 2, End: 3}}}},
	}
	for _, copied := range []bool{false, true} {
		next.Replicas[1].Own.Copied = copied
		shares, most := c.For(next).addOwn(nil, []int{0, 1, 2}), own.Layers[2].SizeBytes
		if copied {
			cut := ownCutOf(*state.Run, 2, most)
			most = 0
			for i := 0; cut.Begins(i) < cut.Head; i++ {
				most += cut.Chunk(i)
			}
		}
		if len(shares) != 1 || shares[0].holders[0] != "b" || shares[0].bytes != most || shares[0].chunks[0] != own.Layers[2].Chunks[0] {
			t.Errorf("copied: %t: %+v, want %d bytes of layer 2", copied, shares, most)
		}
	}
	if shares := c.For(next).addOwn(nil, []int{0, 1}); len(shares) > 0 {
		t.Errorf("what is in memory here is fetched: %+v", shares)
	}
}
