package link

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// pipelineOf has peer i compute stage i of one pipeline: a message for a stage is from the one before.
func pipelineOf(ids []plan.PeerID) Rules {
	return Rules{
		Expect: func(from, to plan.PeerID, tag wire.Tag, _ int) error {
			if s := int(tag.Stage); s < 1 || s >= len(ids) || ids[s] != to || ids[s-1] != from {
				return fmt.Errorf("%w: %v from %.8s to %.8s", wire.ErrValue, tag, from, to)
			}
			return nil
		},
		Replaceable: func(p plan.PeerID) bool { return p == ids[1] }, Coordinator: ids[1],
	}
}

// to is the tag of a message to a stage.
func to(stage plan.Stage, step plan.Step, index int32) wire.Tag {
	return wire.Tag{Kind: wire.Activation, Generation: 1, Step: step, Stage: stage, Index: index}
}

// frames returns what has some sent again.
func frames(all ...wire.Frame) func() ([]wire.Frame, error) {
	return func() ([]wire.Frame, error) { return all, nil }
}

// withLine runs four peers in a bubble; the second one's endpoint is lost once lose is called.
func withLine(t *testing.T, f func(t *testing.T, c *cluster, s []*Session, lose func())) {
	t.Helper()
	withLineOf(t, Options{}, f)
}

func withLineOf(t *testing.T, opt Options, f func(t *testing.T, c *cluster, s []*Session, lose func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 4, LinkConditions{Delay: time.Millisecond}, opt)
		defer c.close()
		var s []*Session
		for _, e := range c.endpoints {
			s = append(s, e.Session(1, c.ids, pipelineOf(c.ids)))
		}
		f(t, c, s, func() {
			for i, e := range c.endpoints {
				if i != 1 {
					e.PeerEnded(c.ids[1])
				}
			}
			synctest.Wait()
		})
	})
}

// TestASubstituteTakesAPeersMessages: what was sent to the lost peer comes again, what waits to be sent goes on, and what
// the substitute sends counts as the lost one's, once.
func TestASubstituteTakesAPeersMessages(t *testing.T) {
	withLine(t, func(t *testing.T, c *cluster, s []*Session, lose func()) {
		before, lost, after, by := s[0], c.ids[1], s[2], s[3]
		old := wire.Frame{Tag: to(1, 4, 0), Payload: []byte("old")}
		sent := wire.Frame{Tag: to(1, 5, 0), Payload: []byte("sent")}
		for _, f := range []wire.Frame{old, sent} {
			mustSend(t, before, lost, f.Tag, f.Payload)
			mustReceive(t, s[1], c.ids[0], f.Tag, f.Payload)
		}
		mustSend(t, s[1], c.ids[2], to(2, 5, 0), []byte("once"))
		mustReceive(t, after, lost, to(2, 5, 0), []byte("once"))
		received, late := make(chan error, 1), make(chan error, 1)
		go func() {
			payload, err := after.Receive(t.Context(), lost, to(2, 5, 1))
			if err == nil && string(payload) != "from the substitute" {
				err = fmt.Errorf("got %q", payload)
			}
			received <- err
		}()
		lose()
		go func() { late <- before.Send(t.Context(), lost, wire.Frame{Tag: to(1, 5, 1), Payload: []byte("late")}) }()
		synctest.Wait()
		select {
		case err := <-late:
			t.Fatalf("a message for a lost peer does not wait: %v", err)
		case err := <-received:
			t.Fatalf("who waits for a lost peer does not go on waiting: %v", err)
		default:
		}
		self := c.ids[3]
		if err := by.Substitute(lost, self, 4, frames()); err != nil {
			t.Fatal(err)
		}
		part := by.As(lost, 0)
		for _, f := range []wire.Frame{{Tag: to(2, 5, 0), Payload: []byte("once")}, {Tag: to(2, 5, 1), Payload: []byte("from the substitute")}} {
			if err := part.Send(t.Context(), c.ids[2], f); err != nil { // before anybody else knows
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if err := after.Substitute(lost, self, 0, frames()); err != nil {
			t.Fatal(err)
		}
		if err := <-received; err != nil {
			t.Error(err)
		}
		if _, err := after.Receive(t.Context(), lost, to(2, 5, 0)); !errors.Is(err, ErrDuplicate) {
			t.Errorf("a message comes out twice: %v", err)
		}
		for index, want := range []plan.PeerID{lost, self, self} { // the last one has not come
			if got := after.Brought(lost, to(2, 5, int32(index))); got != want {
				t.Errorf("message %d was brought by %s, want %s", index, got, want)
			}
		}
		if err := before.Substitute(lost, self, 0, frames(old, sent)); err != nil {
			t.Fatal(err)
		}
		if err := <-late; err != nil {
			t.Error(err)
		}
		for index, want := range []string{"sent", "late"} {
			payload, err := part.Receive(t.Context(), c.ids[0], to(1, 5, int32(index)))
			if err != nil || string(payload) != want {
				t.Errorf("got %q, %v, want %q", payload, err, want)
			}
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := part.Receive(soon, c.ids[0], old.Tag); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a message of a step that is done came: %v", err)
		}
	})
}

// TestASubstituteGetsManyStepsAtOnce: more messages than its inbox has room for come in order as they are received, and what it sends of
// steps that are done goes nowhere.
func TestASubstituteGetsManyStepsAtOnce(t *testing.T) {
	const most, each, steps = 4, 8, 5
	withLineOf(t, Options{InboxFrames: most}, func(t *testing.T, c *cluster, s []*Session, lose func()) {
		before, lost, after, by := s[0], c.ids[1], s[2], s[3]
		lose()
		var again []wire.Frame
		for i := range each * steps {
			again = append(again, wire.Frame{Tag: to(1, plan.Step(i/each+1), int32(i%each)), Payload: []byte{byte(i)}})
		}
		for _, end := range []*Session{before, after, by} {
			resent := again
			if end != before {
				resent = nil
			}
			if err := end.Substitute(lost, c.ids[3], 0, frames(resent...)); err != nil {
				t.Fatal(err)
			}
		}
		part := by.As(lost, steps-1)
		for i, f := range again {
			synctest.Wait()
			if l := by.inbox.loads[account{c.ids[0], f.Tag.Kind.Class()}]; l.messages > most {
				t.Fatalf("%d messages are held, at most %d may be", l.messages, most)
			}
			payload, err := part.Receive(t.Context(), c.ids[0], f.Tag)
			if err != nil || len(payload) != 1 || int(payload[0]) != i {
				t.Fatalf("message %d is %v, %v", i, payload, err)
			}
			if err := part.Send(t.Context(), c.ids[2], wire.Frame{Tag: to(2, f.Tag.Step, f.Tag.Index), Payload: payload}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range each {
			mustReceive(t, after, lost, to(2, steps, int32(i)), []byte{byte(each*(steps-1) + i)})
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := after.Receive(soon, lost, to(2, steps-1, 0)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a message of a step that is done came: %v", err)
		}
	})
}

// TestASubstituteMayBeOnesNeighbour: messages between its own workers and the lost peer's stay on the node.
func TestASubstituteMayBeOnesNeighbour(t *testing.T) {
	withLine(t, func(t *testing.T, c *cluster, s []*Session, lose func()) {
		by, lost := s[2], c.ids[1]
		mustSend(t, s[1], c.ids[2], to(2, 5, 0), []byte("from the lost"))
		mustReceive(t, by, lost, to(2, 5, 0), []byte("from the lost"))
		lose()
		if err := by.Substitute(lost, c.ids[2], 4, frames()); err != nil {
			t.Fatal(err)
		}
		part := by.As(lost, 0)
		for i, text := range []string{"from the lost", "from here"} {
			if err := part.Send(t.Context(), c.ids[2], wire.Frame{Tag: to(2, 5, int32(i)), Payload: []byte(text)}); err != nil {
				t.Fatal(err)
			}
		}
		mustReceive(t, by, lost, to(2, 5, 1), []byte("from here"))
	})
}

// TestNothingOfALostCoordinatorCountsAfterItsLastCommit: whoever has a substitute brings nothing more, and what it sent after a commit that
// nobody has gives way to what the substitute sends.
func TestNothingOfALostCoordinatorCountsAfterItsLastCommit(t *testing.T) {
	withLine(t, func(t *testing.T, c *cluster, s []*Session, lose func()) {
		commit := func(step plan.Step) wire.Tag {
			return wire.Tag{Kind: wire.KindCommit, Generation: 1, Step: step, Stage: 2}
		}
		for _, step := range []plan.Step{4, 5} {
			mustSend(t, s[1], c.ids[2], commit(step), []byte{byte(step)})
		}
		mustReceive(t, s[2], c.ids[1], commit(4), []byte{4})
		for _, step := range []plan.Step{6, 7} {
			mustSend(t, s[1], c.ids[2], to(2, step, 0), []byte("from the lost"))
		}
		time.Sleep(time.Second)
		lose()
		if err := s[2].Substitute(c.ids[1], c.ids[3], 5, frames()); err != nil {
			t.Fatal(err)
		}
		late := key{from: c.ids[1], tag: commit(6)}
		if err := s[2].inbox.admit(t.Context(), late, admission{by: c.ids[1], size: 1}); !errors.Is(err, ErrLost) {
			t.Errorf("a late commit of the lost peer: %v", err)
		}
		if got := s[2].LastCommit(c.ids[1]); string(got) != "\x05" {
			t.Errorf("the last commit is %q, want that of step 5", got)
		}
		if err := s[3].Substitute(c.ids[1], c.ids[3], 5, frames()); err != nil {
			t.Fatal(err)
		}
		part := s[3].As(c.ids[1], 0)
		for _, tag := range []wire.Tag{to(2, 6, 0), to(2, 7, 0), commit(6)} {
			if err := part.Send(t.Context(), c.ids[2], wire.Frame{Tag: tag, Payload: []byte("from the substitute")}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if got := s[2].LastCommit(c.ids[1]); string(got) != "\x05" {
			t.Errorf("once the substitute has sent another one the last commit is %q", got)
		}
		mustReceive(t, s[2], c.ids[1], commit(5), []byte{5})
		mustReceive(t, s[2], c.ids[1], to(2, 6, 0), []byte("from the lost"))
		mustReceive(t, s[2], c.ids[1], to(2, 7, 0), []byte("from the substitute"))
		if got := s[0].LastCommit(c.ids[1]); got != nil {
			t.Errorf("a commit that was for another peer came: %q", got)
		}
	})
}

// TestALossIsToldWithItsReason: whoever hears that a peer is lost can ask at once whether its process has ended, though calls that wait for it
// have not failed yet.
func TestALossIsToldWithItsReason(t *testing.T) {
	withLine(t, func(t *testing.T, c *cluster, s []*Session, _ func()) {
		s[0].stand.mu.Lock() // the first thing that the loss of a peer needs to fail calls
		lost := make(chan struct{})
		go func() { defer close(lost); s[0].endpoint.PeerEnded(c.ids[1]) }()
		if peer := <-s[0].Lost(); peer != c.ids[1] || !s[0].Ended(peer) {
			t.Errorf("%s is lost, and its process has ended: %t", peer.Short(), s[0].Ended(peer))
		}
		s[0].stand.mu.Unlock()
		<-lost
	})
}

// TestNobodyWaitsForASubstituteInVain: not once the lost peer is given up, nor once its substitute is lost, nor for a peer that
// cannot have one.
func TestNobodyWaitsForASubstituteInVain(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *cluster, *Session){
		"given up": func(_ *testing.T, c *cluster, s *Session) { s.Drop(c.ids[1], ErrGone) },
		"closed":   func(_ *testing.T, _ *cluster, s *Session) { s.Close() },
		"lost again": func(t *testing.T, c *cluster, s *Session) {
			if err := s.Substitute(c.ids[1], c.ids[3], 0, frames()); err != nil {
				t.Error(err)
			}
			c.endpoints[2].PeerEnded(c.ids[3])
		},
	} {
		t.Run(name, func(t *testing.T) {
			withLine(t, func(t *testing.T, c *cluster, s []*Session, lose func()) {
				failed := make(chan error, 1)
				go func() {
					_, err := s[2].Receive(t.Context(), c.ids[1], to(2, 5, 0))
					failed <- err
				}()
				lose()
				end(t, c, s[2])
				if err := <-failed; !errors.Is(err, ErrLost) && !errors.Is(err, ErrClosed) {
					t.Errorf("got %v", err)
				}
				if err := s[2].Substitute(c.ids[1], c.ids[0], 0, frames()); !errors.Is(err, ErrLost) {
					t.Errorf("another substitute: %v", err)
				}
				s[0].endpoint.PeerEnded(c.ids[2])
				if err := s[0].Send(t.Context(), c.ids[2], wire.Frame{Tag: to(3, 5, 0)}); !errors.Is(err, ErrLost) {
					t.Errorf("a peer that nobody can replace: %v", err)
				}
			})
		})
	}
}

// TestWhoSendsInAnothersNameWithoutAWordIsLost after a while, and not accused: the word may be late here. Who sends what no plan has is lost
// at once, by its own fault.
func TestWhoSendsInAnothersNameWithoutAWordIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		stage  plan.Stage
		least  time.Duration
		faulty bool
	}{"another's": {2, wordPatience, false}, "nobody's": {3, 0, true}} {
		t.Run(name, func(t *testing.T) {
			withLine(t, func(t *testing.T, cl *cluster, s []*Session, _ func()) {
				begun := time.Now()
				if err := s[0].Send(t.Context(), cl.ids[2], wire.Frame{Tag: to(c.stage, 5, 0), Payload: []byte("x")}); err != nil {
					t.Fatal(err)
				}
				lostWithin(t, s[2], cl.ids[0], c.least+time.Second)
				if took := time.Since(begun); took < c.least {
					t.Errorf("lost after %v", took)
				}
				if c.faulty {
					wantFrameFault(t, s[2], cl.ids[0])
				} else if _, err := s[2].Receive(t.Context(), cl.ids[0], to(1, 5, 0)); !errors.Is(err, ErrLost) || s[2].Fault(cl.ids[0]) != nil {
					t.Errorf("%v, with the fault %v", err, s[2].Fault(cl.ids[0]))
				}
			})
		})
	}
}
