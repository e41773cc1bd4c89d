package checkpointer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"pnode/checkpoint"
	"pnode/pipeline"
	"pnode/pipeline/model"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

func TestFixedWriterRefusesMoreThanItsBytes(t *testing.T) {
	dst := make([]byte, 4)
	w := &fixedWriter{rest: dst}
	if _, err := io.WriteString(w, "abc"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, "de"); err == nil {
		t.Fatal("wrote 5 bytes into 4")
	}
	if string(dst[:3]) != "abc" {
		t.Errorf("wrote %q", dst)
	}
}

// TestALayerThatNobodyHasIsTold: by machine, without hashes and peer IDs, which the log of this node has.
func TestALayerThatNobodyHasIsTold(t *testing.T) {
	store, err := checkpoint.Open(quickDir(t), checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	refused := errors.New("refused")
	var logged bytes.Buffer
	log := &told{state: consensus.State{Members: []consensus.Member{{Peer: "12D3KooWbob", Label: "bob"}, {Peer: "me", Label: "here"}, {Peer: "off", Label: "van", State: consensus.Gone}, {Peer: "way", Label: "wim", State: consensus.Draining}}}}
	c := New(Config{Self: "me", Consensus: log, Peers: log, Log: slog.New(slog.NewTextHandler(&logged, nil)), Store: store, Fetcher: Fetcher{
		Self: "me", Store: store, Living: func() []plan.PeerID { return nil },
		Fetch: func(context.Context, plan.PeerID, []plan.Hash, func(plan.Hash, []byte) error) error { return refused },
	}})
	for holders, from := range map[plan.PeerID]string{"12D3KooWbob": "bob or another node that is up", "me": "any node that is up"} {
		l := consensus.LayerRef{Layer: 3, SizeBytes: 1, Chunks: []plan.Hash{{1}}, Holders: []plan.PeerID{"me", holders}}
		err = c.Read(t.Context(), l, make([]byte, 1))
		want := "checkpointer: the state of layer 3 is damaged or missing here and cannot be had from " + from + "; start a node that holds a copy"
		if lack := (LackError{}); err == nil || err.Error() != want || !errors.As(err, &lack) || lack.LackedLayer() != 3 || !errors.Is(err, ErrNoChunks) {
			t.Errorf("told %v, want %s", err, want)
		}
	}
	err = c.Read(t.Context(), consensus.LayerRef{Layer: 4, SizeBytes: 1, Chunks: []plan.Hash{{1}}, Holders: []plan.PeerID{"off", "way"}}, make([]byte, 1))
	if want := "checkpointer: the state of layer 4 is not here and cannot be had from van (which is gone), wim (which is leaving) or another node that is up; start a node that holds a copy"; err == nil || err.Error() != want {
		t.Errorf("told %v, want %s", err, want)
	}
	if !strings.Contains(logged.String(), plan.Hash{1}.String()) || !strings.Contains(logged.String(), "12D3KooWbob: refused") {
		t.Errorf("logged %s", &logged)
	}
}

// TestStateOfAnotherSizeIsRefused: the matrices of a block have one vector of state with Muon, and are not read from a checkpoint with two.
func TestStateOfAnotherSizeIsRefused(t *testing.T) {
	run := plan.RunSpec{Model: model.Config{Vocab: 8, Context: 8, Blocks: 1, Heads: 1, Channels: 8}}
	const layer = 1
	two := consensus.LayerRef{Layer: layer, SizeBytes: int64(pipeline.LayerStateBytes(run, layer))}
	if err := checkSize(run, 40, two); err != nil {
		t.Errorf("adamw: %v", err)
	}
	run.Train.Optimizer = plan.Muon
	s := Checkpointer{Config: Config{Consensus: &told{state: consensus.State{Run: &run, Checkpoint: consensus.Checkpoint{Step: 40, Layers: []consensus.LayerRef{two}}}}}}
	err := s.For(plan.Plan{Start: 40}).Load(t.Context(), layer, pipeline.Whole, io.Discard)
	want := fmt.Sprintf("layer 1 of the checkpoint of step 40 has size_bytes %d, with optimizer muon it is %d: go on with the version of pnode that wrote it, or begin a new run from its weights with --init",
		two.SizeBytes, pipeline.LayerStateBytes(run, layer))
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}
