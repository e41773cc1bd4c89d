package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pnode/checkpoint"
	"pnode/node/config"
	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/consensus"
)

// TestAFinishedRunSaysWhoCanMoveItsEnd: this node where it is an owner's, else the machines that are.
func TestAFinishedRunSaysWhoCanMoveItsEnd(t *testing.T) {
	const begin = "node: the run is finished at step 26: train it further "
	for want, e := range map[string]finishedError{
		"with `pnode train --resume --steps 52 --dir /x`":                                                               {dir: "/x", owner: true, names: []string{"desk"}},
		"on desk or lab with `pnode train --resume --steps 52`, and come back with `pnode join --dir /x`":               {dir: "/x", names: []string{"desk", "lab"}},
		"on the machine that began it with `pnode train --resume --steps 52`, and come back with `pnode join --dir /x`": {dir: "/x"},
	} {
		if e.step = 26; e.Error() != begin+want+". Another run: `pnode train`" || !errors.Is(e, ErrFinished) {
			t.Errorf("got  %v\nwant %s%s", e, begin, want)
		}
	}
}

// TestOnlyOwnersMoveTheEnd: whoever else was asked to says who can, and whether it waits for that.
func TestOnlyOwnersMoveTheEnd(t *testing.T) {
	state := consensus.State{
		Run: &plan.RunSpec{Train: plan.TrainSpec{Steps: 26}}, Owners: []plan.PeerID{"a", "b"},
		Members: []consensus.Member{{Peer: "a", Label: "desk"}, {Peer: "b", Label: "lab"}},
	}
	const begin = "the run ends at step 26, and only its owner's machine, desk or lab, can move that: `pnode train --resume --steps 52` there; "
	if got := onlyOwnersExtend(state, 52); got != begin+"this node trains up to the end that there is" {
		t.Error(got)
	}
	if state.Finished = true; onlyOwnersExtend(state, 52) != begin+"this node waits for that" {
		t.Error(onlyOwnersExtend(state, 52))
	}
}

// TestAFinishedRunWhoseFolderIsDamaged: which of the layers that the folder held it has lost, where they are, and from where the run would go on.
func TestAFinishedRunWhoseFolderIsDamaged(t *testing.T) {
	for name, c := range map[string]struct {
		invited, alone bool
		damage         func(path string) error
		says           []string
	}{
		"whole":   {false, true, func(string) error { return nil }, []string{"finished at step 30: train it further with `pnode train --resume --steps 60"}},
		"damaged": {false, true, func(path string) error { return os.WriteFile(path, []byte("LAYER 1 of 30"), 0o600) }, []string{"lost 1 layer of it (1)", "pnode checkpoints verify --dir", "no other node had them", "goes on from step 20"}},
		"missing": {true, false, os.Remove, []string{"lost 1 layer of it (1)", "desk, which keeps it whole, has the model", "pnode train --resume --steps 60"}},
	} {
		dir := t.TempDir()
		founder, invited, _ := testMemberships(t, "desk", "lab")
		kept := founder
		if c.invited {
			kept = invited
		}
		if kept.Finished, kept.Admitted = 30, kept.Owners; c.alone {
			kept.Admitted = kept.Owners[:1]
		}
		own, err := admission.DecodeCapability(kept.Capability)
		if err := errors.Join(err, kept.save(dir)); err != nil {
			t.Fatal(err)
		}
		store, err := checkpoint.Open(storeDir(dir), checkpoint.Options{Self: own.Peer})
		if err != nil {
			t.Fatal(err)
		}
		var path string // of the newest checkpoint's layer
		for _, step := range []plan.Step{20, 30} {
			data := fmt.Appendf(nil, "layer 1 of %d", step)
			chunk, err := store.PutChunk(data)
			m := checkpoint.Manifest{Run: "r", Step: step, Generation: 1, Layers: []checkpoint.LayerState{{Layer: 1, SizeBytes: int64(len(data)), Chunks: []plan.Hash{chunk}, Holders: []plan.PeerID{own.Peer}}}}
			if step == 30 {
				m.Layers = append(m.Layers, checkpoint.LayerState{Layer: 2, SizeBytes: 5, Chunks: []plan.Hash{{9}}, Holders: []plan.PeerID{testPeer(1)}})
			}
			if err := errors.Join(err, store.Commit(m)); err != nil {
				t.Fatal(err)
			}
			path = filepath.Join(storeDir(dir), "chunks", chunk.String()[:2], chunk.String())
		}
		if err := errors.Join(store.Close(), c.damage(path)); err != nil {
			t.Fatal(err)
		}
		out, _ := told()
		err = resume(t.Context(), config.Config{Dir: dir}, kept, nil, out)
		for _, want := range c.says {
			if !errors.Is(err, ErrFinished) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
}
