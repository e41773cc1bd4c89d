package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/gossip"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// claimants are a run whose members have other speeds than they claim: real leader, planner, rules of the log and
// heartbeats, in virtual time. Steps take what the planner predicts for the speeds that members have.
type claimants struct {
	*testing.T
	log   *appliedLog
	beats *gossip.Tracker
	has   map[plan.PeerID]int64 // operations a second
	liar  plan.PeerID           // says that all is as planned
	deaf  bool                  // and only sends heartbeats
	plans []plan.Plan
	steps map[plan.Generation]int // that were done
	step  plan.Step               // the newest
	spent time.Duration           // on the next one
	known map[expectation]expected
}

// expectation names what expect looks at: the plan, the speeds that members have or are counted on for, what they have shown.
type expectation struct {
	generation plan.Generation
	truly      bool
	shown      string
}

// expected holds what expect has found.
type expected struct {
	planner.Expected
	planner.Measured
}

const laptopFLOPS = 3e7

func newClaimants(t *testing.T) *claimants {
	t.Helper()
	run := rehearsedRun()
	run.Model.Blocks = 7 // nine layers
	run.Train.Stages, run.Train.MinNodes, run.Train.Steps, run.Train.Micros = 0, 3, 100_000, 12
	c := &claimants{
		T: t, log: &appliedLog{self: "a"}, beats: gossip.NewTracker(), steps: map[plan.Generation]int{}, known: map[expectation]expected{},
		has: map[plan.PeerID]int64{"a": laptopFLOPS, "b": laptopFLOPS, "m": laptopFLOPS},
	}
	c.must(consensus.SetRun{Spec: run, Owner: "a"})
	c.must(consensus.Lead{Peer: "a", Term: 1})
	for _, p := range []plan.PeerID{"a", "b"} {
		c.join(p, laptopFLOPS)
	}
	return c
}

// apply carries an entry out, whoever may propose it: how members come in is tried elsewhere.
func (c *claimants) apply(e consensus.Entry) error {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	next, err := consensus.Apply(c.log.state, e)
	c.log.state = next
	return err
}

func (c *claimants) must(e consensus.Entry) {
	c.Helper()
	if err := c.apply(e); err != nil {
		c.Fatal(err)
	}
}

func speedOf(flops int64) plan.Profile {
	return plan.Profile{Devices: []plan.DeviceProfile{{Name: "cpu", MatMulFLOPS: flops, AttentionFLOPS: flops, MemoryBytesPerS: min(10*flops, plan.MaxMemoryBytesPerS), MemoryFreeBytes: 1 << 33}}}
}

func (c *claimants) join(p plan.PeerID, claim int64) {
	c.Helper()
	c.must(consensus.Join{Peer: p, ProcessEpoch: 1, Profile: speedOf(claim)})
	c.must(consensus.SetMemberState{Peer: p, ProcessEpoch: 1, State: consensus.Active})
}

// expect compares the plan of a state with what is measured, by what is counted on or by what members have.
func (c *claimants) expect(s consensus.State, truly bool) (planner.Expected, planner.Measured) {
	c.Helper()
	key := expectation{generation: s.Plan.Generation, truly: truly}
	for _, m := range s.Members {
		key.shown += fmt.Sprint(m.Peer, m.ProcessEpoch, m.State, m.Shown)
	}
	if found, ok := c.known[key]; ok {
		return found.Expected, found.Measured
	}
	in := NextInput(s)
	for i := range in.Members {
		if truly {
			in.Members[i].Profile = speedOf(c.has[in.Members[i].Peer])
		}
	}
	e, err := planner.Expect(in, s.Plan, planner.Measured{})
	if err != nil {
		c.Fatal(err)
	}
	timing, err := planner.Timing(in, s.Plan, planner.Measured{})
	if err != nil {
		c.Fatal(err)
	}
	var m planner.Measured
	for r, pipe := range s.Plan.Replicas {
		for st := range pipe.Stages {
			t := timing.Replicas[r].Stages[st]
			m.Stages = append(m.Stages, planner.MeasuredStage{
				Replica: plan.Replica(r), Stage: plan.Stage(st),
				ForwardNanos: int64(t.Forward) * int64(pipe.Micros), BackwardNanos: int64(t.Input+t.Weight+t.Recompute) * int64(pipe.Micros),
			})
		}
	}
	c.known[key] = expected{e, m}
	return e, m
}

// train lets virtual time pass, with a leader, steps, saves and heartbeats.
func (c *claimants) train(d time.Duration) {
	c.Helper()
	l := New(Config{Self: "a", Consensus: c.log, Peers: strangers{}, Heartbeats: c.beats, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(c.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); l.Run(ctx) }()
	for end := time.Now().Add(d); time.Now().Before(end); {
		s := c.log.State()
		if g := s.Plan.Generation; g > 0 && (len(c.plans) == 0 || c.plans[len(c.plans)-1].Generation != g) {
			c.plans, c.step, c.spent = append(c.plans, s.Plan), s.Plan.Start, 0
		}
		gone := slices.ContainsFunc(s.Plan.Peers(), func(p plan.PeerID) bool {
			m, _ := s.Member(p)
			return m.State != consensus.Active
		})
		if s.Plan.Generation == 0 || gone {
			c.say(s, nil)
		} else {
			truly, seen := c.expect(s, true)
			planned, lies := c.expect(s, false)
			switch stalls := c.deaf && s.Plan.Places(c.liar); {
			case stalls:
			case s.Paused() && s.Checkpoint.Step < c.step:
				c.save(s, c.step)
			case !s.Paused() || c.step == s.Plan.Start: // the step under way comes to its end
				for c.spent += time.Second; c.spent >= time.Duration(truly.StepNanos); c.spent -= time.Duration(truly.StepNanos) {
					c.step++
					c.steps[s.Plan.Generation]++
				}
			}
			c.say(s, func(b *gossip.Heartbeat) {
				b.Step, b.StepNanos, b.Schedule = c.step, truly.StepNanos, s.Plan.ScheduleChoice().String()
				times := seen
				if b.Peer == c.liar {
					b.StepNanos, times = planned.StepNanos, lies
				}
				for _, t := range times.Stages {
					if s.Plan.At(plan.StageID{Replica: t.Replica, Stage: t.Stage}).Peer == b.Peer && c.step > s.Plan.Start {
						b.Stages = append(b.Stages, gossip.StageTimes{Replica: t.Replica, Stage: t.Stage, ForwardNanos: t.ForwardNanos, BackwardNanos: t.BackwardNanos})
					}
				}
			})
		}
		time.Sleep(time.Second)
		synctest.Wait()
	}
	cancel()
	<-ended
}

// say has each member send a heartbeat.
func (c *claimants) say(s consensus.State, fill func(*gossip.Heartbeat)) {
	for _, m := range s.Members {
		b := gossip.Heartbeat{Peer: m.Peer, Generation: s.Plan.Generation}
		if fill != nil && s.Plan.Places(m.Peer) && !(c.deaf && m.Peer == c.liar) {
			fill(&b)
		}
		c.beats.Note(b, time.Now())
	}
}

// save reports each stage of a plan as saved.
func (c *claimants) save(s consensus.State, step plan.Step) {
	c.Helper()
	for _, place := range s.Plan.Replicas[0].Stages {
		e := consensus.StageSaved{Step: step, Generation: s.Plan.Generation, Last: s.Paused()}
		for l := place.Layers.First; l < place.Layers.End; l++ {
			e.Layers = append(e.Layers, consensus.LayerRef{Layer: l, SizeBytes: 1, Chunks: make([]plan.Hash, 1), Holders: []plan.PeerID{place.Peer}})
		}
		if err := c.log.by(place.Peer, e); err != nil {
			c.Fatal(err)
		}
	}
}

// permille returns a peer's part of the work of a plan.
func (c *claimants) permille(p plan.Plan, peer plan.PeerID) int {
	mine, all := 0, 0
	for _, pipe := range p.Replicas {
		for _, s := range pipe.Stages {
			work := s.Layers.Len() * pipe.Micros
			if all += work; s.Peer == peer {
				mine += work
			}
		}
	}
	return 1000 * mine / max(all, 1)
}

func (c *claimants) report() {
	for _, p := range c.plans {
		c.Logf("generation %d from step %d: m has %d per mille, %d steps", p.Generation, p.Start, c.permille(p, "m"), c.steps[p.Generation])
	}
}

// Attack: a profile of 1e17 FLOP/s that then only sends heartbeats got 4 of 6 layers, each time that was planned. It
// is refused now, and the fastest that is not gets no more work than the others; without steps that does not grow.
func TestClaimOf1e17ThatOnlySendsHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClaimants(t)
		if err := c.apply(consensus.Join{Peer: "m", ProcessEpoch: 1, Profile: speedOf(1e17)}); !errors.Is(err, plan.ErrBadProfile) {
			t.Fatal(err)
		}
		c.join("m", plan.MaxFLOPS)
		c.liar, c.deaf = "m", true
		c.train(67 * time.Second)
		c.report()
		if len(c.plans) == 0 {
			t.Fatal("no plan")
		}
		for _, p := range c.plans {
			if share := c.permille(p, "m"); share > 1000*2/6 {
				t.Errorf("generation %d gives it %d per mille of the work", p.Generation, share)
			}
		}
		if m, _ := c.log.State().Member("m"); m.Shown != (plan.Shown{}) {
			t.Errorf("without a step it has shown %+v", m.Shown)
		}
	})
}

// Attack: a member that computes claims the most that is accepted, and says that all is as planned. It tries to grow
// once, and then seldom; most steps are those of a plan in which it has its share.
func TestLiarHasItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClaimants(t)
		c.join("m", plan.MaxFLOPS)
		c.liar = "m"
		c.train(40 * time.Minute)
		c.report()
		fair, all := 0, 0
		for _, p := range c.plans {
			all += c.steps[p.Generation]
			if c.permille(p, "m") <= 500 {
				fair += c.steps[p.Generation]
			}
		}
		m, _ := c.log.State().Member("m")
		if first := c.permille(c.plans[0], "m"); first > 1000*2/6 || 10*fair < 9*all || m.Shown.Lowered == 0 {
			t.Errorf("first %d per mille, a fair share in %d of %d steps, %+v", first, fair, all, m.Shown)
		}
	})
}

// An honest newcomer of 100 times the speed of the others grows within a few steps.
func TestHonestNewcomerGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClaimants(t)
		c.has["m"] = 100 * laptopFLOPS
		c.join("m", 100*laptopFLOPS)
		c.train(5 * time.Minute)
		c.report()
		steps := 0
		for _, p := range c.plans {
			if c.permille(p, "m") >= 900 {
				break
			}
			steps += c.steps[p.Generation]
		}
		last := c.plans[len(c.plans)-1]
		if first := c.permille(c.plans[0], "m"); first > 1000*2/6 || c.permille(last, "m") < 900 || steps > 20 {
			t.Errorf("first %d per mille, last %d, after %d steps", first, c.permille(last, "m"), steps)
		}
	})
}

// Attack: a member claims more memory than any machine has, and its process ends whenever it gets a stage; then it is
// started again. Plans do without it after a few times, and longer each time.
func TestMemoryThatIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClaimants(t)
		profile := speedOf(laptopFLOPS)
		profile.Devices[0].MemoryFreeBytes = plan.MaxMemoryBytes
		c.must(consensus.Join{Peer: "m", ProcessEpoch: 1, Profile: profile})
		c.must(consensus.SetMemberState{Peer: "m", ProcessEpoch: 1, State: consensus.Active})
		c.liar, c.deaf = "m", true
		broken := 0
		for epoch := uint64(2); epoch < 50; epoch++ {
			c.train(20 * time.Second)
			if s := c.log.State(); s.Plan.Places("m") {
				broken++
				c.must(consensus.SetMemberState{Peer: "m", ProcessEpoch: epoch - 1, State: consensus.Gone})
				c.train(5 * time.Second)
			}
			c.must(consensus.Join{Peer: "m", ProcessEpoch: epoch, Profile: profile})
			c.must(consensus.SetMemberState{Peer: "m", ProcessEpoch: epoch, State: consensus.Active})
		}
		c.report()
		m, _ := c.log.State().Member("m")
		if broken < 2 || broken > 12 {
			t.Errorf("%d plans broken in 48 starts, %+v", broken, m.Shown)
		}
	})
}

// TestRoundsShowSpeeds: of replicas with local steps a round is a sample, by when it ended and how many steps of each counted. The first one of a plan begins with what it
// loads, and two that are seen as one say nothing.
func TestRoundsShowSpeeds(t *testing.T) {
	begin := time.Unix(1000, 0)
	s := consensus.State{Plan: plan.Plan{Generation: 2, Start: 100, Local: &plan.Local{Rounds: plan.Rounds{Every: 10, Fragments: 1}}}}
	for _, peers := range []string{"ab", "cb", "d"} {
		var pipe plan.Pipeline
		for _, p := range peers {
			pipe.Stages = append(pipe.Stages, plan.Placement{Peer: plan.PeerID(p), Device: "cpu"})
		}
		s.Plan.Replicas = append(s.Plan.Replicas, pipe)
	}
	g := growth{Leader: &Leader{Config: Config{Heartbeats: gossip.NewTracker()}}, generation: 2, newest: 101}
	at := func(seconds int, from, to plan.Step, steps ...plan.Step) {
		s.Merged = &plan.Merged{Generation: 2, From: from, To: to}
		for _, n := range steps {
			s.Merged.Parts = append(s.Merged.Parts, plan.Part{Steps: n})
		}
		g.sample(s, begin.Add(time.Duration(seconds)*time.Second))
	}
	g.sample(s, begin)
	at(60, 100, 110, 10, 10, 10) // with what was loaded
	at(61, 100, 110, 10, 10, 10) // seen again
	if len(g.samples) != 0 {
		t.Errorf("%+v", g.samples)
	}
	at(80, 110, 120, 10, 5, 0)
	want := map[plan.PeerID]int64{"a": 2e9, "b": 4e9, "c": 4e9}
	if len(g.samples) != 1 || !maps.Equal(g.samples[0].steps, want) || g.made != 10 {
		t.Fatalf("%+v, of %d steps", g.samples, g.made)
	}
	at(120, 130, 140, 10, 10, 10) // the one before was not seen
	if len(g.samples) != 1 {
		t.Errorf("%+v", g.samples)
	}
	at(140, 140, 150, 10, 10, 10)
	if len(g.samples) != 2 || g.samples[1].steps["d"] != 2e9 || g.made != 20 {
		t.Errorf("%+v, of %d steps", g.samples, g.made)
	}
}
