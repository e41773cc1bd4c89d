package monitor

import (
	"errors"
	"testing"

	"pnode/node/api"
	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestProfilesOfARun: all devices and measured lines of the living, what a step takes by plan and by measurement, and what the plan
// uses.
func TestProfilesOfARun(t *testing.T) {
	if _, err := Profiles(consensus.State{}, gossip.NewTracker()); !errors.Is(err, api.ErrNotReady) {
		t.Errorf("before the run is known: %v", err)
	}
	state, beats := planned(t, "1f1b", 6), gossip.NewTracker()
	gone := consensus.Member{Peer: "gone", State: consensus.Gone, Profile: state.Members[0].Profile}
	idle := consensus.Member{Peer: "idle", State: consensus.Active, Profile: state.Members[0].Profile}
	idle.Profile.Links = []plan.LinkProfile{{Peer: "gone", BytesPerS: 1}}
	state.Members = append(state.Members, gone, idle)
	all, err := Profiles(state, beats)
	if err != nil {
		t.Fatal(err)
	}
	// a has measured lines to the other two, b to c; the way back of what the plan uses is there as well, known by the way there.
	if len(all.Devices) != 4 || len(all.Links) != 12 {
		t.Fatalf("%d devices and %d lines: %+v", len(all.Devices), len(all.Links), all)
	}
	used := 0
	for _, l := range all.Links {
		// Nobody has measured a line of the idle one, which plans then take for no better than its one to who is gone.
		assumed := l.From == "idle" || l.To == "idle"
		if l.From == "gone" || l.To == "gone" || l.Estimated != assumed || assumed && l.BytesPerS != 1 || !assumed && l.BytesPerS != 3_125_000 {
			t.Errorf("a line %+v", l)
		}
		if l.Used {
			used++
		}
	}
	if used != 4 {
		t.Errorf("%d lines are used, want both directions of two", used)
	}
	for _, d := range all.Devices {
		switch {
		case d.CountedPermille != 1000:
			t.Errorf("plans count on %d of %s", d.CountedPermille, d.Peer)
		case d.Peer == "idle" && (len(d.Layers) > 0 || d.PlannedMS != 0):
			t.Errorf("who has no part has %v, %v ms", d.Layers, d.PlannedMS)
		case d.Peer != "idle" && (len(d.Layers) != 1 || d.PlannedMS <= 0 || d.MeasuredMS != 0):
			t.Errorf("%s has %v, planned %v ms, measured %v ms before any step", d.Peer, d.Layers, d.PlannedMS, d.MeasuredMS)
		}
	}
}
