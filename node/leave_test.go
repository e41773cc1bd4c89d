package node

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

func TestStopText(t *testing.T) {
	for want, got := range map[string]string{
		"stopping (Ctrl-C): the newest step (one takes 40 s) ends and is saved; after 2 min without that the run goes on from the checkpoint before": stopText("Ctrl-C", 12, true, 40*time.Second),
		"stopping (Ctrl-C): the newest step ends and is saved; after 2 min without that the run goes on from the checkpoint before":                  stopText("Ctrl-C", 0, true, 0),
		"stopping (SIGTERM): step 13 is being saved": stopText("SIGTERM", 13, false, time.Second),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestAFailedSampleIsToldOnce however often the run's end is proposed.
func TestAFailedSampleIsToldOnce(t *testing.T) {
	for _, want := range []error{nil, errors.New("out of memory")} {
		var last completion
		written, told := 0, []error{}
		for range 3 {
			last.sampleOnce(func() (string, error) { written++; return "text", want }, func(err error) { told = append(told, err) })
		}
		if written != 1 || last.sample != "text" || len(told) > 1 || (want != nil) != (len(told) == 1) {
			t.Errorf("written %d times as %q, told %v", written, last.sample, told)
		}
	}
}

// TestALeaverIsLonely only where too few voters are heard of, not where all are and elect nobody, as on busy machines.
func TestALeaverIsLonely(t *testing.T) {
	since := time.Unix(1000, 0)
	now := since.Add(time.Minute)
	three, four := []plan.PeerID{"a", "b", "c"}, []plan.PeerID{"a", "b", "c", "d"}
	for _, c := range []struct {
		self   plan.PeerID
		voters []plan.PeerID
		heard  []plan.PeerID
		now    time.Time
		want   bool
	}{
		{"a", four, []plan.PeerID{"b", "c", "d"}, now, false},
		{"a", four, []plan.PeerID{"b", "c"}, now, false},
		{"a", four, []plan.PeerID{"b"}, now, true},
		{"a", three, []plan.PeerID{"c"}, now, false},
		{"a", three, nil, now, true},
		{"a", three, nil, since.Add(lonelyTimeout), false}, // they may yet be heard of
		{"s", three, []plan.PeerID{"a", "b"}, now, false},  // no voter itself
		{"s", three, []plan.PeerID{"a"}, now, true},
		{"a", nil, nil, since.Add(lonelyTimeout), false}, // nobody's votes are known yet
		{"a", nil, nil, now, true},
	} {
		heard := gossip.NewTracker()
		for _, p := range c.heard {
			heard.Note(gossip.Heartbeat{Peer: p}, c.now.Add(-lonelyTimeout))
		}
		if got := fewVotersHeard(c.voters, c.self, heard, since, c.now); got != c.want {
			t.Errorf("%s of voters %v is lonely where it hears of %v at %s: %v, want %v", c.self, c.voters, c.heard, c.now.Sub(since), got, c.want)
		}
	}
}

// TestWhoIsAwaitedInAStop: the owners' nodes that are here and are to have the last checkpoint whole, until one has.
func TestWhoIsAwaitedInAStop(t *testing.T) {
	has := consensus.Checkpoint{Step: 9, Generation: 1, Layers: []consensus.LayerRef{{Layer: 0, Holders: []plan.PeerID{"o", "b"}}, {Layer: 1, Holders: []plan.PeerID{"b", "o"}}}}
	lacks := consensus.Checkpoint{Step: 9, Generation: 1, Layers: []consensus.LayerRef{has.Layers[0], {Layer: 1, Holders: []plan.PeerID{"b"}}}}
	members := []consensus.Member{{Peer: "b", State: consensus.Active}, {Peer: "o", State: consensus.Draining}, {Peer: "p", State: consensus.Gone}}
	all := []plan.PeerID{"b", "o", "p"}
	for name, c := range map[string]struct {
		made    consensus.Checkpoint
		here    []plan.PeerID
		copy    plan.WholeCopy
		awaited bool
		settled bool
	}{
		"it lacks a layer":                  {made: lacks, here: all, awaited: true},
		"it has all":                        {made: has, here: all, settled: true},
		"it says that it has all":           {made: lacks, here: all, copy: plan.WholeCopy{Step: 9, Generation: 1}, settled: true},
		"it has another generation's":       {made: lacks, here: all, copy: plan.WholeCopy{Step: 9, Generation: 2}, awaited: true},
		"it is to keep none":                {made: lacks, here: all, copy: plan.WholeCopy{Off: true}},
		"it cannot":                         {made: lacks, here: all, copy: plan.WholeCopy{Why: "the disk is full"}},
		"it is not here":                    {made: lacks, here: []plan.PeerID{"b"}},
		"nobody else is":                    {made: lacks, here: []plan.PeerID{"o"}},
		"nothing is saved":                  {here: all},
		"it has all, and nobody else is up": {made: has, here: []plan.PeerID{"o"}, settled: true},
	} {
		v := stopView{State: consensus.State{Owners: []plan.PeerID{"p", "o"}, Members: members, Checkpoint: c.made}, Copies: map[plan.PeerID]plan.WholeCopy{"o": c.copy}, Here: map[plan.PeerID]bool{}}
		for _, p := range c.here {
			v.Here[p] = true
		}
		awaited, settled := v.awaited()
		if settled != c.settled || slices.Equal(awaited, []plan.PeerID{"o"}) != c.awaited {
			t.Errorf("%s: awaited are %v, settled: %v", name, awaited, settled)
		}
	}
}
