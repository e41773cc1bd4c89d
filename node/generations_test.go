package node

import (
	"errors"
	"testing"
	"time"

	"pnode/checkpoint"
	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestAFullDiskSaysFromWhereTheRunGoesOn: the newest checkpoint, where there is one, and the command of an owner's node or another one.
func TestAFullDiskSaysFromWhereTheRunGoesOn(t *testing.T) {
	for want, c := range map[string]struct {
		step, newest plan.Step
		self         plan.PeerID
	}{
		"disk full; the checkpoint of step 7 is safe. When there is room go on with `pnode train --resume --dir /x`":                                         {7, 0, "owner"},
		"disk full; the checkpoint of step 7 is safe. When there is room go on with `pnode join --dir /x`":                                                   {7, 0, "member"},
		"disk full; the checkpoint of step 7 is stored, and steps 8 to 95 are computed again. When there is room go on with `pnode train --resume --dir /x`": {7, 95, "owner"},
		"disk full; no checkpoint was made yet. When there is room go on with `pnode train --resume --dir /x`":                                               {0, 0, "owner"},
		"disk full; no checkpoint was made yet, and steps 1 to 6 are computed again. When there is room go on with `pnode train --resume --dir /x`":          {0, 6, "owner"},
	} {
		state := consensus.State{Owners: []plan.PeerID{"owner"}, Checkpoint: consensus.Checkpoint{Step: c.step}}
		if err := withoutRoom(checkpoint.ErrDiskFull, state, c.newest, c.self, "/x"); err.Error() != want || !errors.Is(err, checkpoint.ErrDiskFull) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// TestWhoIsAwayWithACheckpoint: a machine that is heard of in a new process is away with what the one before had in memory, and nobody is with what is
// stored on machines that are heard of.
func TestWhoIsAwayWithACheckpoint(t *testing.T) {
	layer := func(l consensus.LayerRef, memory ...consensus.Process) consensus.LayerRef {
		l.Unstored = memory
		return l
	}
	b, me := consensus.LayerRef{Holders: []plan.PeerID{"b"}}, consensus.LayerRef{Holders: []plan.PeerID{"me"}}
	state := consensus.State{Members: []consensus.Member{
		{Peer: "b", Label: "barn", State: consensus.Active, ProcessEpoch: 5}, {Peer: "c", Label: "cart", State: consensus.Gone}, {Peer: "me", State: consensus.Active, ProcessEpoch: 5},
	}}
	l := &loop{Node: &Node{self: "me", heartbeats: gossip.NewTracker()}}
	l.heartbeats.Touch("b", time.Now())
	for name, c := range map[string]struct {
		of    consensus.LayerRef
		want  string
		lacks bool
	}{
		"stored":                     {b, "", false},
		"in memory":                  {layer(b, consensus.Process{Peer: "b", ProcessEpoch: 5}), "", false},
		"lost with a process":        {layer(b, consensus.Process{Peer: "b", ProcessEpoch: 4}), "barn", true},
		"lost with one of this node": {layer(me, consensus.Process{Peer: "me", ProcessEpoch: 4}), "", true},
		"gone":                       {consensus.LayerRef{Holders: []plan.PeerID{"c"}}, "cart", true},
	} {
		if got, lacks := l.away(state, consensus.Checkpoint{Layers: []consensus.LayerRef{c.of, me}}); got != c.want || lacks != c.lacks {
			t.Errorf("%s: %q is away, layers are lacking: %v", name, got, lacks)
		}
	}
}
