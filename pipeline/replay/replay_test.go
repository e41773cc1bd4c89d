package replay

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// nowhere is an exchange whose messages arrive nowhere.
type nowhere struct{}

func (nowhere) Send(context.Context, plan.PeerID, wire.Frame) error { return nil }

func (nowhere) Receive(ctx context.Context, _ plan.PeerID, _ wire.Tag) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func frame(kind wire.Kind, step plan.Step, bytes int) wire.Frame {
	return wire.Frame{Tag: wire.Tag{Kind: kind, Generation: 3, Step: step}, Payload: make([]byte, bytes)}
}

// TestALogForgetsTheOldestStepFirst and says from which step on it is whole.
func TestALogForgetsTheOldestStepFirst(t *testing.T) {
	const room = 100 - wire.HeaderBytes
	log := NewLog("self", 10, 300)
	exchange := log.Keep(nowhere{})
	want := func(first plan.Step, kept ...int) { // kept by step from 11 on
		t.Helper()
		if log.First() != first {
			t.Errorf("kept from step %d on, want %d", log.First(), first)
		}
		for i, n := range kept {
			got, ok := log.Sent(11+plan.Step(i), []plan.PeerID{"other"})
			if ok != (11+plan.Step(i) >= first) || len(got) != n {
				t.Errorf("step %d: %d messages, %t; want %d", 11+i, len(got), ok, n)
			}
		}
	}
	send := func(to plan.PeerID, f wire.Frame) {
		t.Helper()
		if err := exchange.Send(t.Context(), to, f); err != nil {
			t.Fatal(err)
		}
	}
	send("self", frame(wire.Activation, 11, 1000))
	send("other", frame(wire.StateTaken, 11, 1000))
	send("third", frame(wire.Activation, 11, room))
	send("other", frame(wire.Gradient, 11, room))
	send("other", frame(wire.Gradient, 12, room))
	want(11, 1, 1, 0)
	send("other", frame(wire.Gradient, 13, room))
	want(12, 0, 1, 1)
	send("other", frame(wire.Gradient, 11, room)) // late, and of no use
	want(12, 0, 1, 1)
	log.Forget(12)
	want(13, 0, 0, 1)
	send("other", frame(wire.Gradient, 14, 1000)) // more than all of the budget
	want(15, 0, 0, 0, 0)
	if log.bytes != 0 {
		t.Errorf("%d bytes in an empty log", log.bytes)
	}
	NewLog("self", 0, 0).Keep(nowhere{})
}

// TestASubstituteGetsReportsAndCommitsToo: a replay does without them, since it knows the commits.
func TestASubstituteGetsReportsAndCommitsToo(t *testing.T) {
	log := NewLog("self", 10, 1<<20)
	for _, kind := range []wire.Kind{wire.Activation, wire.KindReport, wire.KindCommit, wire.StateTaken} {
		if err := log.Keep(nowhere{}).Send(t.Context(), "other", frame(kind, 11, 0)); err != nil {
			t.Fatal(err)
		}
	}
	var kinds []wire.Kind
	frames, _ := log.After(10, "other")
	for _, f := range frames {
		kinds = append(kinds, f.Tag.Kind)
	}
	if want := []wire.Kind{wire.Activation, wire.KindReport, wire.KindCommit}; !slices.Equal(kinds, want) {
		t.Errorf("a substitute gets %v, want %v", kinds, want)
	}
	if sent, _ := log.Sent(11, []plan.PeerID{"other"}); len(sent) != 1 {
		t.Errorf("a replay gets %d messages, want 1", len(sent))
	}
}

// TestOnlyWhatWasAskedForIsTaken: other steps, generations, receivers and kinds are refused, and what is changed or cut.
func TestOnlyWhatWasAskedForIsTaken(t *testing.T) {
	good := []Message{{"a", frame(wire.Activation, 7, 5)}, {"b", frame(wire.Gradient, 7, 0)}}
	lost := []plan.PeerID{"a", "b"}
	whole := AppendMessages(nil, good)
	got, err := DecodeMessages(whole, 3, 7, lost)
	if err != nil || len(got) != 2 || got[1].To != "b" || !bytes.Equal(got[0].Frame.Payload, good[0].Frame.Payload) {
		t.Fatalf("got %+v, %v", got, err)
	}
	for name, c := range map[string]struct {
		generation plan.Generation
		step       plan.Step
		lost       []plan.PeerID
		bytes      []byte
		want       error
	}{
		"generation": {4, 7, lost, whole, wire.ErrValue},
		"step":       {3, 8, lost, whole, wire.ErrValue},
		"receiver":   {3, 7, lost[:1], whole, wire.ErrValue},
		"kind":       {3, 7, lost, AppendMessages(nil, []Message{{"a", frame(wire.KindCommit, 7, 5)}}), wire.ErrValue},
		"cut":        {3, 7, lost, whole[:len(whole)-1], wire.ErrLength},
		"cut more":   {3, 7, lost, whole[:60-12], wire.ErrLength},
		"a bit":      {3, 7, lost, append(append([]byte{}, whole[:47]...), append([]byte{whole[47] ^ 1}, whole[48:]...)...), wire.ErrChecksum},
	} {
		if _, err := DecodeMessages(c.bytes, c.generation, c.step, c.lost); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}

func FuzzDecodeMessages(f *testing.F) {
	f.Add(AppendMessages(nil, []Message{{"a", frame(wire.Activation, 7, 5)}, {"a", frame(wire.TiedGrad, 7, 0)}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		messages, err := DecodeMessages(data, 3, 7, []plan.PeerID{"a"})
		if err == nil && !bytes.Equal(AppendMessages(nil, messages), data) {
			t.Fatalf("%+v is another encoding", messages)
		}
	})
}
