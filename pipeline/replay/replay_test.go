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
	logs := NewLogs("self")
	log := logs.Begin(3, 10, 300)
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
	logs.Forget(13)
	want(13, 0, 0, 1)
	send("other", frame(wire.Gradient, 14, 1000)) // more than all of the budget
	want(15, 0, 0, 0, 0)
	if logs.bytes != 0 {
		t.Errorf("%d bytes in an empty log", logs.bytes)
	}
}

// TestGenerationsShareABudget: the oldest steps of the oldest generation go first, a checkpoint ends the generations before it, and what is still
// sent in one that is dropped counts nothing. A generation that stays keeps its steps up to the next one's start.
func TestGenerationsShareABudget(t *testing.T) {
	const room = 100 - wire.HeaderBytes
	logs := NewLogs("self")
	send := func(log *Log, step plan.Step) {
		t.Helper()
		if err := log.Keep(nowhere{}).Send(t.Context(), "other", frame(wire.Activation, step, room)); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, bytes int64, all plan.Step, first ...plan.Step) { // all is over generations, first of 1 to 3, 0 for none
		t.Helper()
		for i, step := range first {
			got := plan.Step(0)
			if log := logs.Of(plan.Generation(i + 1)); log != nil {
				got = log.First()
			}
			if got != step {
				t.Errorf("%s: generation %d is kept from step %d on, want %d", what, i+1, got, step)
			}
		}
		if logs.First() != all || logs.bytes != bytes {
			t.Errorf("%s: all is kept from step %d on, want %d; %d bytes, want %d", what, logs.First(), all, logs.bytes, bytes)
		}
	}
	one := logs.Begin(1, 10, 450)
	for step := plan.Step(11); step <= 13; step++ {
		send(one, step)
	}
	two := logs.Begin(2, 12, 450, 1)
	want("step 13 is given up", 200, 11, 11, 13)
	send(two, 13)
	send(two, 14)
	want("all fits", 400, 11, 11, 13)
	three := logs.Begin(3, 14, 450, 1, 2)
	send(three, 15)
	want("step 11 goes", 400, 12, 12, 13, 15)
	if !three.Full(12) && three.Full(15) {
		t.Error("what was sent before a checkpoint makes another one due")
	}
	send(three, 16)
	send(three, 17)
	want("then 12 and 13", 400, 14, 13, 14, 15)
	logs.Forget(12)
	want("the checkpoint of step 12", 400, 14, 0, 14, 15)
	send(one, 13)
	want("too late", 400, 14, 0, 14, 15)
	logs.Forget(16)
	want("the checkpoint of step 16", 200, 16, 0, 0, 16)
	logs.Begin(4, 17, 150, 3)
	want("a smaller budget", 100, 17, 0, 0, 17)
	logs.Begin(5, 17, 150)
	want("nothing stays", 0, 18, 0, 0, 0)
}

// TestASubstituteGetsReportsAndCommitsToo: a replay does without them, since it knows the commits.
func TestASubstituteGetsReportsAndCommitsToo(t *testing.T) {
	log := NewLogs("self").Begin(3, 10, 1<<20)
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
