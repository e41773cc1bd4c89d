package monitor

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pnode/node/api"
	"pnode/node/gossip"
	"pnode/node/ledger"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestWhatANodeReached: after a restart the ledger knows steps since the checkpoint, which count where no plan has followed.
func TestWhatANodeReached(t *testing.T) {
	state := consensus.State{Run: &plan.RunSpec{}, Plan: plan.Plan{Generation: 3}, Checkpoint: consensus.Checkpoint{Step: 20}}
	for name, c := range map[string]struct {
		running  position
		recorded ledger.Position
		want     plan.Step
	}{
		"it runs":                                {position{3, 23}, ledger.Position{Generation: 3, Step: 22}, 23},
		"it was started again":                   {position{}, ledger.Position{Generation: 3, Step: 25}, 25},
		"its ledger is older":                    {position{}, ledger.Position{Generation: 3, Step: 18}, 20},
		"its newest steps were of a plan before": {position{}, ledger.Position{Generation: 2, Step: 25}, 20},
		"it recorded nothing":                    {position{}, ledger.Position{}, 20},
	} {
		if got := reached(state, c.running, c.recorded); got != c.want {
			t.Errorf("%s: step %d, want %d", name, got, c.want)
		}
	}
}

// ownLog holds the log of a node as its monitor reads it.
type ownLog struct {
	mu             sync.Mutex // guards the rest
	applied, whole consensus.State
	lost           time.Time
	reads          int // of all of the log
}

func (l *ownLog) State() consensus.State { return l.applied }

func (l *ownLog) Leader() (plan.PeerID, plan.Term, bool) { return "", 0, false }

func (l *ownLog) Quorum() consensus.Quorum { return consensus.Quorum{LostSince: l.lost} }

func (l *ownLog) Logged() (consensus.State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	return l.whole, nil
}

// TestANodeThatComesBackKnowsItsLog: all of it, read once, until somebody leads or the node has taken part; a newcomer has none. Status and
// the picture of the plan show it, the checkpoint's size without a look into the store, and no checkpoint as under way that the process before may have begun.
func TestANodeThatComesBackKnowsItsLog(t *testing.T) {
	whole := planned(t, "1f1b", 6)
	whole.Checkpoint.Step, whole.Plan.Generation = 20, 3
	whole.Checkpoint.Layers = []consensus.LayerRef{{SizeBytes: 5}, {SizeBytes: 7}}
	whole.Checkpoint.Own = []consensus.OwnState{{Replica: 1, Layers: []consensus.LayerRef{{SizeBytes: 100}}}}
	whole.Pending = []consensus.Checkpoint{{Step: 22, Generation: 3}}
	took := whole // part with this process
	took.Members = slices.Clone(whole.Members)
	took.Members[2].ProcessEpoch = 7
	now := time.Now()
	for name, c := range map[string]struct {
		log       *ownLog
		returning bool
		step      plan.Step
		reads     int
	}{
		"nobody leads":                           {&ownLog{whole: whole, lost: now}, true, 20, 1},
		"the leader has not said what counts":    {&ownLog{whole: whole}, true, 20, 1},
		"nobody leads, and the beginning counts": {&ownLog{applied: consensus.State{Run: whole.Run}, whole: whole, lost: now}, true, 20, 1},
		"the leader has said what counts":        {&ownLog{applied: whole}, false, 20, 0},
		"nobody leads any more":                  {&ownLog{applied: took, lost: now}, false, 20, 0},
		"a newcomer":                             {&ownLog{lost: now}, false, 0, 2 + 2}, // which has nothing to read
	} {
		m := watcher()
		m.Self, m.Consensus, m.Epoch = "c", c.log, 7
		m.Addrs, m.Kept, m.Recorded = func() []string { return nil }, func() plan.Step { return 0 }, func() ledger.Position { return ledger.Position{} }
		m.Heard = func(plan.PeerID) time.Duration { return 0 }
		m.Unheard = m.Heard
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				state, returning := m.Known()
				if returning != c.returning || state.Checkpoint.Step != c.step {
					t.Errorf("%s: step %d, returning %t", name, state.Checkpoint.Step, returning)
				}
			})
		}
		both.Wait()
		if err := m.Schedule(io.Discard); (err == nil) != (c.step > 0) {
			t.Errorf("%s: the picture of the plan: %v", name, err)
		}
		if s := m.Status(); s.Checkpoint.Step != c.step || (s.Checkpoint.SizeBytes == 112) != (c.step > 0) || (s.Checkpoint.Saving != nil) != (c.step > 0 && !c.returning) {
			t.Errorf("%s: status has %+v", name, s.Checkpoint)
		}
		if c.log.reads != c.reads {
			t.Errorf("%s: all of the log was read %d times, want %d", name, c.log.reads, c.reads)
		}
	}
}

// TestTheStateOfMembersSaysWhoIsSilent: the roster calls a member active until the leader strikes it out, and without a majority nobody does.
func TestTheStateOfMembersSaysWhoIsSilent(t *testing.T) {
	now := time.Now()
	silent := map[plan.PeerID]time.Duration{"dead": time.Hour, "draining and dead": time.Hour, "gone": time.Hour, "heard": time.Second, "self": time.Hour}
	m := watcher()
	m.Self, m.Heard = "self", func(p plan.PeerID) time.Duration { return silent[p] }
	state := consensus.State{Members: []consensus.Member{
		{Peer: "dead", State: consensus.Active},
		{Peer: "draining and dead", State: consensus.Draining},
		{Peer: "gone", State: consensus.Gone},
		{Peer: "heard", State: consensus.Joining},
		{Peer: "self", State: consensus.Active},
	}}
	want := map[plan.PeerID]string{"dead": "silent", "draining and dead": "silent", "gone": "gone", "heard": "joining", "self": "active"}
	for _, got := range m.members(state, "", now) {
		since := time.Time{}
		if want[got.Peer] == api.MemberSilent {
			since = now.Add(-time.Hour)
		}
		if got.State != want[got.Peer] || !got.SilentSince.Equal(since) {
			t.Errorf("%s is shown as %s since %v, want %s since %v", got.Peer, got.State, got.SilentSince, want[got.Peer], since)
		}
	}
}

// TestNothingIsUnderWayAtTheSilent: a status shows no checkpoint that only who coordinated the steps would end, nor a copy on its way to it.
func TestNothingIsUnderWayAtTheSilent(t *testing.T) {
	state := planned(t, "1f1b", 6)
	state.Checkpoint.Step, state.Plan.Generation = 20, 3
	state.Pending = []consensus.Checkpoint{{Step: 22, Generation: 3}}
	coordinator := state.Plan.Coordinator().Peer
	for age, under := range map[time.Duration]bool{time.Second: true, time.Minute: false} {
		m := watcher()
		m.Self, m.Consensus = "spare", &ownLog{applied: state}
		m.Addrs, m.Kept, m.Recorded = func() []string { return nil }, func() plan.Step { return 0 }, func() ledger.Position { return ledger.Position{} }
		m.Heard = func(plan.PeerID) time.Duration { return age }
		m.Unheard = m.Heard
		m.Beats.Note(gossip.Heartbeat{Peer: coordinator, Generation: 3, Whole: &plan.WholeCopy{Next: 22, DoneBytes: 1, SizeBytes: 2}}, time.Now().Add(-age))
		s := m.Status()
		if (s.Checkpoint.Saving != nil) != under || strings.Contains(s.Whole.Text, "on its way") != under {
			t.Errorf("%v after its last heartbeat: %+v, %q", age, s.Checkpoint.Saving, s.Whole.Text)
		}
	}
}

// lacked is an error of a layer that could not be had.
type lacked int

func (l lacked) Error() string { return "nobody has it" }

func (l lacked) LackedLayer() int { return int(l) }

// TestTheHeartbeatSaysWhichLayerIsLacking: where it is for want of chunks that the generation was given up.
func TestTheHeartbeatSaysWhichLayerIsLacking(t *testing.T) {
	m := watcher()
	m.slow, m.Links = gossip.NewSlowDowns(), func() []gossip.LinkRate { return nil }
	for _, lacks := range []bool{true, false} {
		m.SetStalled(3, fmt.Errorf("load: %w", lacked(4)), lacks, nil)
		if b := m.Heartbeat(); b.Lacks != lacks || (b.LacksLayer != nil && *b.LacksLayer == 4) != lacks {
			t.Errorf("%+v", b)
		}
	}
}

// TestSamplesAreThoseThatCount: all of each step's, and of local steps those that outer steps count; what was left of them before counts once it
// is taken.
func TestSamplesAreThoseThatCount(t *testing.T) {
	run := &plan.RunSpec{Train: plan.TrainSpec{Steps: 1000, Micros: 8, MicroBatch: 4}}
	local := &plan.Local{}
	back := plan.Stream{Given: []plan.MicroRange{{First: 320, End: 330}}, Fresh: 800} // of a replica that did not count
	for name, c := range map[string]struct {
		plan   plan.Plan
		merged *plan.Merged
		want   int64
	}{
		"every step":                  {plan.Plan{Generation: 2, Start: 40}, nil, 105 * 8 * 4},
		"local steps, none counted":   {plan.Plan{Generation: 2, Start: 40, Local: local}, nil, 40 * 8 * 4},
		"local steps that count":      {plan.Plan{Generation: 2, Start: 40, Local: local}, &plan.Merged{Generation: 2, To: 100}, 100 * 8 * 4},
		"one replica did not count":   {plan.Plan{Generation: 2, Start: 40, Local: local}, &plan.Merged{Generation: 2, To: 100, Stream: back}, (800 - 10) * 4},
		"steps of a plan before":      {plan.Plan{Generation: 3, Start: 104, Local: local, Stream: back}, &plan.Merged{Generation: 2, To: 108}, (800 - 10) * 4},
		"every step after local ones": {plan.Plan{Generation: 3, Start: 100, Stream: back}, &plan.Merged{Generation: 2, To: 100}, (800 - 10 + 5*8) * 4},
	} {
		if got := samplesOf(consensus.State{Run: run, Plan: c.plan, Merged: c.merged}, 105); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
