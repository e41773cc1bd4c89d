package generation

import (
	"context"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/ledger"
	"pnode/pipeline/link"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
	"pnode/swarm/consensus/rounds"
)

// rehearseLocal is rehearse with a run whose replicas make local steps.
func rehearseLocal(t *testing.T, members int, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rehearse(t, members, func(r *rig) {
			r.run.Train.Sync = plan.SyncRule{Local: true}
			r.mu.Lock()
			r.state.Run = &r.run
			r.mu.Unlock()
			f(r)
		})
	})
}

// local returns the next plan with rounds of 4 steps: for each replica its members.
func (r *rig) local(replicas ...[]int) plan.Plan {
	p := r.cut(replicas...)
	p.Stream = r.now().Checkpoint.Stream
	p.Local = &plan.Local{Rounds: plan.Rounds{Every: 4, Fragments: 1}, Codec: "int8"}
	for i, own := range consensus.OwnStates(r.now(), r.now().Checkpoint) {
		if i < len(p.Replicas) {
			p.Replicas[i].Own = &own
		}
	}
	return p
}

// wantSame compares the losses of all inner steps with those of a run before.
func (r *rig) wantSame(before map[apartStep]uint64) {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, step := range slices.SortedFunc(maps.Keys(before), func(a, b apartStep) int { return int(a.Step) - int(b.Step) }) {
		if got, there := r.apart[step]; !there || got != before[step] {
			r.Errorf("generation %d replica %d step %d has loss %v (made: %t), before %v", step.Generation, step.Replica, step.Step, math.Float64frombits(got), there, math.Float64frombits(before[step]))
		}
	}
	if len(r.apart) != len(before) {
		r.Errorf("%d inner steps, before %d", len(r.apart), len(before))
	}
}

// wantCounted compares what members were told of the run's steps with the inner steps that the log counts: each once and in order, with the
// mean loss over the micro-batches. Those that are gone may lack the last ones.
func (r *rig) wantCounted(gone ...*member) {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, m := range r.members {
		var want []countedStep
		for _, o := range r.made {
			if !slices.ContainsFunc(o.Counted(), func(q plan.Replica) bool { return plan.CoordinatorOf(o.plan, q).Peer == m.parts.Self }) {
				continue
			}
			for step := o.From + 1; step <= o.To; step++ {
				loss, micros := 0.0, 0
				for q, part := range o.Parts {
					if step <= o.From+part.Steps {
						n := o.plan.Replicas[q].Micros
						loss, micros = loss+math.Float64frombits(r.apart[apartStep{o.Generation, plan.Replica(q), step}])*float64(n), micros+n
					}
				}
				want = append(want, countedStep{step, math.Float64bits(loss / float64(micros))})
			}
		}
		got := r.counted[m.parts.Self]
		if slices.Contains(gone, m) {
			want = want[:min(len(want), len(got))]
		}
		if !slices.Equal(got, want) {
			r.Errorf("member %d was told the steps %v, want %v", i, got, want)
		}
	}
}

// wantAudited has the ledgers of all members prove that the samples entered once which the log counts.
func (r *rig) wantAudited() {
	r.Helper()
	synctest.Wait()
	var nodes []ledger.Node
	for _, m := range r.members {
		c, err := ledger.Read(m.dir)
		if err != nil {
			r.Fatal(err)
		}
		nodes = append(nodes, ledger.Node{Dir: m.dir, Contents: c})
	}
	samples := 0
	for _, o := range r.made {
		for q, part := range o.Parts {
			samples += int(part.Steps) * o.plan.Replicas[q].Micros * r.run.Train.MicroBatch
		}
	}
	got := ledger.Audit(ledger.SizeOf(r.run), nodes)
	if err := got.Err(); err != nil || got.Steps != r.run.Train.Steps || got.Samples != samples || got.Recorded != samples || got.Lost+got.Doubled != 0 {
		r.Errorf("%d steps, %d samples of %d, %d recorded, %d lost, %d doubled: %v", got.Steps, got.Samples, samples, got.Recorded, got.Lost, got.Doubled, got.Problems)
	}
}

// TestReplicasMeetOverTheLog: two replicas make inner steps apart and outer steps together, and however they are cut their losses are the same.
func TestReplicasMeetOverTheLog(t *testing.T) {
	var known map[apartStep]uint64
	for _, replicas := range [][][]int{{{0}, {1}}, {{1, 2}, {0}}} {
		rehearseLocal(t, 3, func(r *rig) {
			r.carry(r.local(replicas...))
			r.wantDone()
			r.wantCounted()
			r.wantAudited()
			s := r.now()
			if m := s.Merged; m == nil || m.To != r.run.Train.Steps || len(m.Counted()) != 2 || s.Round != nil {
				t.Errorf("the log has %+v", m)
			}
			if known == nil {
				if known = r.apart; len(known) != 2*int(r.run.Train.Steps) || known[apartStep{1, 0, 1}] == known[apartStep{1, 1, 1}] {
					t.Errorf("%d inner steps of two replicas, which have the losses %v", len(known), known)
				}
				return
			}
			r.wantSame(known)
		})
	}
}

// recorded is the log of a member in a run that goes as one before: rounds end after as many inner steps, and the same replicas count.
type recorded struct {
	logOf
	member *member
	made   []outerStep
}

// of returns the outer step before that ends the round under way of a state.
func (l recorded) of(s consensus.State) (made outerStep, ok bool) {
	i := slices.IndexFunc(l.made, func(m outerStep) bool {
		return s.Round != nil && m.Generation == s.Plan.Generation && m.From == s.Round.From
	})
	if i < 0 {
		return made, false
	}
	return l.made[i], true
}

func (l recorded) State() consensus.State {
	s := l.now()
	made, ok := l.of(s)
	if !ok {
		return s
	}
	round := *s.Round
	round.LeftOut, round.Closed = nil, false // who counts is waited for, and ends its part where it did
	for q, part := range made.Parts {
		if part.Steps == 0 {
			round, _ = round.LeaveOut(s.Plan, rounds.LeftOut{Replica: plan.Replica(q)})
		}
	}
	for q, part := range made.Parts {
		if plan.CoordinatorOf(s.Plan, plan.Replica(q)).Peer == l.self && part.Steps > 0 && l.member.step()+1 >= made.From+part.Steps {
			round = round.Close()
		}
	}
	s.Round = &round
	return s
}

func (l recorded) Propose(ctx context.Context, e consensus.Entry) error {
	g, is := e.(consensus.Gathered)
	made, ok := l.of(l.now())
	if !is || !ok {
		return l.logOf.Propose(ctx, e)
	}
	for _, q := range made.out {
		if !slices.ContainsFunc(l.now().Round.LeftOut, func(out rounds.LeftOut) bool { return out.Replica == q }) {
			l.apply(consensus.LeaveOut{Generation: made.Generation, From: made.From, Replica: q})
		}
	}
	if slices.Contains(made.out, g.Replica) {
		return nil
	}
	round := l.now().Round
	short := func(p plan.Part) bool { return p.Steps > 0 && p.Steps < round.End-round.From }
	if slices.ContainsFunc(made.Parts, short) && !round.Closed {
		l.apply(consensus.CloseRound{Generation: made.Generation, From: made.From})
	}
	g.Parts = slices.Clone(g.Parts)
	for q, part := range made.Parts {
		if part.Steps == 0 {
			g.Parts[q] = plan.Part{}
		}
	}
	return l.logOf.Propose(ctx, g)
}

// wantReplayed has another run go as the log of this one says, and compares the losses of the inner steps that counted and the outer steps.
func wantReplayed(t *testing.T, members int, made []outerStep, losses map[apartStep]uint64) {
	t.Helper()
	rehearseLocal(t, members, func(r *rig) {
		for _, m := range r.members {
			m.parts.Consensus = recorded{logOf{r, m.parts.Self}, m, made}
		}
		for i, m := range made {
			if i == 0 || m.Generation != made[i-1].Generation {
				r.carry(m.plan)
			}
			if last := i == len(made)-1 || m.Generation != made[i+1].Generation; last {
				r.until("the end of a plan", func() bool { return r.now().Checkpoint.Step == m.To })
			}
		}
		if !reflect.DeepEqual(made, r.made) {
			t.Errorf("outer steps\n%+v\nbefore\n%+v", r.made, made)
		}
		for _, m := range made {
			for q, part := range m.Parts {
				for step := m.From + 1; step <= m.From+part.Steps; step++ {
					at := apartStep{m.Generation, plan.Replica(q), step}
					if got, want := r.apart[at], losses[at]; got != want || got == 0 {
						t.Errorf("%+v has loss %v, before %v", at, math.Float64frombits(got), math.Float64frombits(want))
					}
				}
			}
		}
	})
}

// TestRoundsEndAsTheLogSays: a round is closed early, a replica dies within a round, after it has handed in, or is left out while it lives. The others go on,
// whoever lives takes part in the next plan, and another run of the same log has the same losses.
func TestRoundsEndAsTheLogSays(t *testing.T) {
	for name, c := range map[string]struct {
		micros  [3]time.Duration // of each member, in ms
		happens func(r *rig)
		ends    bool   // the plan ends
		log     string // generation, steps and who counts
	}{
		"closed": {[3]time.Duration{3, 4, 5}, func(r *rig) {
			r.until("step 6", func() bool { return r.members[1].step() >= 6 })
			r.apply(consensus.CloseRound{Generation: 1, From: 4})
		}, false, "1:0-4[0 1 2] 1:4-7[0 1 2] 1:7-8[0 1 2] 1:8-12[0 1 2] 1:12-16[0 1 2]"},
		"dead in a round": {[3]time.Duration{3, 4, 5}, func(r *rig) {
			r.until("step 6", func() bool { return r.members[2].step() >= 6 })
			r.members[2].kill()
			r.apply(consensus.LeaveOut{Generation: 1, From: 4, Replica: 2, Reason: "its process has ended"})
		}, true, "1:0-4[0 1 2] 1:4-8[0 1] 2:8-12[0 1] 2:12-16[0 1]"},
		"dead after it has handed in": {[3]time.Duration{40, 40, 3}, func(r *rig) {
			r.until("its word", func() bool {
				said := r.members[2].parts.Words.Of(1)
				return len(said) == 1 && said[0].From == 4 && len(said[0].Lacks) == 2
			})
			time.Sleep(100 * time.Millisecond) // its messages come
			r.members[2].kill()
			r.apply(consensus.LeaveOut{Generation: 1, From: 4, Replica: 2, Reason: "its process has ended"})
		}, true, "1:0-4[0 1 2] 1:4-8[0 1 2] 2:8-12[0 1] 2:12-16[0 1]"},
		"dead before the others have all": {[3]time.Duration{3, 4, 5}, func(r *rig) {
			a, b := r.members[0].parts.Self, r.members[1].parts.Self
			r.net.SetConditions(a, b, link.LinkConditions{BytesPerS: rigLine, Delay: 300 * time.Millisecond})
			r.until("its word in the log", func() bool {
				s := r.now()
				return s.Round.From == 4 && s.Round.Gathered[2] != nil && s.Round.Gathered[1] == nil
			})
			time.Sleep(100 * time.Millisecond) // its messages come
			r.members[2].kill()
			r.until("the next round", func() bool { return r.now().Round.From == 8 })
			r.apply(consensus.LeaveOut{Generation: 1, From: 8, Replica: 2, Reason: "its process has ended"})
		}, true, "1:0-4[0 1 2] 1:4-8[0 1 2] 1:8-12[0 1] 2:12-16[0 1]"},
		"left out": {[3]time.Duration{3, 4, 5}, func(r *rig) {
			r.until("step 6", func() bool { return r.members[2].step() >= 6 })
			r.apply(consensus.LeaveOut{Generation: 1, From: 4, Replica: 2, Reason: "it is slow"})
		}, true, "1:0-4[0 1 2] 1:4-8[0 1] 2:8-12[0 1] 2:12-16[0 1]"},
	} {
		t.Run(name, func(t *testing.T) {
			var made []outerStep
			var losses map[apartStep]uint64
			rehearseLocal(t, 3, func(r *rig) {
				for i, m := range r.members {
					m.parts.Data = slowText{squares{r.run.Model.Context}, c.micros[i] * time.Millisecond, 0, &atomic.Int64{}}
				}
				r.carry(r.local([]int{0}, []int{1}, []int{2}))
				c.happens(r)
				if c.ends {
					r.until("the last outer step of the plan", func() bool { m := r.now().Merged; return m != nil && m.Last })
					to := r.now().Merged.To
					r.until("its checkpoint", func() bool { return r.now().Checkpoint.Step == to })
					for _, m := range r.members[:2] {
						if err := m.result(); err != nil {
							t.Errorf("it ended with %v", err)
						}
					}
					r.carry(r.local([]int{0}, []int{1}))
				}
				r.wantDone(r.members[2])
				r.wantCounted(r.members[2])
				r.wantAudited()
				made, losses = r.made, r.apart
			})
			text := ""
			for _, m := range made {
				text += fmt.Sprintf(" %d:%d-%d%v", m.Generation, m.From, m.To, m.Counted())
			}
			if text = text[1:]; text != c.log {
				t.Errorf("the log has %s, want %s", text, c.log)
			}
			if testing.Short() && name != "dead before the others have all" {
				return // the one whose log has the most to say is played again
			}
			wantReplayed(t, 3, made, losses)
		})
	}
}
