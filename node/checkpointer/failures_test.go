package checkpointer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pnode/checkpoint"
	"pnode/pipeline"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// apart is told with holders that do not answer: requests to each of them fail after a time.
type apart struct {
	told
	fakeLog
	fails  map[plan.PeerID]time.Duration
	until  time.Time // when they do not fail any more; zero is never
	why    error     // of requests that fail; nil is that they do not get there
	answer string    // of holders that get them; empty where they make the copy
	deny   error     // what the log answers to a CopyFailed; nil is that it takes it
}

func (a *apart) State() consensus.State   { return a.fakeLog.State() }
func (a *apart) Changed() <-chan struct{} { return a.fakeLog.Changed() }

func (a *apart) Propose(ctx context.Context, e consensus.Entry) error {
	failed, ok := e.(consensus.CopyFailed)
	if !ok {
		return a.told.Propose(ctx, e)
	}
	a.acts = append(a.acts, fmt.Sprintf("%s does not get to %s", failed.Peer, failed.Holder))
	if a.deny != nil {
		return a.deny
	}
	next, err := consensus.Apply(a.State(), e)
	if err == nil {
		a.set(next)
	}
	return err
}

func (a *apart) Ask(ctx context.Context, peer plan.PeerID, protocol string, request any) ([]byte, error) {
	answer, err := a.told.Ask(ctx, peer, protocol, request) // notes it
	took, fails := a.fails[peer]
	if !fails || !a.until.IsZero() && time.Now().After(a.until) {
		return answer, err
	}
	time.Sleep(took)
	if a.answer != "" {
		return []byte(a.answer), nil
	}
	return nil, cmp.Or(a.why, errors.New("no way there"))
}

// TestAHolderOutOfReachIsReplaced: once copies have not got there for some time, whether one waits for that long or several fail at once, and by the
// same save. One that fails for a moment changes nothing, nor do more where there is nobody else or where the holder itself says why. Nothing is
// said twice.
func TestAHolderOutOfReachIsReplaced(t *testing.T) {
	const every, slow = 8 * time.Second, 30 * time.Second
	many := func(n int, act string) string { return strings.Repeat(act+", ", n) }
	tries := 1 + int(holderPatience/copyAgain)
	for name, c := range map[string]struct {
		members []plan.PeerID
		fails   map[plan.PeerID]time.Duration
		answer  string
		why     error
		back    time.Duration // after which they do not fail any more; 0 is never
		pauses  time.Duration // when the plan ends; 0 is never
		deny    error
		want    []string // of each save, from step 21 on
	}{
		"which does not answer": {members: []plan.PeerID{"b", "c", "me"}, fails: map[plan.PeerID]time.Duration{"b": slow}, want: []string{
			"copy of 21 to b, me does not get to b, copy of 21 to c, report 21 of 3: [me c]",
			"copy of 22 to c, report 22 of 3: [me c]",
		}},
		"which cannot be dialed": {members: []plan.PeerID{"b", "c", "me"}, fails: map[plan.PeerID]time.Duration{"b": 0}, want: []string{
			many(tries, "copy of 21 to b") + "me does not get to b, copy of 21 to c, report 21 of 3: [me c]",
			"copy of 22 to c, report 22 of 3: [me c]",
		}},
		"which gets nothing from here": {members: []plan.PeerID{"b", "c", "me"}, fails: map[plan.PeerID]time.Duration{"b": slow}, answer: copyUnsent, want: []string{
			"copy of 21 to b, me does not get to b, copy of 21 to c, report 21 of 3: [me c]",
		}},
		"and so is the next one": {members: []plan.PeerID{"b", "c", "d", "me"}, fails: map[plan.PeerID]time.Duration{"b": slow, "c": 0}, want: []string{
			"copy of 21 to b, me does not get to b, " + many(tries, "copy of 21 to c") + "me does not get to c, copy of 21 to d, report 21 of 3: [me d]",
			"copy of 22 to d, report 22 of 3: [me d]",
		}},
		"not for a moment": {members: []plan.PeerID{"b", "c", "me"}, fails: map[plan.PeerID]time.Duration{"b": 0}, back: 5*time.Second - 1, want: []string{
			many(6, "copy of 21 to b") + "report 21 of 3: [me b]",
			"copy of 22 to b, report 22 of 3: [me b]",
		}},
		"not while another plan is to follow": {members: []plan.PeerID{"b", "c", "me"}, fails: map[plan.PeerID]time.Duration{"b": 0}, pauses: 5*time.Second - 1, want: []string{
			many(5, "copy of 21 to b") + "report 21 of 3: [me]",
		}},
		"not without another one": {members: []plan.PeerID{"b", "me"}, fails: map[plan.PeerID]time.Duration{"b": 0}, want: []string{
			many(tries, "copy of 21 to b") + "me does not get to b, report 21 of 3: [me]",
			"copy of 22 to b, report 22 of 3: [me]",
			"copy of 23 to b, report 23 of 3: [me]",
		}},
		"not where it says why": {members: []plan.PeerID{"b", "c", "me"}, fails: map[plan.PeerID]time.Duration{"b": slow}, why: fmt.Errorf("%w: no room", ErrRemote), want: []string{
			"copy of 21 to b, report 21 of 3: [me]",
			"copy of 22 to b, report 22 of 3: [me]",
		}},
		"not where it waits for another plan": {members: []plan.PeerID{"b", "c", "me"}, fails: map[plan.PeerID]time.Duration{"b": slow}, answer: copyEnded, want: []string{
			"copy of 21 to b, report 21 of 3: [me]",
			"copy of 22 to b, report 22 of 3: [me]",
		}},
		"not where this node is short of files": {members: []plan.PeerID{"b", "c", "me"}, fails: map[plan.PeerID]time.Duration{"b": slow}, why: syscall.EMFILE, want: []string{
			"copy of 21 to b, report 21 of 3: [me]",
		}},
		"not where the log refuses it": {
			members: []plan.PeerID{"b", "c", "me"}, fails: map[plan.PeerID]time.Duration{"b": slow}, deny: consensus.ErrRejected,
			want: []string{"copy of 21 to b, me does not get to b, report 21 of 3: [me]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				current := plan.Plan{Generation: 3, Start: 20, Replicas: []plan.Pipeline{
					{Stages: []plan.Placement{{Peer: "me", Holder: "b", Layers: plan.LayerRange{End: 1}}}},
				}}
				store, err := checkpoint.Open(quickDir(t), checkpoint.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer store.Close()
				log := &apart{fails: c.fails, answer: c.answer, why: c.why, deny: c.deny}
				if c.back > 0 {
					log.until = time.Now().Add(c.back)
				}
				log.changed = make(chan struct{})
				log.set(consensus.State{Run: &plan.RunSpec{}, Plan: current, Members: members(c.members...), Checkpoint: consensus.Checkpoint{
					Step: 20, Generation: 2, Layers: []consensus.LayerRef{{Holders: []plan.PeerID{"me", "b"}}},
				}})
				saver := New(Config{Self: "me", Store: store, Consensus: log, Peers: log, Log: slog.New(slog.DiscardHandler)}).For(current)
				if c.pauses > 0 {
					time.AfterFunc(c.pauses, func() {
						state := log.State()
						state.PauseWanted++
						log.set(state)
					})
				}
				var got []string
				for step := plan.Step(21); len(got) < len(c.want); step++ {
					if err := saver.Save(t.Context(), pipeline.State{Step: step, Layers: []pipeline.LayerState{{Reader: strings.NewReader("state")}}}); err != nil {
						t.Fatal(err)
					}
					got, log.acts = append(got, strings.Join(log.acts, ", ")), nil
					time.Sleep(every)
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("got  %q\nwant %q", got, c.want)
				}
			})
		})
	}
}

// TestAHolderIsNotBlamedForWhatIsNotHere: it was to get from others what this node has not stored, and cannot.
func TestAHolderIsNotBlamedForWhatIsNotHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &apart{fails: map[plan.PeerID]time.Duration{"b": 30 * time.Second}, answer: copyUnsent}
		log.changed = make(chan struct{})
		log.set(consensus.State{Run: &plan.RunSpec{}, Members: members("b", "c", "me"), Plan: plan.Plan{Generation: 3, Replicas: []plan.Pipeline{
			{Stages: []plan.Placement{{Peer: "me", Holder: "b", Layers: plan.LayerRange{End: 1}}}},
		}}})
		saver := New(Config{Self: "me", Store: emptyStore(t), Consensus: log, Peers: log, Log: slog.New(slog.DiscardHandler)}).For(log.State().Plan)
		holder := saver.copy(t.Context(), copyRequest{Generation: 3, Step: 21, Chunks: []plan.Hash{{7}}}, time.Minute)
		if want := []string{"copy of 21 to b"}; holder != "" || !slices.Equal(log.acts, want) {
			t.Errorf("%q has a copy after %q, want %q", holder, log.acts, want)
		}
	})
}

// TestACopyEndsWhereItsHolderDoesNotAnswer: long before its connection does, but for one that takes long and whose holder answers now and then.
func TestACopyEndsWhereItsHolderDoesNotAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		answers func(since time.Duration) bool
		ends    time.Duration // 0 is never
	}{
		"never":        {func(time.Duration) bool { return false }, holderPatience},
		"not any more": {func(since time.Duration) bool { return since < 15*time.Second }, 14*time.Second + holderPatience},
		"now and then": {func(since time.Duration) bool { return since%(holderPatience-answerEvery) == 0 }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				checkpointer := &Checkpointer{Config: Config{Answers: func(context.Context, plan.PeerID) bool { return c.answers(time.Since(began)) }}}
				ctx, free := checkpointer.untilSilent(t.Context(), "b")
				select {
				case <-ctx.Done():
				case <-time.After(10 * time.Minute):
				}
				heard := free().Sub(began)
				if want := c.ends - holderPatience; c.ends != 0 && heard != want {
					t.Errorf("it was heard of last after %v, want %v", heard, want)
				}
				if took := time.Since(began); c.ends != 0 && took != c.ends || !errors.Is(context.Cause(ctx), errSilent) != (c.ends == 0) {
					t.Errorf("after %v: %v, want after %v", took, context.Cause(ctx), c.ends)
				}
			})
		})
	}
}
