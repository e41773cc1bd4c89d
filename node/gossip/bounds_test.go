package gossip

import (
	"context"
	"errors"
	"strings"
	"testing"

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
		`"spares":{"members":[` + strings.Repeat(`{"peer":"b"},`, maxSpares) + `{"peer":"b"}]}`,
		`"cadence":{"every_nanos":-1,"why":"replay"}`,
		`"cadence":{"took_nanos":9223372036854775807,"why":"replay"}`,
		`"cadence":{"lost_nanos":-1,"why":"replay"}`,
		`"cadence":{"every_nanos":1,"why":"\u001b[2J"}`,
		`"cadence":{"every_nanos":1}`,
		`"cadence":{"saving":18446744073709551615,"why":"replay"}`,
		`"cadence":{"saving_nanos":-1,"why":"replay"}`,
		`"cadence":{"late":18446744073709551615,"why":"replay"}`,
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
