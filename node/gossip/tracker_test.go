package gossip

import (
	"reflect"
	"testing"
	"time"

	"pnode/planner/plan"
)

func TestSilenceCountsFromTheFirstLook(t *testing.T) {
	tr, start := NewTracker(), time.Unix(1000, 0)
	if got := tr.Silent("a", start, start.Add(3*time.Second)); got != 3*time.Second {
		t.Errorf("a peer never heard is silent for %v, want 3s", got)
	}
	tr.Note(Heartbeat{Peer: "a"}, start.Add(2*time.Second))
	if got := tr.Silent("a", start, start.Add(3*time.Second)); got != time.Second {
		t.Errorf("a peer heard 1s ago is silent for %v", got)
	}
	if got := tr.Silent("a", start.Add(5*time.Second), start.Add(6*time.Second)); got != time.Second {
		t.Errorf("a new planner blames a peer for %v, want 1s", got)
	}
}

func TestOnlyWhoWasHeardHasAnAge(t *testing.T) {
	tr, start := NewTracker(), time.Unix(1000, 0)
	if _, heard := tr.Ago("a", start); heard {
		t.Error("a peer that was never heard has an age")
	}
	tr.Note(Heartbeat{Peer: "a"}, start)
	if got, heard := tr.Ago("a", start.Add(12*time.Second)); !heard || got != 12*time.Second {
		t.Errorf("heard 12 s ago: got %v, %v", got, heard)
	}
}

func TestStallIsTimedFromItsFirstReport(t *testing.T) {
	tr, start := NewTracker(), time.Unix(1000, 0)
	peers := []plan.PeerID{"a", "b", "unheard"}
	tr.Note(Heartbeat{Peer: "a", Stalled: 3, Reason: "lost b"}, start)
	tr.Note(Heartbeat{Peer: "a", Stalled: 3, Reason: "lost b"}, start.Add(2*time.Second))
	tr.Note(Heartbeat{Peer: "b"}, start)
	if s := tr.Stalled(peers, 3, start.Add(4*time.Second)); !reflect.DeepEqual(s, Stall{For: 4 * time.Second, Why: "lost b", By: []plan.PeerID{"a"}}) {
		t.Errorf("stalled: %+v, want 4s", s)
	}
	if s := tr.Stalled(peers, 4, start.Add(4*time.Second)); s.For != 0 {
		t.Errorf("generation 4 counts as stalled for %v", s.For)
	}
	tr.Note(Heartbeat{Peer: "a", Generation: 4}, start.Add(5*time.Second))
	if s := tr.Stalled(peers, 3, start.Add(6*time.Second)); s.For != 0 {
		t.Errorf("still stalled for %v after the peer went on", s.For)
	}
}

func TestOneThatLacksChunksIsEnough(t *testing.T) {
	tr, start := NewTracker(), time.Unix(1000, 0)
	tr.Note(Heartbeat{Peer: "a", Stalled: 3, Reason: "no chunks", Lacks: true}, start.Add(time.Second))
	tr.Note(Heartbeat{Peer: "b", Stalled: 3, Reason: "lost a"}, start)
	if s := tr.Stalled([]plan.PeerID{"a", "b"}, 3, start.Add(2*time.Second)); !s.Lacks || s.Why != "lost a" {
		t.Errorf("got %+v", s)
	}
}

// stagesOf returns a plan of one replica whose stages are those of peers, the last of which coordinates.
func stagesOf(g plan.Generation, peers ...plan.PeerID) plan.Plan {
	p := plan.Plan{Generation: g, Replicas: make([]plan.Pipeline, 1)}
	for _, peer := range peers {
		p.Replicas[0].Stages = append(p.Replicas[0].Stages, plan.Placement{Peer: peer})
	}
	return p
}

// TestNewestStepIsTheCoordinators: no other member can have a pause wait for a step that nobody has done.
func TestNewestStepIsTheCoordinators(t *testing.T) {
	tr, now := NewTracker(), time.Unix(1000, 0)
	p := stagesOf(3, "a", "b", "unheard", "d", "c")
	tr.Note(Heartbeat{Peer: "a", Generation: 3, Step: 9}, now)
	tr.Note(Heartbeat{Peer: "b", Generation: 3, Step: 1 << 39, StepNanos: 7}, now)
	tr.Note(Heartbeat{Peer: "c", Generation: 3, Step: 10, StepNanos: 5}, now)
	tr.Note(Heartbeat{Peer: "d", Generation: 2, Step: 40, StepNanos: 1}, now)
	if got := tr.Newest(p, now); got != 10 {
		t.Errorf("newest step %d, want the coordinator's 10", got)
	}
	tr.Note(Heartbeat{Peer: "a", Generation: 3, Step: 11}, now)
	if got := tr.Newest(p, now.Add(silentAfter+1)); got != 11 {
		t.Errorf("newest step %d without the coordinator, want the median member's 11", got)
	}
	if got := tr.StepTime(p); got != 5 {
		t.Errorf("a step takes %v, want the lower of two", got)
	}
}

// TestStagesOfOthersAreNotMeasured: a member can speak of its own stages alone, and once.
func TestStagesOfOthersAreNotMeasured(t *testing.T) {
	b := Heartbeat{Peer: "a", Stages: []StageTimes{{Stage: 1, ForwardNanos: 1}, {Stage: 0, ForwardNanos: 2}, {Stage: 0, ForwardNanos: 3}, {Stage: 7}, {Replica: 1}, {Replica: -1}}}
	if got := b.Measured(stagesOf(1, "a", "b")).Stages; len(got) != 1 || got[0].ForwardNanos != 2 {
		t.Errorf("measured %+v", got)
	}
}

func TestWhoAnswersIsNotSilent(t *testing.T) {
	tr, start := NewTracker(), time.Unix(1000, 0)
	tr.Note(Heartbeat{Peer: "a", Step: 7}, start)
	tr.Touch("a", start.Add(6*time.Second))
	if got := tr.Silent("a", start, start.Add(7*time.Second)); got != time.Second {
		t.Errorf("a peer that answered 1s ago is silent for %v", got)
	}
	if b, ok := tr.Last("a"); !ok || b.Step != 7 {
		t.Errorf("its heartbeat became %+v", b)
	}
}

// TestHeartbeatsOfAnotherLineage: they are signs of life, also when this node's log changes after they came.
func TestHeartbeatsOfAnotherLineage(t *testing.T) {
	log := plan.Partings{{Recovery: "r", Generation: 1}}
	now := time.Unix(1000, 0)
	said := func(b Heartbeat) Heartbeat {
		b.Peer, b.Step, b.Finished, b.Retained = "a", 7, 9, []RetainedStage{{Step: 7}}
		return b
	}
	for name, c := range map[string]struct {
		log   plan.Partings // of this node
		said  Heartbeat
		taken bool
	}{
		"before any recovery":             {nil, Heartbeat{Generation: 2}, true},
		"a generation before the parting": {log, Heartbeat{Generation: 1}, true},
		"of the lineage here":             {log, Heartbeat{Generation: 2, Lineage: "r"}, true},
		"of the one before":               {log, Heartbeat{Generation: 2}, false},
		"of one that is not known here":   {nil, Heartbeat{Generation: 2, Lineage: "r"}, false},
		"without a plan":                  {log, Heartbeat{}, true},
	} {
		tr, want := NewTracker(), Heartbeat{Peer: "a", Finished: 9}
		if c.taken {
			want = said(c.said)
		}
		tr.Follow(c.log)
		tr.Note(said(c.said), now)
		if got, _ := tr.Last("a"); !reflect.DeepEqual(got, want) || !tr.Heard("a").Equal(now) {
			t.Errorf("%s: %+v, heard at %v, want %+v", name, got, tr.Heard("a"), want)
		}
	}
	tr := NewTracker()
	tr.Note(said(Heartbeat{Generation: 2}), now)
	tr.Follow(log)
	if got, _ := tr.Last("a"); got.Generation != 0 || !tr.Heard("a").Equal(now) {
		t.Errorf("what was heard before the recovery was known: %+v", got)
	}
}
