package monitor

import (
	"testing"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

func TestWhereTheWholeModelIs(t *testing.T) {
	state := consensus.State{
		Checkpoint: consensus.Checkpoint{Step: 50}, Owners: []plan.PeerID{"o"},
		Members: []consensus.Member{{Peer: "a", Label: "ada"}, {Peer: "o", Label: "desk"}},
	}
	ages := map[plan.Step]time.Duration{50: time.Minute, 40: 2 * time.Minute}
	for name, c := range map[string]struct {
		copies map[plan.PeerID]plan.WholeCopy
		want   string
		step   plan.Step
		on     string
	}{
		"an owner before a newer one of another member": {
			map[plan.PeerID]plan.WholeCopy{"a": {Step: 50}, "o": {Step: 40, Next: 50, DoneBytes: 31, SizeBytes: 100}},
			"whole on desk at step 40, saved 2 min ago; the newest checkpoint, of step 50, is with several nodes; step 50 is on its way to desk: 31% of 100 bytes", 40, "desk",
		},
		"this node":         {map[plan.PeerID]plan.WholeCopy{"a": {Step: 50}, "o": {Off: true}}, "whole on this node at step 50, saved 1 min ago", 50, "this node"},
		"nobody":            {nil, "no node has all layers of a checkpoint yet", 0, ""},
		"nobody is to":      {map[plan.PeerID]plan.WholeCopy{"a": {Off: true}, "o": {Off: true}}, "its layers are with several nodes: owners' keep no whole one (--keep-whole off)", 0, ""},
		"no room":           {map[plan.PeerID]plan.WholeCopy{"o": {Why: "the disk is full"}}, "no node has all layers of a checkpoint yet; desk cannot keep it: the disk is full", 0, ""},
		"of an unknown age": {map[plan.PeerID]plan.WholeCopy{"o": {Step: 30}}, "whole on desk at step 30; the newest checkpoint, of step 50, is with several nodes", 30, "desk"},
	} {
		got := wholeView{State: state, Self: "a", Copies: c.copies, Ages: ages}.where()
		if got.Text != c.want || got.Step != c.step || got.On != c.on {
			t.Errorf("%s:\n got %+v\nwant %q, step %d on %q", name, *got, c.want, c.step, c.on)
		}
	}
	if got := (wholeView{}).where(); got != nil {
		t.Errorf("before the first checkpoint: %+v", got)
	}
}

// TestTheLogKnowsAWholeCopyFirst: a member that the log has as the holder of each layer has the newest checkpoint whole, before it says so.
func TestTheLogKnowsAWholeCopyFirst(t *testing.T) {
	layer := func(holders ...plan.PeerID) consensus.LayerRef { return consensus.LayerRef{Holders: holders} }
	for want, layers := range map[string][]consensus.LayerRef{
		"whole on desk at step 50": {layer("a", "o"), layer("o")},
		"whole on desk at step 40; the newest checkpoint, of step 50, is with several nodes": {layer("a"), layer("o")},
	} {
		state := consensus.State{
			Checkpoint: consensus.Checkpoint{Step: 50, Layers: layers}, Owners: []plan.PeerID{"o"},
			Members: []consensus.Member{{Peer: "a", Label: "ada", State: consensus.Active}, {Peer: "o", Label: "desk", State: consensus.Active}},
		}
		if got := (wholeView{State: state, Self: "a", Copies: map[plan.PeerID]plan.WholeCopy{"o": {Step: 40}}}).where(); got.Text != want {
			t.Errorf("got  %s\nwant %s", got.Text, want)
		}
	}
}

// TestAnOlderCheckpointIsWhole: a new one that nobody has whole does not hide it, nor that several nodes together have all of its layers.
func TestAnOlderCheckpointIsWhole(t *testing.T) {
	layer := func(holders ...plan.PeerID) consensus.LayerRef { return consensus.LayerRef{Holders: holders} }
	for want, older := range map[string][]consensus.LayerRef{
		"whole on desk at step 40; the newest checkpoint, of step 50, is with several nodes":  {layer("a", "o"), layer("o")},
		"no node has all layers of a checkpoint yet: those of step 40 are with several nodes": {layer("a"), layer("o")},
	} {
		state := consensus.State{
			Checkpoint: consensus.Checkpoint{Step: 50, Layers: []consensus.LayerRef{layer("a"), layer("gone")}},
			Older:      []consensus.Checkpoint{{Step: 40, Layers: older}}, Owners: []plan.PeerID{"o"},
			Members: []consensus.Member{{Peer: "a", Label: "ada", State: consensus.Active}, {Peer: "o", Label: "desk", State: consensus.Active}},
		}
		if got := (wholeView{State: state, Self: "a"}).where(); got.Text != want {
			t.Errorf("got  %s\nwant %s", got.Text, want)
		}
	}
}

// TestAWholeCopyOnAMachineThatIsGone counts where no living one has any, and is told as what it is.
func TestAWholeCopyOnAMachineThatIsGone(t *testing.T) {
	state := consensus.State{
		Checkpoint: consensus.Checkpoint{Step: 50}, Owners: []plan.PeerID{"o"},
		Members: []consensus.Member{{Peer: "a", Label: "ada", State: consensus.Active}, {Peer: "o", Label: "desk", State: consensus.Gone}},
	}
	const behind = "; the newest checkpoint, of step 50, is with several nodes"
	for want, copies := range map[string]map[plan.PeerID]plan.WholeCopy{
		"whole on desk, which is gone, at step 40, and on nobody who is here" + behind: {"o": {Step: 40, Next: 50, SizeBytes: 100}},
		"whole on ada at step 30" + behind:                                             {"a": {Step: 30}, "o": {Step: 40, Why: "the disk is full"}},
	} {
		if got := (wholeView{State: state, Self: "b", Copies: copies}).where(); got.Text != want {
			t.Errorf("got  %s\nwant %s", got.Text, want)
		}
	}
}
