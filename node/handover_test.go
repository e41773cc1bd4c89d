package node

import (
	"errors"
	"io/fs"
	"syscall"
	"testing"
	"time"

	"pnode/pipeline/model"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestWhoCanOpenNoFilesIsBusy: it does not say of a chunk that it has none.
func TestWhoCanOpenNoFilesIsBusy(t *testing.T) {
	for why, want := range map[error]bool{syscall.EMFILE: true, syscall.ENFILE: true, syscall.ENOENT: false} {
		_, err := busyWithout(func(plan.Hash) ([]byte, error) { return nil, &fs.PathError{Op: "open", Path: "x", Err: why} })(plan.Hash{})
		if busy(err) != want || !errors.Is(err, why) {
			t.Errorf("%v: %v", why, err)
		}
	}
}

// TestHandover follows a node's way out from the notice to its last chunk.
func TestHandover(t *testing.T) {
	cfg, err := model.Preset("nano")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Blocks = 2 // four layers
	pipe := func(first, second plan.PeerID) plan.Pipeline {
		return plan.Pipeline{Stages: []plan.Placement{{Peer: first, Layers: plan.LayerRange{End: 2}}, {Peer: second, Layers: plan.LayerRange{First: 2, End: 4}}}}
	}
	running := consensus.State{
		Run:  &plan.RunSpec{Model: cfg, Train: plan.TrainSpec{Steps: 100}},
		Plan: plan.Plan{Generation: 3, Start: 20, Replicas: []plan.Pipeline{pipe("me", "b")}},
		Members: []consensus.Member{
			{Peer: "b", State: consensus.Active}, {Peer: "c", State: consensus.Active}, {Peer: "me", State: consensus.Draining},
		},
	}
	var own int64
	for layer := range 2 {
		own += int64(4 * (cfg.LayerLen(layer) + 2*cfg.TrainedLen(layer)))
	}
	twice := running
	twice.Plan.Replicas = []plan.Pipeline{pipe("me", "b"), pipe("c", "me")}
	saved := running
	saved.Checkpoint = consensus.Checkpoint{Step: 23, Generation: 3, Last: true}
	for layer := range 4 {
		holder := plan.PeerID("me")
		if layer >= 2 {
			holder = "b"
		}
		saved.Checkpoint.Layers = append(saved.Checkpoint.Layers, consensus.LayerRef{Layer: layer, SizeBytes: 6e6, Chunks: []plan.Hash{{byte(2 * layer)}, {byte(2*layer + 1)}}, Holders: []plan.PeerID{holder}})
	}
	settled := saved
	settled.Checkpoint.Layers = append([]consensus.LayerRef(nil), saved.Checkpoint.Layers...)
	for i := range settled.Checkpoint.Layers[:2] {
		settled.Checkpoint.Layers[i].Holders = []plan.PeerID{"me", "c"}
	}

	var h handover
	now := time.Now()
	give := h.count(func(plan.Hash) ([]byte, error) { return make([]byte, 3e6), nil })
	serve := func(chunks ...byte) {
		for _, c := range chunks {
			if _, err := give(plan.Hash{c}); err != nil {
				t.Fatal(err)
			}
		}
	}
	serve(0) // before anybody leaves
	h.begin()
	for _, c := range []struct {
		name   string
		state  consensus.State
		served []byte
		want   drainView
		text   string
	}{
		{"its state is its own", running, nil, drainView{Bytes: own, BytesPerS: 1e6}, "leaving (SIGTERM): no step is under way here; 6.2 MB to hand over once a plan without this node follows; 20 s left"},
		{"others have the same", twice, nil, drainView{BytesPerS: 1e6}, "leaving (SIGTERM): others have all that this node has; 20 s left"},
		{"it is saved", saved, nil, drainView{Step: 23, Bytes: 12e6, BytesPerS: 1e6}, "leaving (SIGTERM): handing over the state of step 23, 0.0 of 12.0 MB; 20 s left"},
		{"half has gone, some of it twice, and chunks of others", saved, []byte{0, 1, 1, 7}, drainView{Step: 23, Bytes: 12e6, Done: 6e6, BytesPerS: 3e6}, "leaving (SIGTERM): handing over the state of step 23, 6.0 of 12.0 MB at 3.0 MB/s, 2 s to go; 20 s left"},
		{"others say that they have it", settled, nil, drainView{Step: 23, Bytes: 12e6, Done: 12e6, BytesPerS: 3e6}, "leaving (SIGTERM): the state of step 23 is handed over, 12.0 MB; 20 s left"},
	} {
		serve(c.served...)
		if !h.begun.IsZero() {
			h.begun = now.Add(-2 * time.Second)
		}
		got := h.view(c.state, "me", 1e6, now)
		if got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
		got.Why, got.Deadline, got.Left = "SIGTERM", true, 20*time.Second
		if text := got.text(); text != c.text {
			t.Errorf("%s: %q, want %q", c.name, text, c.text)
		}
	}
}

// TestWhatALeavingNodeWaitsFor: no step is named as under way where none is.
func TestWhatALeavingNodeWaitsFor(t *testing.T) {
	for _, c := range []struct {
		view    drainView
		text    string
		settled bool
	}{
		{drainView{Bytes: 6e6, Steps: true}, "leaving (Ctrl-C): 6.0 MB to hand over once the newest step has ended and is saved", false},
		{drainView{Bytes: 6e6, Saving: true}, "leaving (Ctrl-C): 6.0 MB to hand over once the newest step is saved", false},
		{drainView{Bytes: 6e6}, "leaving (Ctrl-C): no step is under way here; 6.0 MB to hand over once a plan without this node follows", false},
		{drainView{Bytes: 6e6, Done: 1e6, Step: 3}, "leaving (Ctrl-C): handing over the state of step 3, 1.0 of 6.0 MB", false},
		{drainView{Bytes: 6e6, Done: 6e6, Step: 3}, "leaving (Ctrl-C): the state of step 3 is handed over, 6.0 MB", true},
		{drainView{Bytes: 6e6, Done: 6e6, Step: 3, Votes: true}, "leaving (Ctrl-C): the state of step 3 is handed over, 6.0 MB, and its vote follows: were this node killed before, they would wait for it", false},
		{drainView{Steps: true}, "leaving (Ctrl-C): others have all that this node has", true},
		{drainView{Steps: true, Lost: 5e6}, "leaving (Ctrl-C): others have all that this node has, but for the state of its replica's optimizer, 5.0 MB of which there is no copy: another replica's takes its place", true},
		{drainView{Steps: true, Votes: true}, "leaving (Ctrl-C): others have all that this node has, and its vote follows: were this node killed before, they would wait for it", false},
	} {
		c.view.Why = "Ctrl-C"
		if text := c.view.text(); text != c.text || c.view.settled() != c.settled {
			t.Errorf("%+v: %q, settled %v; want %q, %v", c.view, text, c.view.settled(), c.text, c.settled)
		}
	}
}

// TestWhoseVoteIsNeeded: of one or two voters each, of more nobody's alone while all are up.
func TestWhoseVoteIsNeeded(t *testing.T) {
	voters, all := []plan.PeerID{"a", "b", "c", "d", "e"}, func(plan.PeerID) bool { return true }
	for n, want := range []bool{false, true, true, false, false, false} {
		if got := needsVote(voters[:n], "a", all); got != want {
			t.Errorf("of %d voters: %t", n, got)
		}
	}
	if needsVote(voters[:2], "z", all) {
		t.Error("who has no vote is needed for it")
	}
	if !needsVote(voters[:3], "a", func(p plan.PeerID) bool { return p != "b" }) {
		t.Error("one of two others is dead, and no vote is needed")
	}
}

// TestTooLate: a node that cannot hand over in time does not have the others wait for it.
func TestTooLate(t *testing.T) {
	for _, c := range []struct {
		view drainView
		want bool
	}{
		{drainView{Bytes: 300e6, BytesPerS: 12e6, Deadline: true, Left: 30 * time.Second}, false},
		{drainView{Bytes: 400e6, BytesPerS: 12e6, Deadline: true, Left: 30 * time.Second}, true},
		{drainView{Bytes: 400e6, BytesPerS: 12e6}, false},                                // nobody names a time
		{drainView{Bytes: 400e6, Deadline: true, Left: 30 * time.Second}, false},         // no line was measured
		{drainView{Bytes: 0, BytesPerS: 12e6, Deadline: true, Left: time.Second}, false}, // others have it
	} {
		if got := c.view.tooLate(3 * time.Second); got != c.want {
			t.Errorf("%+v is too late: %v", c.view, got)
		}
	}
}

// TestWhatGoesWithALeavingReplica counts what it alone has for itself at the newest checkpoint.
func TestWhatGoesWithALeavingReplica(t *testing.T) {
	s := consensus.State{Members: []consensus.Member{{Peer: "b", State: consensus.Active}, {Peer: "c", State: consensus.Draining}, {Peer: "me", State: consensus.Draining}}}
	for _, holders := range [][]plan.PeerID{{"me"}, {"me", "b"}, {"b"}, {"me", "c"}} {
		s.Checkpoint.Own = append(s.Checkpoint.Own, consensus.OwnState{Layers: []consensus.LayerRef{{SizeBytes: 10, Holders: holders}}})
	}
	if got := aloneAt(s, "me"); got != 20 {
		t.Errorf("%d bytes", got)
	}
}
