package consensus

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pnode/planner/plan"
	"pnode/swarm/consensus/rounds"
)

// localHistory is a run with local steps whose members die, are slow, come late, or lie.
type localHistory struct {
	t    *testing.T
	rng  *rand.Rand
	seen map[string]int
	s    State
	// restored is the same state by way of snapshots, as nodes have it that were started again.
	restored State
	used     map[int64]bool // micro-batches that counted up to the newest outer step
	usedAt   map[plan.Step]map[int64]bool
	makers   map[plan.Step]map[plan.Replica]plan.PeerID // who computes the replicas that an outer step counts
	early    map[counted]bool                           // whether a round was closed before anybody said what it has
	past     []Entry
	epoch    uint64
}

// counted is a round of a generation.
type counted struct {
	plan.Generation
	plan.Step
}

// TestLocalHistories has random entries applied as their authors propose them. Whatever comes, nodes that have restored snapshots agree with those that have not,
// no entry has another effect the second time, rounds are merged by quorums, and no micro-batch counts twice or is forgotten.
func TestLocalHistories(t *testing.T) {
	seen, histories := map[string]int{}, uint64(120)
	if testing.Short() {
		histories = 40
	}
	for seed := range histories {
		rng := rand.New(rand.NewPCG(seed, 21))
		spec := testRun().Spec
		spec.Train.Micros, spec.Train.Steps, spec.Train.CheckpointEvery, spec.Train.KeepCheckpoints = 3+rng.IntN(6), plan.Step(20+rng.IntN(40)), plan.Step(rng.IntN(9)), 3
		x := &localHistory{t: t, rng: rng, seen: seen, used: map[int64]bool{}, usedAt: map[plan.Step]map[int64]bool{0: {}}, makers: map[plan.Step]map[plan.Replica]plan.PeerID{}, early: map[counted]bool{}}
		x.s = withLocalSteps(t, spec, fmt.Sprintf("sync=local:warmup/%d%%", 5*rng.IntN(3)))
		x.restored = x.s
		for _, peer := range peersOf("a,b,c,d") {
			x.starts(peer)
		}
		x.must("a", Lead{Peer: "a", Term: 1})
		for event := 0; x.s.Checkpoint.Step < spec.Train.Steps; event++ {
			if event == 20000 {
				t.Fatalf("seed %d: at step %d of %d after %d entries: %s", seed, x.s.Checkpoint.Step, spec.Train.Steps, event, describe(x.s))
			}
			x.next()
		}
		if c := x.s.Plan.Coordinator().Peer; c != Finisher(x.s) {
			seen["another finishes"]++
			if err := Authorize(x.s, Author{Peer: c}, Finish{}); !errors.Is(err, ErrForbidden) {
				t.Fatalf("seed %d: %v of a finish by %s, which has no part in the last step", seed, err, c)
			}
		}
		x.must(Finisher(x.s), Finish{})
	}
	for _, what := range []string{
		"merged", "saved", "last", "left out", "disputed", "stuck", "early", "given back", "every-step", "rolled back", "went back", "killed", "paused", "stopped", "refused", "late", "hasty", "own", "copied", "an older own", "no own is left", "a wrong own",
	} {
		if seen[what] < int(histories/30) {
			t.Errorf("%s: only %d times in all histories %v", what, seen[what], seen)
		}
	}
}

// starts has a process of a peer begin.
func (x *localHistory) starts(peer plan.PeerID) {
	x.epoch++
	x.s.Grants, x.restored.Grants = []Grant{{Serial: 1, Peers: peersOf("a,b,c,d")}}, []Grant{{Serial: 1, Peers: peersOf("a,b,c,d")}}
	x.must(peer, Join{Peer: peer, ProcessEpoch: x.epoch})
	x.must(peer, SetMemberState{Peer: peer, ProcessEpoch: x.epoch, State: Active})
}

func (x *localHistory) must(by plan.PeerID, e Entry) {
	x.t.Helper()
	if err := x.propose(by, e); err != nil {
		x.t.Fatalf("%T of %s: %v in %s", e, by, err, describe(x.s))
	}
}

// propose has an entry applied on all nodes, and returns the refusal.
func (x *localHistory) propose(by plan.PeerID, e Entry) error {
	t := x.t
	e, err := DecodeEntry(encoded(t, e))
	if err != nil {
		t.Fatal(err)
	}
	author := Author{by, x.s.LeaderTerm}
	if x.s.Leader == "" {
		author.Term = 1
	}
	if err := Authorize(x.s, author, e); err != nil {
		if other := Authorize(x.restored, author, e); other == nil {
			t.Fatalf("%#v is allowed after a snapshot, and is not: %v", e, err)
		}
		return err
	}
	before, _ := EncodeState(x.s)
	next, err := Apply(x.s, e)
	restored, other := Apply(x.restored, e)
	if after, _ := EncodeState(x.s); !bytes.Equal(before, after) {
		t.Fatalf("%#v changes the state before", e)
	}
	if fmt.Sprint(err) != fmt.Sprint(other) {
		t.Fatalf("%#v: %v, and after a snapshot: %v", e, err, other)
	}
	if err != nil {
		x.seen["refused"]++
		return err
	}
	if again, err := Apply(next, e); err != nil || !reflect.DeepEqual(again, next) {
		t.Fatalf("%#v a second time: %v\n%s\n%s", e, err, describe(next), describe(again))
	}
	x.check(next)
	x.s, x.restored = next, restored
	one, _ := EncodeState(x.s)
	two, _ := EncodeState(x.restored)
	if !bytes.Equal(one, two) {
		t.Fatalf("nodes differ after %#v:\n%s\n%s", e, one, two)
	}
	if x.rng.IntN(4) == 0 {
		if x.restored, err = DecodeState(bytes.NewReader(two)); err != nil {
			t.Fatalf("%v: %s", err, describe(x.s))
		}
	}
	x.past = append(x.past, e)
	return nil
}

// check compares what an entry has led to with what may be.
func (x *localHistory) check(next State) {
	t, was := x.t, x.s
	if m := next.Merged; m != nil && (was.Merged == nil || was.Merged.From != m.From || was.Plan.Generation != m.Generation) {
		r := was.Round
		if r == nil || r.From != m.From || m.Generation != next.Plan.Generation {
			t.Fatalf("merged after step %d: %s, then %s", m.From, describe(was), describe(next))
		}
		micros := 0
		for q, part := range m.Parts {
			pipe := was.Plan.Replicas[q]
			if part.Steps > 0 {
				micros += pipe.Micros
			}
			for i := range int64(part.Steps) * int64(pipe.Micros) {
				x.uses(r.Stream.At(int64(r.End-r.From)*int64(pipe.FirstMicro) + i))
			}
		}
		if 2*micros < was.Run.Train.Micros {
			t.Fatalf("merged by %d of %d micro-batches", micros, was.Run.Train.Micros)
		}
		x.seen["merged"]++
		for what, is := range map[string]bool{"last": m.Last, "disputed": len(m.Disputed) > 0, "left out": len(r.LeftOut) > 0, "early": m.To < r.End} {
			if is {
				x.seen[what]++
			}
		}
		if m.Save {
			x.makers[m.To] = map[plan.Replica]plan.PeerID{}
			for _, r := range m.Counted() {
				x.makers[m.To][r] = was.Plan.Replicas[r].Stages[0].Peer
			}
			x.usedAt[m.To] = maps.Clone(x.used)
		}
	}
	if c := next.Checkpoint; c.Step > was.Checkpoint.Step {
		x.seen["saved"]++
		if was.Plan.Local == nil {
			stream := was.Plan.Stream.Full(was.Plan.Start, was.Run.Train.Micros)
			for i := range int64(c.Step-was.Plan.Start) * int64(was.Run.Train.Micros) {
				x.uses(stream.At(i))
			}
			x.usedAt[c.Step] = maps.Clone(x.used)
			x.used = maps.Clone(x.usedAt[was.Plan.Start]) // the next checkpoint of this plan begins there
		}
		full, used := c.Stream.Full(c.Step, was.Run.Train.Micros), x.usedAt[c.Step]
		left := map[int64]bool{}
		for _, given := range full.Given {
			x.seen["given back"]++
			for n := given.First; n < given.End; n++ {
				left[n] = true
			}
		}
		for n := range full.Fresh {
			if used[n] == left[n] {
				t.Fatalf("step %d: micro-batch %d counted: %t, is left: %t", c.Step, n, used[n], left[n])
			}
		}
		for n := range used {
			if n >= full.Fresh {
				t.Fatalf("step %d: micro-batch %d counted, and is left from %d on", c.Step, n, full.Fresh)
			}
		}
	}
	x.checkOwn(next)
	if r := next.Round; r != nil && was.Round != nil && r.From == was.Round.From && next.Plan.Generation == was.Plan.Generation {
		if was.Round.Closed && !r.Closed || (next.StopWanted || next.Paused()) && !r.Closed {
			t.Fatalf("a round is open again: %s, then %s", describe(was), describe(next))
		}
		if len(r.Hasty) > len(was.Round.Hasty) {
			x.seen["hasty"]++
		}
	}
	if next.Plan.Generation != was.Plan.Generation {
		x.used = maps.Clone(x.usedAt[next.Plan.Start])
		if (next.Plan.Local != nil && next.Plan.Start < next.Run.Train.Steps) != (next.Round != nil) || next.Merged != nil {
			t.Fatalf("a plan begins with %+v and %+v", next.Round, next.Merged)
		}
	}
}

// checkOwn wants what replicas have for themselves to be of those that computed it, and that of one of them in each checkpoint.
func (x *localHistory) checkOwn(next State) {
	t := x.t
	for _, c := range slices.Concat(Checkpoints(next), next.Pending) {
		for _, o := range c.Own {
			for _, l := range o.Layers {
				if made := x.makers[c.Step][o.Replica]; l.maker() != made || len(l.Holders) > 1 {
					t.Fatalf("step %d: %v have layer %d of replica %d, which %q has computed", c.Step, l.Holders, l.Layer, o.Replica, made)
				}
			}
		}
		if len(c.Own) > 0 && len(c.Own) != len(x.makers[c.Step]) {
			t.Fatalf("step %d: own states of %d replicas, %d were counted", c.Step, len(c.Own), len(x.makers[c.Step]))
		}
	}
	for _, c := range Checkpoints(next) {
		if len(c.Own) > 0 && !slices.ContainsFunc(c.Own, func(o OwnState) bool { return len(o.Layers) == 3 }) {
			t.Fatalf("step %d is committed without the state of any replica: %s", c.Step, describe(next))
		}
	}
}

func (x *localHistory) uses(n int64) {
	if x.used[n] {
		x.t.Fatalf("micro-batch %d counts twice: %s", n, describe(x.s))
	}
	x.used[n] = true
}

// next proposes something that fits, or something at random.
func (x *localHistory) next() {
	s, rng := x.s, x.rng
	if rng.IntN(3) == 0 {
		x.disturb()
		return
	}
	gone := slices.ContainsFunc(s.Members, func(m Member) bool { return m.State == Gone })
	switch {
	case s.StopWanted:
		if s.Ended() || s.Round == nil || rng.IntN(30) == 0 {
			x.must("a", Resume{Incarnation: s.Incarnation + 1})
			return
		}
	case s.Plan.Generation == 0 || s.Ended() || s.wentBack() || s.Checkpoint.Step < s.Plan.Start || s.Round == nil && s.Plan.Local != nil && len(s.Pending) == 0:
		x.plans()
		return
	case s.Round != nil && len(s.Round.Missing()) == 0: // those that are not in a dispute are no quorum
		x.seen["stuck"]++
		x.plans()
		return
	case gone && s.Plan.Local == nil:
		x.plans()
		return
	}
	if len(s.Pending) > 0 || s.Plan.Local == nil {
		x.saves()
	}
	if r := x.s.Round; r != nil {
		x.goesOn(*r)
	}
}

// goesOn has the coordinators of a round say what they have, and the leader leave out who is gone.
func (x *localHistory) goesOn(r rounds.Round) {
	s, rng := x.s, x.rng
	missing := r.Missing()
	if len(missing) == 0 {
		return
	}
	q := missing[rng.IntN(len(missing))]
	by := plan.CoordinatorOf(s.Plan, q).Peer
	hasty := slices.ContainsFunc(r.Hasty, func(c plan.Contradiction) bool { return c.Of == q })
	if m, _ := s.Member(by); m.State != Active || s.Reborn(m) || hasty && rng.IntN(3) == 0 {
		if err := x.propose("a", LeaveOut{Generation: s.Plan.Generation, From: r.From, Replica: q, Reason: "gone"}); err != nil && !s.StopWanted {
			x.plans() // no quorum is left
		}
		return
	}
	if err := x.propose(by, x.gathered(r, q)); err != nil && strings.Contains(err.Error(), "ended the round after") && !x.hasty(r, q) {
		x.t.Fatalf("replica %d is not believed: %v in %s", q, err, describe(s))
	}
}

// hasty reports whether a replica ends a round before it is closed.
func (x *localHistory) hasty(r rounds.Round, q plan.Replica) bool {
	chance := rand.New(rand.NewPCG(uint64(r.From)<<16|uint64(q), uint64(x.s.Plan.Generation)))
	return r.End-r.From > 1 && chance.IntN(12) == 0
}

// gathered returns what a replica says that it has in a round: most say what is so.
func (x *localHistory) gathered(r rounds.Round, q plan.Replica) Gathered {
	e := Gathered{Generation: x.s.Plan.Generation, From: r.From, Replica: q, Due: x.rng.IntN(6) == 0}
	early, known := x.early[counted{e.Generation, r.From}]
	if !known { // who is done before a round is closed has made all steps
		early = r.Closed
		x.early[counted{e.Generation, r.From}] = early
	}
	for other := range x.s.Plan.Replicas {
		done := r.End - r.From
		if slow := rand.New(rand.NewPCG(uint64(r.From)<<8|uint64(other), uint64(e.Generation))); early {
			done = 1 + plan.Step(slow.IntN(int(done)))
		} else if x.hasty(r, plan.Replica(other)) {
			done = 1 + plan.Step(slow.IntN(int(done-1)))
		}
		e.Parts = append(e.Parts, plan.Part{Steps: done, Sum: plan.Hash{byte(other), byte(done), 1}})
		for _, out := range r.LeftOut {
			if int(out.Replica) == other && x.rng.IntN(2) == 0 {
				e.Parts[other] = plan.Part{}
			}
		}
	}
	if apart := rand.New(rand.NewPCG(uint64(r.From), uint64(e.Generation)<<8)); apart.IntN(10) == 0 { // everybody has something else
		for other := range e.Parts {
			if e.Parts[other].Steps > 0 {
				e.Parts[other].Sum[2] = byte(q)
			}
		}
	}
	if x.rng.IntN(12) == 0 {
		e.Parts[x.rng.IntN(len(e.Parts))].Sum[2] = byte(x.rng.IntN(256))
	}
	return e
}

// saves has a worker say that it has stored its layers.
func (x *localHistory) saves() {
	s := x.s
	of := s.Checkpoint.Step + 1
	if len(s.Pending) > 0 {
		of = s.Pending[x.rng.IntN(len(s.Pending))].Step
	}
	peers := s.Plan.Peers()
	by := peers[x.rng.IntN(len(peers))]
	saved := layersSaved(s, of, by)
	if s.Plan.Local != nil && x.rng.IntN(3) > 0 {
		r := plan.Replica(x.rng.IntN(len(s.Plan.Replicas)))
		saved.Own = &r
		for i := range saved.Layers {
			saved.Layers[i].Chunks = []plan.Hash{{byte(i), 1 + byte(r)}}
		}
		if x.rng.IntN(3) == 0 {
			saved.Layers = saved.Layers[:1+x.rng.IntN(2)]
		}
	}
	saved.Last = s.Paused() || s.StopWanted || s.Plan.Local != nil || of == s.Run.Train.Steps
	err := x.propose(by, saved)
	if of := saved.Own; err == nil && of != nil && x.makers[saved.Step][*of] != by {
		x.t.Fatalf("%s saves what replica %d has for itself, of which %s computes", by, *of, x.makers[saved.Step][*of])
	}
}

// begins has replicas of a plan begin with own states, where the checkpoint has such. It returns false where members that hold one have to come back first.
func (x *localHistory) begins(p *plan.Plan) bool {
	all := OwnStates(x.s, x.s.Checkpoint)
	if len(x.s.Checkpoint.Own) == 0 {
		return true
	}
	if len(all) == 0 {
		x.seen["no own is left"]++
		for _, c := range Checkpoints(x.s) {
			for _, o := range c.Own {
				for _, l := range o.Layers {
					if !here(x.s, l.maker()) {
						x.starts(l.maker())
						return false
					}
				}
			}
		}
		x.t.Fatalf("no replica's state is held: %s", describe(x.s))
	}
	one, taken := all[x.rng.IntN(len(all))], map[plan.Own]bool{}
	for r := range p.Replicas {
		own := one
		if p.Local != nil {
			own = all[x.rng.IntN(len(all))]
			own.Copied = own.Copied || taken[own]
			taken[own] = true
		}
		if own.Copied {
			x.seen["copied"]++
		}
		if own.Step < p.Start {
			x.seen["an older own"]++
		}
		x.seen["own"]++
		p.Replicas[r].Own = &own
	}
	return true
}

// beginsWrong has a plan begin with what no checkpoint has, or with nothing.
func (x *localHistory) beginsWrong(e SetPlan) {
	if x.rng.IntN(5) > 0 {
		return
	}
	e.Plan.Replicas = slices.Clone(e.Plan.Replicas)
	own := &plan.Own{Replica: 60, Step: e.Plan.Start}
	switch had := e.Plan.Replicas[0].Own; {
	case had == nil:
	case x.rng.IntN(2) == 0:
		own = nil
	default:
		own = &plan.Own{Replica: had.Replica, Step: max(0, had.Step-1), Copied: true}
		for slices.ContainsFunc(Checkpoints(x.s), func(c Checkpoint) bool { return c.Step == own.Step }) {
			own.Replica = 60
			break
		}
	}
	for r := range e.Plan.Replicas {
		e.Plan.Replicas[r].Own = own
		if own != nil && r > 0 {
			copied := *own
			copied.Copied = e.Plan.Local != nil || own.Copied
			e.Plan.Replicas[r].Own = &copied
		}
	}
	if x.propose("a", e) == nil {
		x.t.Fatalf("a plan begins with %v: %s", own, describe(x.s))
	}
	x.seen["a wrong own"]++
}

// plans has the leader plan for who is there.
func (x *localHistory) plans() {
	s, rng := x.s, x.rng
	var active []plan.PeerID
	for _, m := range s.Members {
		if m.State == Active {
			active = append(active, m.Peer)
		}
	}
	if len(active) == 0 {
		x.starts("b")
		return
	}
	e := onePlan(s, active[rng.IntN(len(active))], max(1, s.Term), s.Plan.Generation+1)
	e.Plan.Stream, e.Plan.Replicas[0].Micros = s.Checkpoint.Stream, s.Run.Train.Micros
	if n := min(len(active), s.Run.Train.Micros); n > 1 && rng.IntN(5) > 0 {
		rng.Shuffle(len(active), func(i, j int) { active[i], active[j] = active[j], active[i] })
		n = 2 + rng.IntN(n-1)
		e.Plan.Local = &plan.Local{Rounds: plan.Rounds{Every: plan.Step(1 + rng.IntN(8)), Fragments: 1}, Codec: "int8"}
		e.Plan.Replicas = nil
		for next, q := 0, 0; q < n; q++ {
			micros := s.Run.Train.Micros - next
			if left := n - q - 1; left > 0 {
				micros = 1 + rng.IntN(micros-left)
			}
			e.Plan.Replicas = append(e.Plan.Replicas, plan.Pipeline{FirstMicro: plan.Micro(next), Micros: micros, Warmups: []int{0}, Stages: []plan.Placement{{Peer: active[q], Device: "cpu", Layers: plan.LayerRange{End: 3}}}})
			next += micros
		}
	} else {
		x.seen["every-step"]++
	}
	if !x.begins(&e.Plan) {
		return
	}
	x.beginsWrong(e)
	warm := s.Run.Train.Sync.WarmupEnd(s.Run.Train.Steps)
	if err := x.propose("a", e); err != nil && (e.Plan.Local == nil || e.Plan.Start >= warm) || err == nil && e.Plan.Local != nil && e.Plan.Start < warm {
		x.t.Fatalf("a plan: %v in %s", err, describe(s))
	}
}

// disturb has something happen that nobody wishes for, or that comes late.
func (x *localHistory) disturb() {
	s, rng := x.s, x.rng
	peer := peersOf("b,c,d")[rng.IntN(3)]
	m, _ := s.Member(peer)
	seen := func(what string, err error) {
		if err == nil {
			x.seen[what]++
		}
	}
	from := plan.Step(0)
	if s.Round != nil {
		from = s.Round.From
	}
	switch rng.IntN(24) {
	case 0, 1:
		if m.State != Gone {
			seen("killed", x.propose("a", SetMemberState{Peer: peer, ProcessEpoch: m.ProcessEpoch, State: Gone, Reason: "dead"}))
		}
	case 2, 3, 4:
		if m.State == Gone {
			x.starts(peer)
		}
	case 5:
		x.starts(peer) // it was taken for alive
	case 6:
		seen("paused", x.propose("a", WantPause{Count: s.PauseWanted + 1}))
	case 7:
		if rng.IntN(4) == 0 {
			seen("stopped", x.propose("a", WantStop{}))
		}
	case 8:
		if len(s.Older) > 0 && rng.IntN(4) == 0 {
			seen("rolled back", x.propose("a", Rollback{From: s.Checkpoint.Step, To: s.Older[0].Step, Term: max(1, s.Term)}))
		}
	case 9:
		if len(s.Older) > 0 && s.Plan.Generation > 0 && rng.IntN(4) == 0 {
			seen("went back", x.propose("a", Blame{Accuser: peer, Kind: plan.LossJump, Generation: s.Plan.Generation, Step: s.Checkpoint.Step + 1, Detail: "7 after 3", Back: s.Older[0].Step}))
		}
	case 10, 11:
		_ = x.propose("a", CloseRound{Generation: s.Plan.Generation, From: from})
	case 12:
		_ = x.propose("a", LeaveOut{Generation: s.Plan.Generation, From: from, Replica: plan.Replica(rng.IntN(5)), Reason: "its lines are gone"})
	case 13, 14:
		if err := x.propose(peer, CloseRound{Generation: s.Plan.Generation, From: from}); err == nil {
			x.t.Fatalf("%s closes a round", peer)
		}
	case 15, 16, 17:
		if s.Round != nil { // in another one's name
			q := plan.Replica(rng.IntN(len(s.Plan.Replicas)))
			if by := plan.CoordinatorOf(s.Plan, q).Peer; by != peer {
				if err := x.propose(peer, x.gathered(*s.Round, q)); !errors.Is(err, ErrForbidden) {
					x.t.Fatalf("%s for replica %d of %s: %v", peer, q, by, err)
				}
			}
		}
	default:
		switch e := x.past[rng.IntN(len(x.past))].(type) {
		case Gathered, CloseRound, LeaveOut, StageSaved:
			before, by := x.s, plan.PeerID("a")
			switch e := e.(type) {
			case Gathered:
				by = cmp.Or(e.by(x.s), by)
			case StageSaved:
				by = e.Layers[0].Holders[0]
			}
			if x.propose(by, e) == nil && !reflect.DeepEqual(before.Merged, x.s.Merged) {
				x.t.Fatalf("%#v comes again and merges", e)
			}
			x.seen["late"]++
		}
	}
}
