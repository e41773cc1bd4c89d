package node

import (
	"strings"
	"testing"
	"time"

	"pnode/checkpoint"
	"pnode/node/checkpointer"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestWhatCanBeReadOfANodeThatComesBack: the newest checkpoint that its folder has whole, which stays while it is read; else which layers are
// lacking, and where these were.
func TestWhatCanBeReadOfANodeThatComesBack(t *testing.T) {
	elsewhere := plan.Hash{9}
	for name, c := range map[string]struct {
		layers []consensus.LayerRef
		want   string // what helps; empty where it can be read
	}{
		"all is here, and no manifest": {[]consensus.LayerRef{{Layer: 0, Holders: []plan.PeerID{"b"}}}, ""},
		"nothing was saved":            {nil, "nothing has been saved yet"},
		"another one had a layer": {
			[]consensus.LayerRef{{Layer: 0, Holders: []plan.PeerID{"a"}}, {Layer: 1, Chunks: []plan.Hash{elsewhere}, Holders: []plan.PeerID{"a", "b"}}},
			"of the checkpoint of step 20 this folder lacks 1 layer (1), and nobody that has them answers: they were on barn. Start these nodes",
		},
		"another one had some of them": {
			[]consensus.LayerRef{{Layer: 0, Chunks: []plan.Hash{elsewhere}, Holders: []plan.PeerID{"a"}}, {Layer: 1, Chunks: []plan.Hash{elsewhere}, Holders: []plan.PeerID{"b"}}, {Layer: 2, Chunks: []plan.Hash{elsewhere}}, {Layer: 3, Chunks: []plan.Hash{elsewhere}, Holders: []plan.PeerID{"a", "b"}}},
			"lacks 4 layers (0, 1, 2, 3), and nobody that has them answers: no other node had 0, 2. Bring this folder back from a backup, and start barn, which had the rest",
		},
		"nobody else had it": {[]consensus.LayerRef{{Layer: 0, Chunks: []plan.Hash{elsewhere}, Holders: []plan.PeerID{"a"}}}, "no other node had them. Bring this folder back"},
	} {
		store, err := checkpoint.Open(t.TempDir(), checkpoint.Options{Self: "a"})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		here, err := store.PutChunk([]byte("a layer"))
		if err != nil {
			t.Fatal(err)
		}
		if len(c.layers) > 0 && c.layers[0].Chunks == nil {
			c.layers[0].Chunks = []plan.Hash{here}
		}
		state := consensus.State{Members: []consensus.Member{{Peer: "a", Label: "desk"}, {Peer: "b", Label: "barn"}}, Checkpoint: consensus.Checkpoint{Step: 20, Generation: 3, Layers: c.layers}}
		custody := custody{known: func() (consensus.State, bool) { return state, true }, whole: &checkpointer.Whole{Checkpointer: &checkpointer.Checkpointer{Config: checkpointer.Config{Self: "a", Store: store}}}}
		m, err := custody.Model()
		if c.want == "" && (err != nil || m.Step != 20 || len(m.Layers) != 1) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: step %d: %v", name, m.Step, err)
		}
		if read := custody.readers.steps(time.Now()); len(read) != len(m.Layers) {
			t.Errorf("%s: %d layers are read, the checkpoints that stay are %v", name, len(m.Layers), read)
		}
	}
}
