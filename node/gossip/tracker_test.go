package gossip

import (
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
	if s := tr.Stalled(peers, 3, start.Add(4*time.Second)); s != (Stall{For: 4 * time.Second, Why: "lost b"}) {
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

func TestNewestStepIsOfTheGeneration(t *testing.T) {
	tr, now := NewTracker(), time.Unix(1000, 0)
	tr.Note(Heartbeat{Peer: "a", Generation: 3, Step: 9}, now)
	tr.Note(Heartbeat{Peer: "b", Generation: 3, Step: 10}, now)
	tr.Note(Heartbeat{Peer: "c", Generation: 2, Step: 40}, now)
	tr.Note(Heartbeat{Peer: "d", Generation: 3, Step: 50}, now)
	if got := tr.Newest([]plan.PeerID{"a", "b", "c", "unheard"}, 3); got != 10 {
		t.Errorf("newest step %d, want 10", got)
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
