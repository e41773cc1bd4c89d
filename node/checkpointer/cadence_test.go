package checkpointer

import (
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/departures"
	"pnode/planner/holders"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// pace is a run of steps and checkpoints in virtual time.
type pace struct {
	cadence  *Cadence
	state    consensus.State
	step     plan.Step
	takes    time.Duration // a checkpoint
	slows    time.Duration // the first step while one is made
	ends     time.Time     // of the checkpoint under way; zero without one
	begun    []time.Time   // checkpoints
	forgets  bool
	full     bool // a disk
	leftOut  plan.Step
	stepLong time.Duration
}

// newPace returns one of two stages of so many bytes each, that begins with a checkpoint.
func newPace(bytes int64) *pace {
	return paceOf(bytes, func(p plan.Plan) *Cadence { return newCadence(p, 0) })
}

// paceOf returns one whose cadence begin makes.
func paceOf(bytes int64, begin func(plan.Plan) *Cadence) *pace {
	layers := func(first int) plan.Placement {
		return plan.Placement{Peer: plan.PeerID("ab"[first : first+1]), Layers: plan.LayerRange{First: first, End: first + 1}}
	}
	p := &pace{stepLong: time.Second / 2, cadence: begin(plan.Plan{Start: 1, Replicas: []plan.Pipeline{{Stages: []plan.Placement{layers(0), layers(1)}}}})}
	p.state.Checkpoint = consensus.Checkpoint{Step: 1, Layers: []consensus.LayerRef{{Layer: 0, SizeBytes: bytes}, {Layer: 1, SizeBytes: bytes}}}
	p.step = 1
	return p
}

// steps makes steps for some time.
func (p *pace) steps(span time.Duration) {
	for end := time.Now().Add(span); time.Now().Before(end); {
		long := p.stepLong
		if n := len(p.begun); n > 0 && p.begun[n-1].Equal(time.Now()) {
			long += p.slows
		}
		if done := time.Until(p.ends); !p.ends.IsZero() && done <= long {
			time.Sleep(max(done, 0))
			long -= max(done, 0)
			p.state.Checkpoint.Step, p.ends = p.cadence.asked, time.Time{}
			p.cadence.Committed(p.state.Checkpoint.Step)
		}
		time.Sleep(long)
		p.step++
		if !p.cadence.Due(p.step, p.state, p.forgets, p.leftOut) {
			continue
		}
		p.begun, p.leftOut = append(p.begun, time.Now()), 0
		if p.full {
			p.leftOut = p.step
		} else {
			p.ends = time.Now().Add(p.takes)
		}
	}
}

// between returns the time between the newest two checkpoints.
func (p *pace) between() time.Duration {
	n := len(p.begun)
	if n < 2 {
		return -1
	}
	return p.begun[n-1].Sub(p.begun[n-2])
}

// TestTheCadenceToldIsKept: from one checkpoint to the next as many steps pass as are told, whatever it takes in the background.
func TestTheCadenceToldIsKept(t *testing.T) {
	for _, c := range []struct {
		name         string
		bytes        int64
		takes, slows time.Duration
		long         time.Duration // a step
		want         time.Duration
		why          holders.Why
	}{
		{"small, in no time", 5e6, 0, 0, 530 * time.Millisecond, 5300 * time.Millisecond, holders.ForReplay},
		{"small, in a while", 5e6, 260 * time.Millisecond, 0, 530 * time.Millisecond, 5300 * time.Millisecond, holders.ForReplay},
		{"small, in two seconds", 5e6, 2 * time.Second, 0, 530 * time.Millisecond, 5300 * time.Millisecond, holders.ForReplay},
		{"over a slow line", 5e6, 38 * time.Second, 0, 500 * time.Millisecond, 76 * time.Second, holders.ForLines},
		{"large", 490e6, 10 * time.Second, 0, 500 * time.Millisecond, 30 * time.Second, holders.ForMost},
		{"steps lose 100 ms", 5e6, time.Second, 100 * time.Millisecond, 500 * time.Millisecond, 10100 * time.Millisecond, holders.ForSteps},
		{"steps lose half a second", 5e6, time.Second, 500 * time.Millisecond, 500 * time.Millisecond, 30 * time.Second, holders.ForMost},
		{"steps longer than that", 5e6, time.Second, 0, 40 * time.Second, 40 * time.Second, holders.ForReplay},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newPace(c.bytes)
			p.takes, p.slows, p.stepLong = c.takes, c.slows, c.long
			p.steps(20 * time.Minute)
			told := p.cadence.told
			if told == nil {
				t.Fatalf("%s: nothing is told", c.name)
			}
			if got := p.between(); got.Round(100*time.Millisecond) != c.want || told.Why != c.why {
				t.Errorf("%s: a checkpoint every %v (%s), want %v (%s)", c.name, got, told.Why, c.want, c.why)
			}
			if said := time.Duration(told.Steps(int64(c.long))) * c.long; p.between() > said+c.slows || p.between() < said-c.long {
				t.Errorf("%s: a checkpoint every %v, told were %v", c.name, p.between(), said)
			}
		})
	}
}

// TestTheCadenceToldIsKeptAfterAChange: in no plan pass more steps without a checkpoint's begin than are told then, though lines are slow, whoever
// coordinated the steps before. Where that is known the number is the same from the second step on.
func TestTheCadenceToldIsKeptAfterAChange(t *testing.T) {
	nothing := func(plan.PeerID) *holders.Cadence { return nil }
	for _, c := range []struct {
		name   string
		before bool // this node coordinated the plan before
		heard  func(plan.PeerID) *holders.Cadence
		first  plan.Step // is told before the first checkpoint
	}{
		{"the same node", true, nothing, 12},
		{"another one, which has said so", false, func(plan.PeerID) *holders.Cadence { return &holders.Cadence{TookNanos: 12e9, StepNanos: 2e9} }, 12},
		{"another one, which tells lies", false, func(plan.PeerID) *holders.Cadence { return &holders.Cadence{TookNanos: 1 << 60, StepNanos: 1} }, 2 * mostHeard},
		{"nobody knows", false, nothing, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			keeper := &Checkpointer{}
			begin := func(p plan.Plan) *Cadence { return keeper.Cadence(p, c.heard) }
			was := paceOf(5e6, begin)
			was.stepLong, was.takes = 2*time.Second, 12*time.Second
			if c.before {
				was.steps(5 * time.Minute)
			}
			p := paceOf(5e6, begin)
			p.stepLong, p.takes = 2*time.Second, 12*time.Second
			since := p.step
			for range 60 {
				begun := len(p.begun)
				p.steps(p.stepLong)
				told := p.cadence.told.Steps(p.cadence.told.StepNanos)
				if p.step > 3 && p.step-since > told {
					t.Errorf("%s: %d steps without a checkpoint's begin, told are %d", c.name, p.step-since, told)
				}
				if p.step == 3 && told != c.first {
					t.Errorf("%s: %d steps are told at first, want %d", c.name, told, c.first)
				}
				if len(p.begun) > begun {
					since = p.step
				}
			}
		})
	}
}

// TestACheckpointThatIsLateIsTold: with the steps that went by, and the node whose stage was not stored; until the next one is in time.
func TestACheckpointThatIsLateIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(5e6)
		p.takes = time.Second / 4
		p.steps(time.Minute)
		if c := p.cadence.told; c.Late != 0 {
			t.Errorf("in time: %+v", c)
		}
		p.state.Plan = p.cadence.plan
		p.takes = 10 * time.Second
		for p.steps(p.stepLong); p.cadence.asked == 0; p.steps(p.stepLong) {
		}
		p.takes = time.Second / 4
		p.state.Pending = []consensus.Checkpoint{{Step: p.cadence.asked, Layers: p.state.Checkpoint.Layers[:1]}}
		for p.cadence.asked != 0 {
			p.steps(p.stepLong)
		}
		p.steps(p.stepLong)
		if c := p.cadence.told; c.Late != 29 || c.LateBy != "b" {
			t.Errorf("told are %d steps, by %q, want 29 by b", c.Late, c.LateBy)
		}
		p.steps(20 * time.Second)
		if c := p.cadence.told; c.Late != 0 || c.LateBy != "" {
			t.Errorf("told are %d steps, by %q, after one in time", c.Late, c.LateBy)
		}
	})
}

// TestTheFirstCheckpointComesSoon: there is none to go back to. One that never comes does not keep the next from being made.
func TestTheFirstCheckpointComesSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCadence(plan.Plan{}, 0)
		want := func(due bool, step plan.Step) {
			t.Helper()
			if got := c.Due(step, consensus.State{}, false); got != due {
				t.Errorf("after step %d: %t, want %t", step, got, due)
			}
		}
		want(false, 1)
		time.Sleep(time.Duration(holders.LeastNanos))
		want(true, 2)
		time.Sleep(lostAfter - time.Second)
		want(false, 3)
		time.Sleep(time.Second)
		want(true, 4)
	})
}

// TestACheckpointThatWasLeftOutIsTriedAgain: soon at first, later once a minute, and as often as ever once there is room.
func TestACheckpointThatWasLeftOutIsTriedAgain(t *testing.T) {
	for _, bytes := range []int64{5e6, 5e9} { // every 5 s, every 100 s
		synctest.Test(t, func(t *testing.T) {
			p := newPace(bytes)
			p.takes = time.Second
			p.steps(5 * time.Minute)
			usual := p.between()
			tried := len(p.begun)
			p.full = true
			p.steps(20 * time.Minute)
			if times := len(p.begun) - tried; times < 15 || times > 26 || p.between() != mostRetry {
				t.Errorf("%d bytes: %d tries in 20 minutes, %v between the last two", bytes, times, p.between())
			}
			p.full = false
			before := p.state.Checkpoint.Step
			for began := time.Now(); p.state.Checkpoint.Step == before; p.steps(p.stepLong) {
				if time.Since(began) > mostRetry+4*p.takes {
					t.Fatalf("%d bytes: no checkpoint %v after there was room", bytes, time.Since(began))
				}
			}
			p.steps(5 * time.Minute)
			if p.between() != usual {
				t.Errorf("%d bytes: one every %v afterwards, before every %v", bytes, p.between(), usual)
			}
		})
	}
}

// TestADiskThatIsFullLeavesOthersTime: how long they wrote what was left out, twice from its begin on, also before a checkpoint was made.
func TestADiskThatIsFullLeavesOthersTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(5e6)
		p.state.Checkpoint = consensus.Checkpoint{}
		due := func(leftOut ...plan.Step) bool {
			p.step++
			return p.cadence.Due(p.step, p.state, false, leftOut...)
		}
		for time.Sleep(time.Minute); !due(); time.Sleep(p.stepLong) {
		}
		begun, asked := time.Now(), p.step
		const wrote = 90 * time.Second
		time.Sleep(wrote)
		for leftOut := asked; !due(leftOut); time.Sleep(p.stepLong) {
			if time.Since(begun) > 5*wrote {
				t.Fatal("it is not tried again")
			}
		}
		if after := time.Since(begun); after < 2*wrote || after > 2*wrote+time.Second {
			t.Errorf("others wrote for %v, and the next one begins %v after the one before", wrote, after)
		}
	})
}

// TestAWrongWordOfAFullDiskEndsWithTheCheckpoint: one that is complete after all counts as the others do.
func TestAWrongWordOfAFullDiskEndsWithTheCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(5e6)
		p.takes = time.Second
		for p.steps(time.Minute); p.cadence.asked == 0; p.steps(p.stepLong) {
		}
		asked := p.cadence.asked
		p.step++
		p.cadence.Due(p.step, p.state, false, asked)
		if p.cadence.leftOut != 1 {
			t.Fatal("the word is not heard: nothing is shown")
		}
		p.cadence.Committed(asked)
		if c := p.cadence; c.leftOut != 0 || c.made != asked || !c.committed.Equal(time.Now()) {
			t.Errorf("step %d: %d left out, made %d, %v after it", asked, c.leftOut, c.made, time.Since(c.committed))
		}
	})
}

// TestMessagesAreNotForgotten: where they are about to be, checkpoints come more often than what they cost allows.
func TestMessagesAreNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(490e6)
		p.takes = 3 * time.Second
		p.steps(5 * time.Minute)
		if got := p.between(); got != 30*time.Second {
			t.Errorf("a checkpoint every %v, want 30 s", got)
		}
		p.forgets = true
		p.steps(5 * time.Minute)
		if got := p.between(); got != forgetShare*p.takes || p.cadence.told.Why != holders.ForMessages {
			t.Errorf("a checkpoint every %v (%s), want %v", got, p.cadence.told.Why, forgetShare*p.takes)
		}
	})
}

// TestLossesMakeCheckpointsFrequent: those that the log remembers count at once, in a generation that has just begun, on a node
// that has seen none.
func TestLossesMakeCheckpointsFrequent(t *testing.T) {
	for _, c := range []struct {
		name   string
		losses int // one every 10 s, the newest just now
		want   time.Duration
	}{
		{"none", 0, 10 * time.Second},
		{"one may be chance, and counts", 1, 10 * time.Second},
		{"one after the other", 2, 2 * time.Second},
		{"as many as are remembered", 3 * departures.Most, 2 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			now := time.Now()
			h := departures.History{}
			for range c.losses {
				h.Clock = h.Clock.After(1, now)
				now = now.Add(10 * time.Second)
				h.Clock = h.Clock.After(1, now)
				h = h.Noted(false)
			}
			p := newPace(90e6)
			p.takes, p.state.Departures = time.Second/4, h
			p.steps(25 * time.Second)
			if got := p.between(); got != c.want {
				t.Errorf("%s: a checkpoint every %v, want %v", c.name, got, c.want)
			}
		})
	}
}

// TestWhatIsToldDoesNotJump: one checkpoint that takes long and one long step move neither the time between checkpoints nor the steps.
func TestWhatIsToldDoesNotJump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(5e6)
		p.takes = time.Second / 4
		p.steps(time.Minute)
		told := func(after string) {
			t.Helper()
			if c := p.cadence.told; c.EveryNanos != int64(5*time.Second) || c.Steps(c.StepNanos) != 10 {
				t.Errorf("after %s: a checkpoint every %d ns, %d steps of %d ns, want 5 s and 10", after, c.EveryNanos, c.Steps(c.StepNanos), c.StepNanos)
			}
		}
		told("a minute")
		p.takes = 40 * time.Second
		p.steps(2 * p.stepLong)
		for p.cadence.asked == 0 {
			p.steps(p.stepLong)
		}
		p.takes = time.Second / 4
		for p.cadence.asked != 0 {
			p.steps(p.stepLong)
		}
		told("a checkpoint of 40 s")
		p.stepLong *= 40
		p.steps(p.stepLong)
		p.stepLong /= 40
		told("a step of 20 s")
	})
}

// TestTheMeasuredCostCountsMoreAndMore: where steps lose time by checkpoints, what is told at first grows to that with each of them, in no jump.
func TestTheMeasuredCostCountsMoreAndMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(5e6)
		p.takes, p.slows = time.Second, 200*time.Millisecond
		p.steps(2 * p.stepLong)
		for before := p.cadence.told.EveryNanos; len(p.begun) < 12; p.steps(p.stepLong) {
			now := p.cadence.told.EveryNanos
			if float64(now) > 1.7*float64(before) {
				t.Errorf("one every %d ns is told after %d checkpoints, before one every %d", now, len(p.begun), before)
			}
			before = now
		}
		if got := p.cadence.told; got.EveryNanos != 20e9 || got.Why != holders.ForSteps {
			t.Errorf("one every %d ns (%s) in the end, want 20 s", got.EveryNanos, got.Why)
		}
	})
}

// TestASlowWhileLeavesNothing: where all takes 40 times as long for some minutes, checkpoints come often again as soon as that is over.
func TestASlowWhileLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(5e6)
		for range 2 {
			p.stepLong, p.takes = time.Second/2, 2*time.Second
			p.steps(3 * time.Minute) // the checkpoint under way takes long to the end
			if got := p.between(); got != 5*time.Second {
				t.Errorf("a checkpoint every %v, want 5 s", got)
			}
			p.stepLong, p.takes = 40*p.stepLong, 40*p.takes
			p.steps(30 * time.Minute)
			if c := p.cadence.told; c.Steps(c.StepNanos) != 8 || c.Why != holders.ForLines {
				t.Errorf("one every %d steps (%s) meanwhile, want 8 for lines", c.Steps(c.StepNanos), c.Why)
			}
		}
	})
}
