package witness

import (
	"bytes"
	"context"
	"crypto/sha512"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/leader/blame"
	"pnode/node/outersteps"
	"pnode/pipeline/gather/seals"
	"pnode/pipeline/model"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// keys sign in the name of a peer: whoever knows the name can.
type keys plan.PeerID

func (k keys) Sign(message []byte) ([]byte, error) {
	signature := sha512.Sum512(append([]byte(k), message...))
	return signature[:], nil
}

func (keys) Verify(by plan.PeerID, message, signature []byte) error {
	if want, _ := keys(by).Sign(message); !bytes.Equal(signature, want) {
		return errors.New("another signature")
	}
	return nil
}

// run is one whose replicas, of two nodes each, have said and can show what they have of each other: "a0" and "a1" are of replica 0.
type run struct {
	state consensus.State
	round seals.Round
	mu    sync.Mutex // guards asked
	asked []outersteps.Question
	// silent do not answer, empty ones say that they have nothing.
	silent, empty map[plan.Replica]bool
	slow          map[plan.Replica]time.Duration // until they answer
	// other has what a replica shows of another in place of what it has.
	shows map[[2]plan.Replica]seals.Exhibit
}

func newRun(replicas int) *run {
	spec := plan.RunSpec{Run: "r", Model: model.Config{Vocab: 70, Context: 16, Blocks: 2, Heads: 2, Channels: 20}, Train: plan.TrainSpec{Steps: 10}}
	x := &run{silent: map[plan.Replica]bool{}, empty: map[plan.Replica]bool{}, shows: map[[2]plan.Replica]seals.Exhibit{}}
	x.state.Run = &spec
	x.state.Plan = plan.Plan{Generation: 3, Local: &plan.Local{Rounds: plan.Rounds{Every: 5, Fragments: 1}, Codec: "int8"}}
	for q := range replicas {
		var pipe plan.Pipeline
		for s, layers := range []plan.LayerRange{{First: 0, End: 2}, {First: 2, End: 4}} {
			pipe.Stages = append(pipe.Stages, plan.Placement{Peer: plan.PeerID(fmt.Sprintf("%c%d", 'a'+q, s)), Device: "cpu", Layers: layers})
		}
		x.state.Plan.Replicas = append(x.state.Plan.Replicas, pipe)
	}
	x.state.Partings = plan.Partings{{Recovery: "recovery", Generation: 2}, {Recovery: "later", Generation: 3}}
	x.round = seals.Of(spec, x.state.Plan, "recovery", 5)
	return x
}

// exhibit is of a replica whose message of a layer has another text than usual; -1: of none.
func (x *run) exhibit(of plan.Replica, other int) (e seals.Exhibit) {
	for layer := range 4 {
		m, text := seals.Message{Replica: of, Layer: layer}, "usual"
		if layer == other {
			text = "other"
		}
		s, _ := x.round.Seal(keys(x.round.Sender(m).Peer), m, []byte(text))
		e.Layers = append(e.Layers, s)
	}
	m := seals.Message{Replica: of, Layer: seals.Losses}
	e.Report = wire.AppendOuterReport(nil, wire.OuterReport{Losses: []float64{1, 2, 3, 4, 5}})
	s, _ := x.round.Seal(keys(x.round.Sender(m).Peer), m, e.Report)
	e.Seal = s.Seal
	return e
}

func (x *run) ask(ctx context.Context, _ plan.PeerID, q outersteps.Question) (seals.Exhibit, error) {
	x.mu.Lock()
	x.asked = append(x.asked, q)
	x.mu.Unlock()
	time.Sleep(x.slow[q.By])
	switch e, ok := x.shows[[2]plan.Replica{q.By, q.Of}]; {
	case x.silent[q.By]:
		<-ctx.Done()
		return e, ctx.Err()
	case x.empty[q.By]:
		return e, outersteps.ErrNothing
	case ok:
		return e, nil
	}
	return x.exhibit(q.Of, -1), nil
}

// hear has a hearing of contradictions, and returns what came of each and how long it took.
func (x *run) hear(t *testing.T, found ...plan.Contradiction) (heard []blame.Heard, took time.Duration) {
	var h Hearings
	begin, woken := time.Now(), make(chan struct{})
	c := Config{Ask: x.ask, Keys: keys(""), Log: slog.New(slog.DiscardHandler)}
	if _, over := h.Of(t.Context(), c, x.state, 5, found, func() { close(woken) }); over {
		t.Error("over before it began")
	}
	<-woken
	took = time.Since(begin)
	heard, over := h.Of(t.Context(), c, x.state, 5, found, func() { t.Error("a second hearing") })
	if !over {
		t.Error("it has ended, and is not over")
	}
	h.Wait()
	return heard, took
}

// said returns that a replica has one thing of another, which says that it has sent another.
func (x *run) said(by, of plan.Replica, has, sent seals.Exhibit) plan.Contradiction {
	return plan.Contradiction{By: by, Of: of, Has: plan.Part{Steps: 5, Sum: has.Sum()}, Sent: plan.Part{Steps: 5, Sum: sent.Sum()}}
}

func TestHearings(t *testing.T) {
	for name, c := range map[string]struct {
		change func(x *run) []plan.Contradiction
		want   string // By, Of, ByShows, OfShows and Twofold of each
		within time.Duration
	}{
		"a stage has sealed two messages": {func(x *run) []plan.Contradiction {
			x.shows[[2]plan.Replica{1, 0}] = x.exhibit(0, 1)
			return []plan.Contradiction{x.said(1, 0, x.exhibit(0, 1), x.exhibit(0, -1))}
		}, "[1 0 proven proven [a0]]", 0},
		"which two have found out": {func(x *run) []plan.Contradiction {
			x.shows[[2]plan.Replica{1, 0}], x.shows[[2]plan.Replica{2, 0}] = x.exhibit(0, 3), x.exhibit(0, 3)
			return []plan.Contradiction{x.said(1, 0, x.exhibit(0, 3), x.exhibit(0, -1)), x.said(2, 0, x.exhibit(0, 3), x.exhibit(0, -1))}
		}, "[1 0 proven proven [a1]]", 0},
		"stages of two replicas have": {func(x *run) []plan.Contradiction {
			x.shows[[2]plan.Replica{2, 0}], x.shows[[2]plan.Replica{2, 1}] = x.exhibit(0, 0), x.exhibit(1, 0)
			return []plan.Contradiction{x.said(2, 0, x.exhibit(0, 0), x.exhibit(0, -1)), x.said(2, 1, x.exhibit(1, 0), x.exhibit(1, -1))}
		}, "[2 0 proven proven [a0]] [2 1 proven proven [b0]]", 0},
		"a coordinator made its word up": {func(x *run) []plan.Contradiction {
			made := seals.Exhibit{Report: []byte{1}}
			return []plan.Contradiction{x.said(1, 0, made, x.exhibit(0, -1)), x.said(1, 2, made, x.exhibit(2, -1))}
		}, "[1 0 untrue proven []]", 0},
		"and has nothing to show": {func(x *run) []plan.Contradiction {
			x.empty[1] = true
			return []plan.Contradiction{x.said(1, 0, seals.Exhibit{}, x.exhibit(0, -1))}
		}, "[1 0 untrue proven []]", 0},
		"one has ended the round early": {func(x *run) []plan.Contradiction {
			return []plan.Contradiction{{By: 1, Of: 0, Has: plan.Part{Steps: 5, Sum: x.exhibit(0, -1).Sum()}, Seal: x.exhibit(0, -1).SealSum()}, x.said(2, 0, x.exhibit(0, 1), x.exhibit(0, -1))}
		}, "[1 0 proven proven []]", 0},
		"so one says, and had no seal, but has it since": {func(x *run) []plan.Contradiction {
			return []plan.Contradiction{{By: 1, Of: 0, Has: plan.Part{Steps: 5, Sum: x.exhibit(0, -1).Sum()}}}
		}, "[1 0 untrue proven []]", 0},
		"so one says, and cannot show it": {func(x *run) []plan.Contradiction {
			return []plan.Contradiction{{By: 1, Of: 0, Has: plan.Part{Steps: 4, Sum: x.exhibit(0, -1).Sum()}, Seal: x.exhibit(0, -1).SealSum()}}
		}, "[1 0 untrue proven []]", 0},
		"so one says, and is silent": {func(x *run) []plan.Contradiction {
			x.silent[1] = true
			return []plan.Contradiction{{By: 1, Of: 0, Has: plan.Part{Steps: 5}}}
		}, "[1 0 silent proven []]", answerTimeout},
		"a coordinator shows what was sealed in another lineage": {func(x *run) []plan.Contradiction {
			now := x.round
			x.round = seals.Of(now.Run, now.Plan, "", 5)
			before := x.exhibit(0, 1)
			x.round, x.shows[[2]plan.Replica{1, 0}] = now, before
			return []plan.Contradiction{x.said(1, 0, before, x.exhibit(0, -1))}
		}, "[1 0 untrue proven []]", 0},
		"one is silent": {func(x *run) []plan.Contradiction {
			x.silent[1] = true
			return []plan.Contradiction{x.said(1, 0, seals.Exhibit{}, x.exhibit(0, -1))}
		}, "[1 0 silent proven []]", answerTimeout},
		"all are silent, of whom there are many": {func(x *run) (all []plan.Contradiction) {
			for q := range x.state.Plan.Replicas {
				x.silent[plan.Replica(q)] = true
				for of := range q {
					all = append(all, x.said(plan.Replica(q), plan.Replica(of), seals.Exhibit{}, seals.Exhibit{}))
				}
			}
			return all
		}, "[1 0 silent silent []] [2 0 silent silent []] [2 1 silent silent []] [3 0 silent silent []]", patience},
		"one would be asked too late": {func(x *run) (all []plan.Contradiction) {
			x.silent[1], x.silent[2], x.silent[3], x.slow = true, true, true, map[plan.Replica]time.Duration{0: answerTimeout / 4}
			for _, by := range []plan.Replica{1, 2, 3, 0} {
				all = append(all, x.said(by, 4, x.exhibit(4, -1), x.exhibit(4, -1)))
			}
			return append(all, x.said(5, 0, x.exhibit(0, -1), x.exhibit(0, -1)), x.said(3, 5, x.exhibit(5, -1), x.exhibit(5, -1)))
		}, "[1 4 silent proven []] [2 4 silent proven []] [3 4 silent proven []] [0 4 proven proven []]", patience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newRun(6)
				heard, took := x.hear(t, c.change(x)...)
				got := ""
				for _, h := range heard {
					names := map[blame.Shown]string{blame.Silent: "silent", blame.Proven: "proven", blame.Untrue: "untrue"}
					got += fmt.Sprintf(" [%d %d %s %s %v]", h.By, h.Of, names[h.ByShows], names[h.OfShows], h.Twofold)
				}
				if got != " "+c.want {
					t.Errorf("%s, want %s", got, c.want)
				}
				if took > c.within {
					t.Errorf("it took %v, want at most %v", took, c.within)
				}
				if slices.ContainsFunc(x.asked, func(q outersteps.Question) bool { return q.Generation != 3 || q.From != 5 }) || len(x.asked) > 2*mostOpen {
					t.Errorf("asked %+v", x.asked)
				}
			})
		})
	}
}

// TestWhatIsFoundLaterIsHeard: of a round in which one was hasty, contradictions of others too.
func TestWhatIsFoundLaterIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newRun(3)
		var h Hearings
		c := Config{Ask: x.ask, Keys: keys(""), Log: slog.New(slog.DiscardHandler)}
		hasty := []plan.Contradiction{{By: 1, Of: 0, Has: plan.Part{Steps: 5, Sum: x.exhibit(0, -1).Sum()}, Seal: x.exhibit(0, -1).SealSum()}}
		both := append(slices.Clone(hasty), x.said(1, 2, seals.Exhibit{}, x.exhibit(2, -1)))
		for _, found := range [][]plan.Contradiction{hasty, both, both} {
			h.Of(t.Context(), c, x.state, 5, found, func() {})
			synctest.Wait()
			if heard, over := h.Of(t.Context(), c, x.state, 5, found, func() {}); !over || len(heard) != len(found) {
				t.Errorf("%+v of %+v, over: %t", heard, found, over)
			}
		}
		if len(x.asked) != 4 {
			t.Errorf("asked %+v", x.asked)
		}
		h.Wait()
	})
}

// TestANewRoundHasANewHearing, whatever comes of the one before.
func TestANewRoundHasANewHearing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newRun(2)
		x.silent[0], x.silent[1] = true, true
		var h Hearings
		c := Config{Ask: x.ask, Keys: keys(""), Log: slog.New(slog.DiscardHandler)}
		found := []plan.Contradiction{x.said(1, 0, seals.Exhibit{}, seals.Exhibit{})}
		h.Of(t.Context(), c, x.state, 5, found, func() {})
		next := x.state
		next.Plan.Generation++
		h.Of(t.Context(), Config{Log: c.Log}, next, 5, found, func() {})
		synctest.Wait()
		if heard, over := h.Of(t.Context(), c, next, 5, found, func() {}); !over || len(heard) != 1 || heard[0].ByShows != blame.Silent {
			t.Errorf("%+v, over: %t", heard, over)
		}
		h.Wait()
		if heard, over := h.Of(t.Context(), c, next, 5, found, func() {}); !over || len(heard) != 1 {
			t.Errorf("the hearing before has replaced it: %+v, over: %t", heard, over)
		}
	})
}
