package replayer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pnode/pipeline/replay"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// members are Replayers that ask each other in memory.
type members map[plan.PeerID]*member

type member struct {
	all     members
	self    plan.PeerID
	answer  func(context.Context, plan.PeerID, []byte) ([]byte, error)
	lie     func([]byte) []byte // about a chunk
	by      plan.PeerID         // may replay generation 3
	budget  int64
	replays *Replayer
	changed chan struct{} // closed when by changes
}

func (m *member) Ask(ctx context.Context, peer plan.PeerID, protocol string, request any) ([]byte, error) {
	data, err := json.Marshal(request)
	if err != nil || protocol != protocolSent {
		return nil, fmt.Errorf("%s: %w", protocol, err)
	}
	return m.all[peer].answer(ctx, m.self, data)
}

func (m *member) Serve(_ string, answer func(context.Context, plan.PeerID, []byte) ([]byte, error)) {
	m.answer = answer
}

func (m *member) State() consensus.State { return consensus.State{} }

func (m *member) Changed() <-chan struct{} { return m.changed }

func (m *member) fetch(_ context.Context, from plan.PeerID, hashes []plan.Hash, store func(plan.Hash, []byte) error) error {
	for _, h := range hashes {
		data, ok := m.all[from].replays.Chunk(h)
		if !ok {
			return errors.New("no such chunk")
		}
		if err := store(h, m.all[from].lie(data)); err != nil {
			return err
		}
	}
	return nil
}

func newMembers(peers ...plan.PeerID) members {
	all := members{}
	for _, p := range peers {
		m := &member{all: all, self: p, by: "replays", budget: 64 << 20, lie: func(b []byte) []byte { return b }, changed: make(chan struct{})}
		all[p] = m
		m.replays = New(Config{
			Self: p, Peers: m, Fetch: m.fetch, Budget: func() int64 { return m.budget },
			Log: m, Replays: func(_ consensus.State, by plan.PeerID, g plan.Generation) bool { return by == m.by && g == 3 },
		})
	}
	return all
}

// nowhere is an exchange whose messages arrive nowhere.
type nowhere struct{}

func (nowhere) Send(context.Context, plan.PeerID, wire.Frame) error { return nil }

func (nowhere) Receive(context.Context, plan.PeerID, wire.Tag) ([]byte, error) {
	return nil, errors.New("nothing comes")
}

// TestMessagesComeAsTheyWereSent: larger than a chunk too, to the member that the log names and nobody else, and only
// while they are kept.
func TestMessagesComeAsTheyWereSent(t *testing.T) {
	synctest.Test(t, testMessages)
}

func testMessages(t *testing.T) {
	all := newMembers("sent", "replays", "other")
	exchange := all["sent"].replays.Begin(plan.Plan{Generation: 3, Start: 10}, nil).Keep(nowhere{})
	payload := make([]byte, chunkBytes+5)
	payload[chunkBytes] = 7
	for step := plan.Step(11); step < 13; step++ {
		tag := wire.Tag{Kind: wire.ReducePart, Generation: 3, Step: step}
		if err := exchange.Send(t.Context(), "lost", wire.Frame{Tag: tag, Payload: payload}); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(by plan.PeerID, g plan.Generation, step plan.Step) ([]replay.Message, error) {
		return all[by].replays.Messages(t.Context(), "sent", Request{Generation: g, Step: step, Lost: []plan.PeerID{"lost"}})
	}
	wantError := func(err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	for _, by := range []plan.PeerID{"replays", "sent"} {
		got, err := ask(by, 3, 11)
		if err != nil || len(got) != 1 || len(got[0].Frame.Payload) != len(payload) || got[0].Frame.Payload[chunkBytes] != 7 {
			t.Errorf("%s got %d messages: %v", by, len(got), err)
		}
	}
	if got, err := ask("replays", 3, 20); err != nil || len(got) != 0 {
		t.Errorf("of a step without messages: %d, %v", len(got), err)
	}
	_, err := ask("other", 3, 11)
	wantError(err, errBadRequest)
	_, err = ask("replays", 2, 11)
	wantError(err, errBadRequest)
	all["sent"].lie = func(b []byte) []byte { return append([]byte{1}, b...) }
	_, err = ask("replays", 3, 12)
	wantError(err, errBadAnswer)
	all["replays"].budget = 1
	_, err = ask("replays", 3, 12)
	wantError(err, errBadAnswer)
	all["sent"].replays.Forget(11)
	if kept := all["sent"].replays.Kept(); kept.First != 11 {
		t.Errorf("after a checkpoint of step 11 messages are kept from step %d on", kept.First)
	}
	all["sent"].replays.Forget(12)
	_, err = ask("replays", 3, 11)
	wantError(err, replay.ErrNotKept)
	all["sent"].replays.Fail()
	if kept := all["sent"].replays.Kept(); kept != (Kept{3, 12, true}) {
		t.Errorf("kept is %+v", kept)
	}
	all["sent"].replays.Begin(plan.Plan{Generation: 4, Start: 12}, []consensus.Checkpoint{{Step: 12, Generation: 3}, {Step: 10, Generation: 2}})
	all["replays"].budget, all["sent"].lie = 64<<20, func(b []byte) []byte { return b }
	if got, err := ask("replays", 3, 12); err != nil || len(got) != 1 {
		t.Errorf("of the generation before, whose checkpoint is held once: %d messages, %v", len(got), err)
	}
	all["sent"].replays.Forget(12)
	_, err = ask("replays", 3, 12)
	wantError(err, replay.ErrNotKept)
}

// TestNoMemberTakesAnothersAnswer: one that asks again and again has its own old answers dropped, and the other's stay to be fetched. All
// that is kept is bounded.
func TestNoMemberTakesAnothersAnswer(t *testing.T) {
	var r Replayer
	keep := func(to plan.PeerID, n byte) { r.keep(answered{to, map[plan.Hash][]byte{{n}: {n}}}) }
	kept := func(n byte) bool { _, ok := r.Chunk(plan.Hash{n}); return ok }
	keep("restores", 1)
	for n := byte(10); n < 30; n++ {
		keep("asks", n)
		if !kept(1) || !kept(n) || !kept(max(10, n-2)) {
			t.Fatalf("of %d answers: %v and the newest ones %v and %v are kept", n, kept(1), kept(max(10, n-2)), kept(n))
		}
	}
	if kept(26) {
		t.Error("more than the newest answers are kept")
	}
	for n := byte(100); n < 200; n++ {
		keep(plan.PeerID([]byte{n}), n)
	}
	if got := len(r.answers); got != newestAnswers*mostReplayers {
		t.Errorf("%d answers are kept", got)
	}
}

// TestWhoHasReadMoreOfTheLogIsWaitedFor: a member asks before the log here names it. It is answered once that does, and refused at once
// where it asks for what is not kept, or for more at a time.
func TestWhoHasReadMoreOfTheLogIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMembers("sent", "early")
		sent := all["sent"]
		sent.replays.Begin(plan.Plan{Generation: 3, Start: 10}, nil)
		begun, took := time.Now(), make(chan time.Duration, maxWaiting+2)
		ask := func(g plan.Generation) error {
			_, err := all["early"].replays.Messages(t.Context(), "sent", Request{Generation: g, Step: 11, Lost: []plan.PeerID{"lost"}})
			took <- time.Since(begun)
			return err
		}
		for range maxWaiting {
			go func() {
				if err := ask(3); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		for _, g := range []plan.Generation{2, 3, 4} {
			if err := ask(g); !errors.Is(err, errBadRequest) {
				t.Errorf("generation %d: %v", g, err)
			}
			if d := <-took; d != 0 {
				t.Errorf("generation %d: refused after %v, want at once", g, d)
			}
		}
		time.Sleep(logPatience / 2)
		sent.by = "early"
		close(sent.changed)
		for range maxWaiting {
			if d := <-took; d != logPatience/2 {
				t.Errorf("answered after %v, want %v", d, logPatience/2)
			}
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"generation":3,"step":20,"lost":["a"]}`))
	f.Add([]byte(`{"chunks":["0000000000000000000000000000000000000000000000000000000000000000"]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if q, err := decodeRequest(data); err == nil && (len(q.Lost) == 0 || len(q.Lost) > maxLost) {
			t.Fatalf("a request for %d lost peers", len(q.Lost))
		}
		if a, err := decodeAnswer(data); err == nil && len(a.Chunks) > maxChunks {
			t.Fatalf("an answer of %d chunks", len(a.Chunks))
		}
	})
}
