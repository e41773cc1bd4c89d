package gossip

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"pnode/pipeline/meeting"
	"pnode/planner/plan"
)

// TestAbsurdHeartbeatsAreNotHeard: numbers that no member can have are refused, and nobody's own are.
func TestAbsurdHeartbeatsAreNotHeard(t *testing.T) {
	for _, fields := range []string{
		`"step":1099511627777`,
		`"step":-1`,
		`"finished":18446744073709551615`,
		`"no_restore":18446744073709551615`,
		`"replayed":18446744073709551615`,
		`"loss":-1`,
		`"loss":1e300`,
		`"tokens_per_s":-5`,
		`"step_nanos":9223372036854775807`,
		`"step_nanos":-1`,
		`"stages":[{"forward_nanos":-1}]`,
		`"stages":[{"update_nanos":9223372036854775807}]`,
		`"stages":[{"replica":-1}]`,
		`"stages":[{"rel_error":-1}]`,
		`"links":[{"peer":"b","rtt_nanos":9223372036854775807}]`,
		`"links":[{"peer":"b","jitter_nanos":-1}]`,
		`"links":[{"peer":"b","bytes_per_s":9223372036854775807}]`,
		`"links":[{"peer":"b","transport":"smoke"}]`,
		`"links":[{"peer":"b","transport":"tcp","reason":"\u001b[2J"}]`,
		`"links":[{"peer":"b","transport":"tcp","reason":"` + strings.Repeat("x", maxLinkReasonBytes+1) + `"}]`,
		`"phase":"\u001b]0;title\u0007"`,
		`"phase":"` + strings.Repeat("x", maxPhaseBytes+1) + `"`,
		`"lacks":true,"lacks_layer":-1`,
		`"reason":"\u001b[2J"`,
		`"reason":"` + strings.Repeat("x", maxReasonBytes+1) + `"`,
		`"blocked":"\u202egnp.exe"`,
		`"course":"1f1b\u0007"`,
		`"wanted":{"why":"\u009b31m"}`,
		`"spares":{"members":[{"peer":"b","without_nanos":-1}]}`,
		`"spares":{"members":[{"peer":"b","with_nanos":9223372036854775807}]}`,
		`"hints":{"texts":[` + strings.Repeat(`"",`, maxHints) + `""]}`,
		`"hints":{"texts":["` + strings.Repeat("x", maxHintBytes+1) + `"]}`,
		`"hints":{"texts":["\u001b[2J"]}`,
		`"spares":{"members":[` + strings.Repeat(`{"peer":"b"},`, maxSpares) + `{"peer":"b"}]}`,
		`"cadence":{"every_nanos":-1,"why":"replay"}`,
		`"cadence":{"took_nanos":9223372036854775807,"why":"replay"}`,
		`"cadence":{"lost_nanos":-1,"why":"replay"}`,
		`"cadence":{"every_nanos":1,"why":"\u001b[2J"}`,
		`"cadence":{"every_nanos":1}`,
		`"cadence":{"saving":18446744073709551615,"why":"replay"}`,
		`"cadence":{"saving_nanos":-1,"why":"replay"}`,
		`"cadence":{"late":18446744073709551615,"why":"replay"}`,
		`"handed_in":[{"replica":64,"steps":1}]`,
		`"handed_in":[{"replica":-1,"steps":1}]`,
		`"handed_in":[{"replica":1}]`,
		`"handed_in":[{"replica":1,"steps":1048577}]`,
		`"handed_in":[{"replica":1,"steps":1,"from":1099511627777}]`,
		`"handed_in":[{"replica":1,"steps":1,"lacks":[1]}]`,
		`"handed_in":[{"replica":1,"steps":1,"lacks":[2,0]}]`,
		`"inner":[{"replica":64}]`,
		`"inner":[{"replica":-1}]`,
		`"inner":[{"loss":-1}]`,
		`"inner":[{"step":18446744073709551615}]`,
		`"inner":[` + strings.Repeat(`{"step":1},`, plan.MaxLocalReplicas) + `{"step":1}]`,
		`"inner":[{"step":1,"nanos":-1}]`,
		`"met":[{"stages":1}]`,
		`"met":[{"stages":0,"spread":{"squares":[1],"dots":[1]}}]`,
		`"met":[{"stages":1,"replica":-1,"spread":{"squares":[1],"dots":[1]}}]`,
		`"met":[{"stages":1,"replica":1,"spread":{"squares":[1],"dots":[1]}}]`,
		`"met":[{"stages":1,"replica":64,"spread":{"squares":[1],"dots":[1]}}]`,
		`"met":[{"stages":1,"sent_bytes":-1,"spread":{"squares":[1],"dots":[1]}}]`,
		`"met":[{"stages":1,"waited_nanos":-1,"spread":{"squares":[1],"dots":[1]}}]`,
		`"met":[{"stages":1,"spread":{"squares":[1,1],"dots":[1]}}]`,
		`"met":[{"stages":1,"spread":{"squares":[-1],"dots":[1]}}]`,
		`"met":[{"stages":1,"spread":{"mean":-1,"squares":[1],"dots":[1]}}]`,
		`"met":[{"stages":1,"spread":{"mean":1e101,"squares":[1],"dots":[1]}}]`,
		`"met":[{"stages":1,"spread":{"mean":1e-320,"squares":[1],"dots":[1]}}]`,
		`"met":[{"stages":1,"spread":{"mean":1,"squares":[1e-320],"dots":[5e-321]}}]`,
		`"met":[{"stages":1,"spread":{"squares":[1],"dots":[-1e300]}}]`,
		`"met":[{"stages":1,"spread":{"squares":[1` + strings.Repeat(`,1`, plan.MaxLocalReplicas) + `],"dots":[1` + strings.Repeat(`,1`, plan.MaxLocalReplicas) + `]}}]`,
		`"met":[` + strings.Repeat(`{"stages":1,"spread":{"squares":[1],"dots":[1]}},`, maxApart) + `{"stages":1,"spread":{"squares":[1],"dots":[1]}}]`,
		`"handed_in":[{"replica":1,"steps":1,"lacks":[2,2]}]`,
		`"handed_in":[{"replica":1,"steps":1,"lacks":[64]}]`,
		`"handed_in":[` + strings.Repeat(`{"steps":1},`, plan.MaxLocalReplicas) + `{"steps":1}]`,
		`"fault":{"accused":"b","kind":"frame","step":18446744073709551615,"detail":""}`,
	} {
		if b, err := decodeHeartbeat([]byte(`{"peer":"a",` + fields + `}`)); !errors.Is(err, errBadMessage) {
			t.Errorf("%s: %+v, %v", fields, b, err)
		}
	}
	own := Heartbeat{Peer: "a", StepNanos: -1, Loss: -1, Stages: []StageTimes{{WaitNanos: -1}}, Links: []LinkRate{{RTTNanos: 1 << 62, BytesPerS: -1, Reason: "é\x1b[2J"}}, Reason: "first\nsecond\x1b[31m" + strings.Repeat("é", maxReasonBytes), Wish: &ScheduleWish{Why: "\x07"}}
	if _, err := decodeHeartbeat(own.Encode()); err != nil {
		t.Errorf("own figures: %v", err)
	}
	if own.Stages[0].WaitNanos != -1 || own.Links[0].BytesPerS != -1 {
		t.Errorf("what is sent was changed in place: %+v", own)
	}
}

// TestManyReplicasOfAHeartbeat: as many are told of as there is room for, and they fit.
func TestManyReplicasOfAHeartbeat(t *testing.T) {
	var lacks []plan.Replica
	for q := range plan.Replica(plan.MaxLocalReplicas - 1) {
		lacks = append(lacks, q)
	}
	own := Heartbeat{Peer: "a"}
	full := meeting.Spread{Mean: math.Pi * 1e-7}
	for range plan.MaxLocalReplicas {
		full.Squares, full.Dots = append(full.Squares, math.E*1e-30), append(full.Dots, -math.Pi*1e-30)
	}
	for range 2 * plan.MaxLocalReplicas {
		own.Met = append(own.Met, Met{Generation: 1 << 40, From: maxStep, Replica: plan.MaxLocalReplicas - 1, Stages: 1, RoundNanos: 1 << 62, Spread: full})
		own.Inner = append(own.Inner, InnerStep{Replica: plan.MaxLocalReplicas - 1, Step: maxStep, Loss: -3.5, Nanos: 1 << 62})
		own.HandedIn = append(own.HandedIn, HandedIn{Generation: 1 << 40, From: maxStep, Replica: plan.MaxLocalReplicas - 1, Steps: plan.MaxEvery})
	}
	for _, most := range []int{plan.MaxLocalReplicas, 4} {
		b, err := decodeHeartbeat(own.Encode())
		if err != nil || len(b.Met) != 1 || b.Met[0].Spread.Dots[63] != full.Dots[63] || len(b.HandedIn) != most || len(b.Inner) != plan.MaxLocalReplicas || own.Inner[0].Loss >= 0 {
			t.Errorf("%d replicas of %d, want %d: %v", len(b.HandedIn), len(own.HandedIn), most, err)
		}
		for i := range own.HandedIn {
			own.HandedIn[i].Lacks = lacks
		}
	}
}

// oneSender hands on what it is given as if a member had sent it.
type oneSender struct{ hear func(plan.PeerID, []byte) }

func (s *oneSender) Publish(context.Context, string, []byte) error { return nil }

func (s *oneSender) Subscribe(_ string, decode func(plan.PeerID, []byte) (any, error), hear func(plan.PeerID, any)) error {
	s.hear = func(from plan.PeerID, data []byte) {
		if m, err := decode(from, data); err == nil {
			hear(from, m)
		}
	}
	return nil
}

// TestStepsAfterTheLastAreNotNoted: a member cannot say that it is further than the run goes, once that is known.
func TestStepsAfterTheLastAreNotNoted(t *testing.T) {
	tr, from, last := NewTracker(), &oneSender{}, plan.Step(0)
	if err := tr.Listen(from, func() plan.Step { return last }); err != nil {
		t.Fatal(err)
	}
	say := func(b Heartbeat) plan.Step {
		from.hear("a", b.Encode())
		b, _ = tr.Last("a")
		return b.Step
	}
	if got := say(Heartbeat{Peer: "a", Step: 200}); got != 200 {
		t.Errorf("step %d before the run is known, want 200", got)
	}
	last = 100
	if got := say(Heartbeat{Peer: "a", Step: 100}); got != 100 {
		t.Errorf("step %d, want the last", got)
	}
	for _, b := range []Heartbeat{{Peer: "a", Step: 101}, {Peer: "a", Step: 7, Finished: 101}} {
		if got := say(b); got != 100 {
			t.Errorf("%+v was noted", b)
		}
	}
}
