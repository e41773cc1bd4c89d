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
		{drainView{Bytes: 6e6, Paused: true}, "leaving (Ctrl-C): the run is paused; 6.0 MB to hand over if enough of its voters answer within 7 s, else this node leaves without that", false},
		{drainView{Bytes: 6e6, Done: 1e6, Step: 3}, "leaving (Ctrl-C): handing over the state of step 3, 1.0 of 6.0 MB", false},
		{drainView{Bytes: 6e6, Done: 6e6, Step: 3}, "leaving (Ctrl-C): the state of step 3 is handed over, 6.0 MB", true},
		{drainView{Bytes: 6e6, Done: 6e6, Step: 3, Votes: true}, "leaving (Ctrl-C): the state of step 3 is handed over, 6.0 MB, and its vote follows: were this node killed before, they would wait for it", false},
		{drainView{Steps: true}, "leaving (Ctrl-C): others have all that this node has", true},
		{drainView{Steps: true, Lost: 5e6}, "leaving (Ctrl-C): others have all that this node has, but for the state of its replica's optimizer, 5.0 MB of which there is no copy: another replica's takes its place", true},
		{drainView{Steps: true, Round: true, From: 8, Lost: 5e6}, "leaving (Ctrl-C): the round after step 8 ends first, for others to have what this node has learned in it, but for the state of its replica's optimizer, 5.0 MB of which there is no copy: another replica's takes its place", false},
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

// TestWhatGoesWithALeavingReplica counts what it alone has for itself: what it computes has no copy, whoever has one of an older checkpoint, and then the plan
// that follows says what goes on.
func TestWhatGoesWithALeavingReplica(t *testing.T) {
	cfg, err := model.Preset("nano")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Blocks = 2 // four layers
	at := func(p plan.PeerID) plan.Pipeline {
		return plan.Pipeline{Stages: []plan.Placement{{Peer: p, Layers: plan.LayerRange{End: 4}}}}
	}
	local := &plan.Local{Rounds: plan.Rounds{Every: 4, Fragments: 1}, Codec: "f32"}
	moments := int64(0)
	for layer := range 4 {
		moments += int64(8 * cfg.TrainedLen(layer))
	}
	saved := func(step plan.Step, last bool, holders ...plan.PeerID) consensus.Checkpoint {
		c := consensus.Checkpoint{Step: step, Generation: 1, Last: last}
		for q, holders := range [][]plan.PeerID{holders, {"b"}} {
			o := consensus.OwnState{Replica: plan.Replica(q)}
			for layer := range 4 {
				o.Layers = append(o.Layers, consensus.LayerRef{Layer: layer, SizeBytes: 10, Holders: holders})
			}
			c.Own = append(c.Own, o)
		}
		return c
	}
	running := plan.Plan{Generation: 1, Local: local, Replicas: []plan.Pipeline{at("me"), at("b")}}
	next := func(g plan.Generation, own plan.Own) plan.Plan {
		p := plan.Plan{Generation: g, Start: 12, Local: local, Replicas: []plan.Pipeline{at("b"), at("c")}}
		p.Replicas[0].Own, p.Replicas[1].Own = &plan.Own{Replica: 1, Step: 12}, &own
		return p
	}
	alone, copied, others := plan.Own{Replica: 1, Step: 12, Copied: true}, plan.Own{Replica: 0, Step: 12}, plan.Plan{Generation: 1, Replicas: []plan.Pipeline{at("b")}}
	type seen struct {
		plan  plan.Plan
		saved consensus.Checkpoint
		want  int64
	}
	for name, states := range map[string][]seen{
		"no copy":                          {{running, saved(8, false, "me"), moments}, {running, saved(12, true, "me"), moments}, {next(2, alone), saved(12, true, "me"), moments}},
		"a copy of an older checkpoint":    {{running, saved(8, false, "me", "c"), moments}},
		"what it has is not saved in time": {{running, saved(12, true), moments}, {next(2, alone), saved(12, true), moments}},
		"a copy in time":                   {{running, saved(12, true, "me", "c"), 0}, {next(2, copied), saved(12, true, "me", "c"), 0}, {next(3, alone), saved(12, true, "me", "c"), 0}},
		"a copy with one who leaves":       {{running, saved(12, true, "me", "d"), moments}},
		"a copy after the next plan":       {{running, saved(8, false, "me"), moments}, {next(2, alone), saved(12, true, "me", "c"), moments}, {next(3, copied), saved(12, true, "me", "c"), moments}},
		"it computes nothing":              {{others, saved(8, false, "me"), 40}, {others, saved(8, false, "me", "d"), 40}, {others, saved(8, false, "me", "c"), 0}},
		"steps that all make are no one's": {{plan.Plan{Generation: 1, Replicas: running.Replicas}, saved(8, false, "me"), 0}},
	} {
		var h handover
		for i, s := range states {
			state := consensus.State{
				Run: &plan.RunSpec{Model: cfg, Train: plan.TrainSpec{Steps: 100}}, Plan: s.plan, Checkpoint: s.saved,
				Members: []consensus.Member{{Peer: "b", State: consensus.Active}, {Peer: "c", State: consensus.Active}, {Peer: "d", State: consensus.Draining}, {Peer: "me", State: consensus.Draining}},
			}
			if got := h.view(state, "me", 0, time.Now()).Lost; got != s.want {
				t.Errorf("%s, state %d: %d bytes, want %d", name, i, got, s.want)
			}
		}
	}
}
