package outersteps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pnode/pipeline/gather"
	"pnode/pipeline/gather/seals"
	"pnode/pipeline/meeting"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
	"pnode/swarm/consensus/rounds"
)

// log is a log that refuses and loses what is proposed, as a test says, and takes nothing in by itself.
type log struct {
	mu      sync.Mutex // guards the rest
	state   consensus.State
	changed chan struct{}
	said    []plan.Gathered
	answer  error
}

// three is a log in the first round of a plan of three replicas.
func three() *log {
	run := plan.RunSpec{Train: plan.TrainSpec{Micros: 6, Steps: 40}}
	p := plan.Plan{Generation: 2, Local: &plan.Local{Rounds: plan.Rounds{Every: 10, Fragments: 1}}}
	for r := range 3 {
		p.Replicas = append(p.Replicas, plan.Pipeline{FirstMicro: plan.Micro(2 * r), Micros: 2})
	}
	return &log{state: consensus.State{Run: &run, Plan: p, Round: rounds.First(run, p)}, changed: make(chan struct{})}
}

func (l *log) State() consensus.State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

func (l *log) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

func (l *log) Propose(_ context.Context, e consensus.Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = append(l.said, plan.Gathered(e.(consensus.Gathered)))
	return l.answer
}

// change changes the state, and has whoever waits for that act.
func (l *log) change(by func(*consensus.State)) {
	l.mu.Lock()
	by(&l.state)
	close(l.changed)
	l.changed = make(chan struct{})
	l.mu.Unlock()
	synctest.Wait()
}

func (l *log) leaveOut(q plan.Replica) {
	l.change(func(s *consensus.State) {
		next, _ := s.Round.LeaveOut(s.Plan, rounds.LeftOut{Replica: q})
		s.Round = &next
	})
}

// has returns what a replica says to have: as many inner steps of each as the numbers say.
func has(from plan.Step, steps ...plan.Step) plan.Gathered {
	g := plan.Gathered{Generation: 2, From: from}
	for _, n := range steps {
		g.Parts = append(g.Parts, plan.Part{Steps: n})
	}
	return g
}

// TestWhatTheLogIsTold: the first word that lacks nothing of who is waited for, and never another one of the round.
func TestWhatTheLogIsTold(t *testing.T) {
	lost := errors.New("no leader")
	stale := fmt.Errorf("%w: %w", consensus.ErrRejected, consensus.ErrStale)
	for name, c := range map[string]struct {
		happens func(l *log, r *Rounds)
		want    [][]plan.Step // by word, the steps of each
	}{
		"one is missing": {func(_ *log, r *Rounds) { r.Have(has(0, 9, 10, 0), nil) }, nil},
		"all are there": {func(_ *log, r *Rounds) {
			r.Have(has(0, 9, 10, 0), nil)
			synctest.Wait()
			r.Have(has(0, 9, 10, 10), nil)
		}, [][]plan.Step{{9, 10, 10}}},
		"one is left out, which comes then": {func(l *log, r *Rounds) {
			r.Have(has(0, 9, 10, 0), nil)
			l.leaveOut(2)
			l.answer = lost
			r.Have(has(0, 9, 10, 10), nil)
			time.Sleep(3 * againAfter / 2)
		}, [][]plan.Step{{9, 10, 0}, {9, 10, 0}, {9, 10, 0}}},
		"this one is left out": {func(l *log, r *Rounds) { l.leaveOut(0); r.Have(has(0, 9, 10, 10), nil) }, nil},
		"of another round":     {func(_ *log, r *Rounds) { r.Have(has(10, 9, 10, 10), nil) }, nil},
		"of the plan before": {func(l *log, r *Rounds) {
			l.change(func(s *consensus.State) { s.Plan.Generation++ })
			r.Have(has(0, 9, 10, 10), nil)
		}, nil},
		"the run has gone back": {func(l *log, r *Rounds) {
			l.change(func(s *consensus.State) { s.Round = nil })
			r.Have(has(0, 9, 10, 10), nil)
		}, nil},
		"the log has it": {func(l *log, r *Rounds) {
			l.state.Round.Gathered[0] = has(0, 9, 10, 10).Parts
			r.Have(has(0, 9, 10, 10), nil)
		}, nil},
		"nobody answers at first": {func(l *log, r *Rounds) {
			l.answer = lost
			r.Have(has(0, 9, 10, 10), nil)
			time.Sleep(5 * againAfter / 2)
		}, [][]plan.Step{{9, 10, 10}, {9, 10, 10}, {9, 10, 10}}},
		"it is too early": {func(l *log, r *Rounds) {
			l.answer = stale
			r.Have(has(0, 9, 10, 10), nil)
			synctest.Wait()
			l.change(func(*consensus.State) {})
		}, [][]plan.Step{{9, 10, 10}, {9, 10, 10}}},
		"it is refused": {func(l *log, r *Rounds) {
			l.answer = consensus.ErrRejected
			r.Have(has(0, 9, 10, 10), nil)
			synctest.Wait()
			l.change(func(*consensus.State) {})
			l.answer = nil
			l.change(func(s *consensus.State) { s.Round.From = 10 })
			r.Have(has(10, 9, 10, 9), nil)
		}, [][]plan.Step{{9, 10, 10}, {9, 10, 9}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := three()
				r := New(Config{Log: l, Plan: l.state.Plan, Words: &Words{}, Out: slog.New(slog.DiscardHandler)})
				ctx, end := context.WithCancel(t.Context())
				go r.Run(ctx)
				synctest.Wait()
				c.happens(l, r)
				synctest.Wait()
				end()
				synctest.Wait()
				var got [][]plan.Step
				for _, g := range l.said {
					var steps []plan.Step
					for _, part := range g.Parts {
						steps = append(steps, part.Steps)
					}
					got = append(got, steps)
				}
				if !slices.EqualFunc(got, c.want, slices.Equal) {
					t.Errorf("the log was told %v, want %v", got, c.want)
				}
			})
		})
	}
}

// TestSealsOfWhoEndsARoundEarly are told to the log, and no others.
func TestSealsOfWhoEndsARoundEarly(t *testing.T) {
	l := three()
	shown := []seals.Exhibit{{Seal: wire.Seal{1}}, {Seal: wire.Seal{2}}, {Seal: wire.Seal{3}}}
	for _, c := range []struct {
		has  plan.Gathered
		want []plan.Hash
	}{
		{has(0, 10, 10, 10), nil},
		{has(0, 10, 9, 10), []plan.Hash{{}, shown[1].SealSum(), {}}},
	} {
		r := New(Config{Log: l, Plan: l.state.Plan, Words: &Words{}})
		r.Have(c.has, shown)
		if g, ok := r.due(l.state, said{}); !ok || !slices.Equal(g.Seals, c.want) {
			t.Errorf("%t, %+v", ok, g)
		}
	}
}

// TestOuterStepsAreWaitedFor until the log has them, or another plan.
func TestOuterStepsAreWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(*consensus.State)
		to      plan.Step // 0: none comes
		over    bool
	}{
		"it is made":            {func(s *consensus.State) { s.Merged = &plan.Merged{Generation: 2, From: 10, To: 20} }, 20, false},
		"the one before":        {func(s *consensus.State) { s.Merged = &plan.Merged{Generation: 2, From: 0, To: 10} }, 0, false},
		"the last one":          {func(s *consensus.State) { s.Round, s.Merged = nil, &plan.Merged{Generation: 2, From: 10, To: 20} }, 20, false},
		"a later one":           {func(s *consensus.State) { s.Merged = &plan.Merged{Generation: 2, From: 20, To: 30} }, 0, true},
		"another plan":          {func(s *consensus.State) { s.Plan.Generation++ }, 0, true},
		"the run has gone back": {func(s *consensus.State) { s.Round = nil }, 0, false},
		"another plan's outer step": {func(s *consensus.State) {
			s.Plan.Generation++
			s.Merged = &plan.Merged{Generation: 3, From: 10, To: 20}
		}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := three()
				r := New(Config{Log: l, Plan: l.state.Plan, Words: &Words{}})
				ctx, end := context.WithTimeout(t.Context(), time.Hour)
				defer end()
				go l.change(func(s *consensus.State) { time.Sleep(time.Minute); c.happens(s) })
				m, err := r.Merged(ctx, 10)
				if m.To != c.to || errors.Is(err, ErrOver) != c.over || errors.Is(err, context.DeadlineExceeded) != (c.to == 0 && !c.over) {
					t.Errorf("%+v, %v", m, err)
				}
			})
		})
	}
}

// TestWhenRoundsEndEarly for a replica: where the log says so, which it does when the run pauses or stops, where it does without the replica, and where the plan ends.
func TestWhenRoundsEndEarly(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(*log)
		closed  bool
	}{
		"not":              {func(*log) {}, false},
		"another left out": {func(l *log) { l.leaveOut(2) }, false},
		"closed":           {func(l *log) { r := l.state.Round.Close(); l.state.Round = &r }, true},
		"left out":         {func(l *log) { l.leaveOut(0) }, true},
		"another plan":     {func(l *log) { l.state.Plan.Generation++ }, true},
		"none":             {func(l *log) { l.state.Round = nil }, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := three()
			r := New(Config{Log: l, Plan: l.state.Plan})
			c.happens(l)
			if got := r.Closed(); got != c.closed {
				t.Errorf("%s: closed: %t", name, got)
			}
		})
	}
}

// TestAFaultIsToldOnce of each member and round, however many messages of it are lacking.
func TestAFaultIsToldOnce(t *testing.T) {
	var said bytes.Buffer
	r := New(Config{Plan: plan.Plan{Generation: 2}, Words: &Words{}, Out: slog.New(slog.NewTextHandler(&said, nil))})
	for _, from := range []plan.Step{10, 10, 20} {
		for _, accused := range []plan.PeerID{"a", "b", "a"} {
			r.Found(from, plan.Fault{Accused: accused, Kind: plan.BadTensor, Step: from})
		}
	}
	if got := strings.Count(said.String(), "level=WARN"); got != 4 {
		t.Errorf("%d warnings of two members in two rounds:\n%s", got, &said)
	}
	if got := r.Words.Found(2); len(got) != 2 || got[0].From != 10 {
		t.Errorf("heartbeats tell %+v", got)
	}
}

// TestWhatHeartbeatsTell: of each replica here the newest word, of one generation.
func TestWhatHeartbeatsTell(t *testing.T) {
	var w Words
	w.hear(has(0, 9, 10, 0), nil)
	other := has(0, 9, 0, 0)
	other.Replica = 1
	w.hear(other, nil)
	if got := fmt.Sprint(w.Of(2)); got != "[{2 0 0 9 [2]} {2 0 1 0 [1 2]}]" {
		t.Error(got)
	}
	w.hear(has(10, 9, 9, 9), nil)
	if got := fmt.Sprint(w.Of(2)); got != "[{2 0 1 0 [1 2]} {2 10 0 9 []}]" {
		t.Error(got)
	}
	next := has(20, 5, 5, 5)
	next.Generation = 3
	w.hear(next, nil)
	if len(w.Of(2)) != 0 || len(w.Of(3)) != 1 {
		t.Errorf("of generation 2 %v, of 3 %v", w.Of(2), w.Of(3))
	}
}

// TestOuterStepsAreTold: of each replica here the newest, with what all of its workers here say together.
func TestOuterStepsAreTold(t *testing.T) {
	var w Words
	p := plan.Plan{Replicas: []plan.Pipeline{
		{Stages: []plan.Placement{{Peer: "a", Device: "cuda0"}, {Peer: "b", Device: "cpu"}, {Peer: "a", Device: "cuda1"}}},
		{Stages: []plan.Placement{{Peer: "a", Device: "cpu"}}},
	}}
	made := func(r plan.Replica, device string, from plan.Step, waited time.Duration) {
		w.Made(p, plan.WorkerID{Peer: "a", Device: device}, r, gather.Outcome{
			Merged: plan.Merged{Generation: 2, From: from}, Spread: meeting.Spread{Mean: 1, Squares: []float64{2, 3}, Dots: []float64{4, 5}},
			Took: gather.Took{SentBytes: 10, Round: time.Minute, Waited: waited, Hidden: time.Minute - waited},
		})
	}
	spell := func() (text string) {
		for _, m := range w.Met() {
			text += fmt.Sprintf("%d/%d: replica %d, %d stages, %d bytes, %d s of %d, %d hidden, %v; ",
				m.Generation, m.From, m.Replica, m.Stages, m.SentBytes, m.WaitedNanos/1e9, m.RoundNanos/1e9, m.HiddenNanos/1e9, m.Spread)
		}
		return text
	}
	made(1, "cpu", 0, time.Second)
	made(0, "cuda1", 0, 3*time.Second)
	before := w.Met()
	made(0, "cuda0", 0, 2*time.Second)
	if before[0].Spread.Mean != 1 || before[0].Spread.Dots[1] != 5 {
		t.Errorf("what was told has changed: %+v", before[0])
	}
	const one = "2/0: replica 1, 1 stages, 10 bytes, 1 s of 60, 59 hidden, {1 [2 3] [4 5]}; "
	if got := spell(); got != "2/0: replica 0, 2 stages, 20 bytes, 3 s of 60, 57 hidden, {2 [4 6] [8 10]}; "+one {
		t.Error(got)
	}
	made(0, "cuda0", 10, 4*time.Second)
	if got := spell(); got != "2/10: replica 0, 1 stages, 10 bytes, 4 s of 60, 56 hidden, {1 [2 3] [4 5]}; "+one {
		t.Error(got)
	}
}
