package gossip

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pnode/pipeline/meeting"
	"pnode/planner/holders"
	"pnode/planner/plan"
)

// TestHeartbeatsAreBounded: a heartbeat has room for maxStages, of which none is told more, and no
// reader takes more.
func TestHeartbeatsAreBounded(t *testing.T) {
	stages := make([]StageTimes, maxStages+1)
	for i := range stages {
		stages[i] = StageTimes{Stage: plan.Stage(i), ForwardNanos: 1e12, BackwardNanos: 1e12, WaitNanos: 1e12, UpdateNanos: 1e12}
	}
	links := make([]LinkRate, maxRates)
	for i := range links {
		links[i] = LinkRate{
			Peer: plan.PeerID(strings.Repeat("x", 52)), BytesPerS: 1e12, RTTNanos: 1e12, JitterNanos: 1e12, Transport: plan.WebSocket,
			Reason: strings.Repeat("é", maxLinkReasonBytes),
		}
	}
	links[0].Reason = "two\nlines"
	spares := make([]Spare, maxSpares+1)
	for i := range spares {
		spares[i] = Spare{Peer: plan.PeerID(strings.Repeat("x", 52)), WithNanos: 1e12, WithoutNanos: 1e12}
	}
	full := Heartbeat{Peer: "a", Spares: &Spares{Members: spares}, Hints: &Hints{Texts: slices.Repeat([]string{strings.Repeat("é", maxHintBytes)}, maxHints+1)}, Reason: strings.Repeat("é", maxReasonBytes), Stages: stages, Links: links}
	b, err := decodeHeartbeat(full.Encode())
	if err != nil || len(b.Stages) != maxStages || !utf8.ValidString(b.Reason) || len(b.Reason) != maxReasonBytes {
		t.Errorf("%d stages and a reason of %d bytes: %v", len(b.Stages), len(b.Reason), err)
	}
	if h := b.Hints.Texts; len(h) != maxHints || len(h[0]) != maxHintBytes {
		t.Errorf("%d hints, one of %d bytes", len(h), len(h[0]))
	}
	if l := b.Links[1]; l.Transport != plan.WebSocket || len(l.Reason) != maxLinkReasonBytes || b.Links[0].Reason != "two lines" || len(links[1].Reason) <= maxLinkReasonBytes {
		t.Errorf("links %+v", b.Links[:2])
	}
	more := Heartbeat{Peer: "a", Links: make([]LinkRate, maxRates+1)}
	if _, err := decodeHeartbeat(more.Encode()); !errors.Is(err, errBadMessage) {
		t.Errorf("more links than there is room for: %v", err)
	}
	if _, err := decodeHeartbeat([]byte(`{"peer":"a","stages":[` + strings.Repeat("{},", maxStages) + `{}]}`)); !errors.Is(err, errBadMessage) {
		t.Errorf("more stages than there is room for: %v", err)
	}
}

// TestWhatAHeartbeatIsMadeOfStays: numbers are cut in the message alone.
func TestWhatAHeartbeatIsMadeOfStays(t *testing.T) {
	cadence, link := holders.Cadence{EveryNanos: maxNanos + 1, Why: holders.ForReplay}, LinkRate{Peer: "b", RTTNanos: maxNanos + 1}
	b := Heartbeat{Peer: "a", Cadence: &cadence, Links: []LinkRate{link}}
	sent, err := decodeHeartbeat(b.Encode())
	if err != nil || sent.Cadence.EveryNanos != maxNanos || sent.Links[0].RTTNanos != maxNanos {
		t.Errorf("sent is %+v, %v", sent, err)
	}
	if cadence.EveryNanos != maxNanos+1 || b.Links[0] != link {
		t.Errorf("the heartbeat was changed: %+v, %+v", cadence, b.Links[0])
	}
}

// What one member says of another is shown to people: it is bounded, and printable.
func TestFaultsInHeartbeatsAreBounded(t *testing.T) {
	long := Heartbeat{Peer: "a", Fault: &plan.Fault{Accused: "b", Kind: plan.BadFrame, Detail: "\x1b[2J" + strings.Repeat("ö", plan.MaxFaultBytes)}}
	b, err := decodeHeartbeat(long.Encode())
	if err != nil || len(b.Fault.Detail) > plan.MaxFaultBytes || !utf8.ValidString(b.Fault.Detail) || strings.Contains(b.Fault.Detail, "\x1b") {
		t.Errorf("%+v: %v", b.Fault, err)
	}
	for _, fault := range []string{
		`{"accused":"","kind":"frame","step":1,"detail":""}`,
		`{"accused":"` + strings.Repeat("x", 200) + `","kind":"frame","step":1,"detail":""}`,
		`{"accused":"b","kind":"mood","step":1,"detail":""}`,
		`{"accused":"b","kind":"word","step":1,"detail":""}`, // a leader's to say
		`{"accused":"b","kind":"frame","step":1,"detail":"\u001b[2J"}`,
		`{"accused":"b","kind":"frame","step":1,"detail":"` + strings.Repeat("x", plan.MaxFaultBytes+1) + `"}`,
	} {
		if _, err := decodeHeartbeat([]byte(`{"peer":"a","fault":` + fault + `}`)); !errors.Is(err, errBadMessage) {
			t.Errorf("%.60s: %v", fault, err)
		}
	}
}

func FuzzDecodeHeartbeat(f *testing.F) {
	f.Add(Heartbeat{Peer: "a", Phase: "training", Generation: 2, Step: 7, Loss: 3.5, Stages: []StageTimes{{Stage: 1}}}.Encode())
	f.Add(Heartbeat{Peer: "a", Stalled: 2, Fault: &plan.Fault{Accused: "b", Kind: plan.BadTensor, Step: 7, Detail: "3 values of 64 are not finite"}}.Encode())
	f.Add(Heartbeat{Peer: "a", Generation: 2, HandedIn: []HandedIn{{Generation: 2, From: 50, Replica: 1, Steps: 49, Lacks: []plan.Replica{0, 63}}}, Inner: []InnerStep{{Replica: 1, Step: 99, Loss: 3.5}}}.Encode())
	f.Add(Heartbeat{Peer: "a", Generation: 2, Met: []Met{{Generation: 2, From: 50, Stages: 1, SentBytes: 7, RoundNanos: 9, WaitedNanos: 3, Spread: meeting.Spread{Mean: 2, Squares: []float64{4, 0}, Dots: []float64{-1, 0}}}}}.Encode())
	f.Add([]byte(`{"peer":`))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := decodeHeartbeat(data)
		if err != nil {
			return
		}
		again, err := decodeHeartbeat(b.Encode())
		if err != nil {
			t.Fatalf("own encoding is refused: %v", err)
		}
		if again.Peer != b.Peer || again.Step != b.Step || len(again.Stages) != len(b.Stages) || len(again.HandedIn) != len(b.HandedIn) || len(again.Inner) != len(b.Inner) || len(again.Met) != len(b.Met) {
			t.Fatalf("round trip changed %+v to %+v", b, again)
		}
	})
}

// TestFaultsOfOtherReplicas come to others cut to what is taken, and count where they are of the plan and of another one of its members.
func TestFaultsOfOtherReplicas(t *testing.T) {
	p := plan.Plan{Generation: 3, Local: &plan.Local{}, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a"}}}, {Stages: []plan.Placement{{Peer: "b"}}}}}
	b := Heartbeat{Peer: "a", Generation: 3}
	for range MaxFound + 2 {
		b.Found = append(b.Found, FoundFault{Generation: 3, From: 8, Fault: plan.Fault{Accused: "b", Kind: plan.BadTensor, Detail: strings.Repeat("x", 1000)}})
	}
	b.Found[1].Accused, b.Found[2].Accused, b.Found[3].Generation = "a", "c", 2
	got, err := decodeHeartbeat(b.Encode())
	if err != nil || len(got.Found) != MaxFound || len(got.Found[0].Detail) != plan.MaxFaultBytes {
		t.Fatalf("%+v, %v", got.Found, err)
	}
	tracker := NewTracker()
	tracker.Note(got, time.Now())
	if said := tracker.Found(p); len(said) != 1 || said[0].By != "a" || said[0].Accused != "b" {
		t.Errorf("%+v", said)
	}
	other := got
	other.Found = []FoundFault{{Generation: 3, Fault: plan.Fault{Accused: "b", Kind: plan.LostLink}}}
	tracker.Note(other, time.Now())
	if said := tracker.Found(p); len(said) != 0 {
		t.Errorf("a line is no message: %+v", said)
	}
	other.Found = slices.Repeat([]FoundFault{{Generation: 3, Fault: plan.Fault{Accused: "b", Kind: plan.BadFrame}}}, 2)
	tracker.Note(other, time.Now())
	if said := tracker.Found(p); len(said) != 1 {
		t.Errorf("one witness who says it twice is counted as %d", len(said))
	}
	if p.Local = nil; tracker.Found(p) != nil {
		t.Error("of a plan without local steps")
	}
	b.Found = append(got.Found, got.Found[0])
	raw, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decodeHeartbeat(raw); err == nil {
		t.Error("too many are taken")
	}
}
