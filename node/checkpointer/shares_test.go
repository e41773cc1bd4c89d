package checkpointer

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lukechampine.com/blake3"

	"pnode/checkpoint"
	"pnode/pipeline"
	"pnode/pipeline/model"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// pipes returns the replicas of a plan whose stages have one layer each, by the peers of their stages.
func pipes(replicas ...[]plan.PeerID) (all []plan.Pipeline) {
	for _, peers := range replicas {
		var pipe plan.Pipeline
		for l, p := range peers {
			pipe.Stages = append(pipe.Stages, plan.Placement{Peer: p, Layers: plan.LayerRange{First: l, End: l + 1}})
		}
		all = append(all, pipe)
	}
	return all
}

// TestNoHolderSendsWhatAnotherCould: sources of all members of a plan, which each of them computes for itself.
func TestNoHolderSendsWhatAnotherCould(t *testing.T) {
	const small, large = 1, checkpoint.ChunkBytes + 1
	for _, c := range []struct {
		name    string
		next    []plan.Pipeline
		leaves  plan.PeerID
		sizes   []int64
		holders [][]plan.PeerID
		want    map[plan.PeerID]int // chunks that each source is asked for
	}{
		{
			"two replicas change layers", pipes([]plan.PeerID{"a", "b", "a", "b"}, []plan.PeerID{"d", "c", "d", "c"}), "",
			[]int64{small, small, small, small},
			[][]plan.PeerID{{"a", "c"}, {"a", "c"}, {"b", "d"}, {"b", "d"}},
			map[plan.PeerID]int{"a": 1, "b": 1, "c": 1, "d": 1},
		},
		{
			"one of the holders leaves", pipes([]plan.PeerID{"a", "b"}, []plan.PeerID{"e", "e"}), "c",
			[]int64{small, small},
			[][]plan.PeerID{{"c", "a"}, {"c", "b"}},
			map[plan.PeerID]int{"a": 1, "b": 1},
		},
		{
			"who leaves has a layer alone", pipes([]plan.PeerID{"a", "e"}), "c",
			[]int64{small, small},
			[][]plan.PeerID{{"a"}, {"c"}},
			map[plan.PeerID]int{"c": 1},
		},
		{
			"a whole chunk counts for more than the ends of two", pipes([]plan.PeerID{"e", "e", "e"}), "",
			[]int64{small, small, large},
			[][]plan.PeerID{{"a", "c"}, {"a", "c"}, {"a", "c"}},
			map[plan.PeerID]int{"a": 1, "c": 3},
		},
		{
			"all is where it belongs", pipes([]plan.PeerID{"a", "b"}), "",
			[]int64{small, small},
			[][]plan.PeerID{{"a"}, {"b", "a"}},
			map[plan.PeerID]int{},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := consensus.State{Members: members("a", "b", "c", "d", "e")}
			for i := range s.Members {
				if s.Members[i].Peer == c.leaves {
					s.Members[i].State = consensus.Draining
				}
			}
			var layers []consensus.LayerRef
			for l, size := range c.sizes {
				ref := consensus.LayerRef{Layer: l, SizeBytes: size, Holders: c.holders[l]}
				for i := range (size + checkpoint.ChunkBytes - 1) / checkpoint.ChunkBytes {
					ref.Chunks = append(ref.Chunks, plan.Hash{byte(l + 1), byte(i)})
				}
				layers = append(layers, ref)
			}
			got, next := map[plan.PeerID]int{}, plan.Plan{Replicas: c.next}
			for _, p := range next.Peers() {
				for _, from := range sourcesFor(p, lacksOf(next, layers, s)) {
					got[from]++
				}
			}
			if !maps.Equal(got, c.want) {
				t.Errorf("chunks by source: %v, want %v", got, c.want)
			}
		})
	}
}

// uplinks are the lines of members that have stored some state: each sends one chunk after the other.
type uplinks struct {
	lines map[plan.PeerID]chan struct{}
	state map[plan.Hash][]byte
	takes time.Duration // a chunk
	// slow takes ten times as long; asked are the questions to each.
	slow plan.PeerID

	mu    sync.Mutex // guards asked
	asked map[plan.PeerID]int
}

// fetch is the Fetch of a Fetcher.
func (u *uplinks) fetch(ctx context.Context, from plan.PeerID, hashes []plan.Hash, put func(plan.Hash, []byte) error) error {
	u.lines[from] <- struct{}{}
	defer func() { <-u.lines[from] }()
	u.mu.Lock()
	u.asked[from]++
	u.mu.Unlock()
	takes := u.takes
	if from == u.slow {
		takes *= 10
	}
	for _, h := range hashes {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := put(h, u.state[h]); err != nil {
			return err
		}
	}
	return nil
}

// loadingFleet has members of a plan load layers that holders have stored, of a megabyte each in the log's words.
type loadingFleet struct {
	uplinks
	log    *told
	stores map[plan.PeerID]*checkpoint.Store
}

func newLoadingFleet(t *testing.T, next plan.Plan, holders [][]plan.PeerID, peers ...plan.PeerID) *loadingFleet {
	f := &loadingFleet{stores: map[plan.PeerID]*checkpoint.Store{}}
	f.lines, f.state, f.asked, f.takes = map[plan.PeerID]chan struct{}{}, map[plan.Hash][]byte{}, map[plan.PeerID]int{}, time.Second
	made := consensus.Checkpoint{Step: next.Start}
	for l, of := range holders {
		data := []byte{byte(l)}
		h := plan.Hash(blake3.Sum256(data))
		f.state[h] = data
		made.Layers = append(made.Layers, consensus.LayerRef{Layer: l, SizeBytes: 1 << 20, Chunks: []plan.Hash{h}, Holders: of})
	}
	f.log = &told{state: consensus.State{Plan: next, Checkpoint: made, Members: members(peers...)}}
	for _, p := range peers {
		f.lines[p] = make(chan struct{}, 1)
		store, err := checkpoint.Open(quickDir(t), checkpoint.Options{Self: p})
		if err != nil {
			t.Fatal(err)
		}
		f.stores[p] = store
	}
	return f
}

func (f *loadingFleet) close() {
	for _, s := range f.stores {
		_ = s.Close()
	}
}

// saver returns what loads a member's stages.
func (f *loadingFleet) saver(p plan.PeerID) PlanSaver {
	peers := slices.Sorted(maps.Keys(f.stores))
	return New(Config{Self: p, Store: f.stores[p], Consensus: f.log, Peers: f.log, Log: slog.New(slog.DiscardHandler), Fetcher: Fetcher{
		Self: p, Store: f.stores[p], Living: func() []plan.PeerID { return peers }, Fetch: f.fetch,
	}}).For(f.log.state.Plan)
}

// load has members fetch layers at the same time, and returns how long that takes. All of it must come.
func (f *loadingFleet) load(t *testing.T, wanted map[plan.PeerID][]int) time.Duration {
	begun := time.Now()
	var loading sync.WaitGroup
	for p, layers := range wanted {
		loading.Go(func() {
			_, rest := f.saver(p).Fetch(t.Context(), layers)
			rest()
		})
	}
	loading.Wait()
	for p, layers := range wanted {
		for _, l := range layers {
			if !f.stores[p].HasChunk(f.log.state.Checkpoint.Layers[l].Chunks[0]) {
				t.Errorf("%s has not got layer %d", p, l)
			}
		}
	}
	return time.Since(begun)
}

// TestMembersLoadFromBothReplicasAtOnce: each of four members lacks a layer that two others have stored. All load in the time
// that one line needs for one layer.
func TestMembersLoadFromBothReplicasAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := plan.Plan{Generation: 4, Start: 23, Replicas: pipes([]plan.PeerID{"a", "b", "a", "b"}, []plan.PeerID{"d", "c", "d", "c"})}
		f := newLoadingFleet(t, next, [][]plan.PeerID{{"a", "c"}, {"a", "c"}, {"b", "d"}, {"b", "d"}}, "a", "b", "c", "d")
		defer f.close()
		if took := f.load(t, map[plan.PeerID][]int{"a": {2}, "b": {1}, "c": {3}, "d": {0}}); took >= 2*f.takes {
			t.Errorf("loading took %v, a layer takes a line %v", took, f.takes)
		}
	})
}

// TestALateSourceIsNotWaitedFor where another member has what it sends. Who alone has a layer is asked once and waited for.
func TestALateSourceIsNotWaitedFor(t *testing.T) {
	for _, c := range []struct {
		name    string
		holders [][]plan.PeerID
		least   time.Duration
		most    time.Duration
	}{
		{"another has it", [][]plan.PeerID{{"a", "c"}, {"a", "c"}}, 3 * time.Second, 5 * time.Second},
		{"nobody else has it", [][]plan.PeerID{{"a"}, {"c"}}, 10 * time.Second, 11 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				next := plan.Plan{Generation: 4, Start: 23, Replicas: pipes([]plan.PeerID{"e", "e"})}
				f := newLoadingFleet(t, next, c.holders, "a", "c", "e")
				defer f.close()
				f.slow = "c"
				if took := f.load(t, map[plan.PeerID][]int{"e": {0, 1}}); took < c.least || took >= c.most {
					t.Errorf("loading took %v, want %v to %v", took, c.least, c.most)
				}
				if f.asked["c"] != 1 {
					t.Errorf("the slow source was asked %d times", f.asked["c"])
				}
			})
		})
	}
}

// TestParametersComeBeforeMoments: a member has the parameters of two layers as soon as lines have carried the chunks with those, and
// moments when the others have come too.
func TestParametersComeBeforeMoments(t *testing.T) {
	run := &plan.RunSpec{Model: model.Config{Vocab: 8, Context: 8, Blocks: 2, Heads: 1, Channels: 180}}
	const layer = 1 // a block, as the next one
	bytes, params := pipeline.LayerStateBytes(*run, layer), 4*run.Model.LayerLen(layer)
	state := make([]byte, bytes)
	for i := range state {
		state[i] = byte(i >> 8)
	}
	for _, c := range []struct {
		name string
		cut  checkpoint.Cut
	}{
		{"a chunk ends with the parameters", cutOf(run, layer, int64(bytes))},
		{"none does", checkpoint.Cut{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				next := plan.Plan{Generation: 4, Start: 23, Replicas: pipes([]plan.PeerID{"a", "e", "e", "c"})}
				f := newLoadingFleet(t, next, nil, "a", "c", "e")
				defer f.close()
				f.log.state.Run = run
				for l := layer; l < layer+2; l++ {
					state[0] = byte(l) // no two layers have the same
					state[params] = byte(l)
					w := f.stores["a"].Begin()
					ref, err := consensus.LayerRef{Layer: l, Holders: []plan.PeerID{[]plan.PeerID{"a", "c"}[l-layer]}}, error(nil)
					if ref.Chunks, ref.SizeBytes, err = w.WriteLayer(t.Context(), strings.NewReader(string(state)), c.cut); err != nil || len(ref.Chunks) != 2 {
						t.Fatalf("%d chunks, %v", len(ref.Chunks), err)
					}
					for _, h := range ref.Chunks {
						if f.state[h], err = f.stores["a"].Chunk(h); err != nil {
							t.Fatal(err)
						}
					}
					w.Abort()
					f.log.state.Checkpoint.Layers = append(f.log.state.Checkpoint.Layers, ref)
				}
				load := func(s PlanSaver, of pipeline.Part) string {
					var got strings.Builder
					if err := s.Load(t.Context(), layer+1, of, &got); err != nil {
						t.Fatal(err)
					}
					return got.String()
				}
				begun := time.Now()
				s, rest := f.saver("e").Fetch(t.Context(), []int{layer, layer + 1})
				if got := load(s, pipeline.Parameters); got != string(state[:params]) {
					t.Errorf("%d bytes of parameters that are not the layer's %d", len(got), params)
				}
				if took := time.Since(begun); took != time.Second {
					t.Errorf("parameters are here after %v, want a second", took)
				}
				go rest()
				if got := load(s, pipeline.Moments); got != string(state[params:]) {
					t.Errorf("%d bytes of moments that are not the layer's %d", len(got), bytes-params)
				}
				if took := time.Since(begun); took != 2*time.Second {
					t.Errorf("moments are here after %v, want two seconds", took)
				}
			})
		})
	}
}
