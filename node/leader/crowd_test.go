package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/gossip"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
	"pnode/swarm/topics"
)

const (
	crowdVoters  = 5  // the first members, of which one leads
	crowdWorkers = 16 // that plans place
	// crowdLate is when members learn of an entry of the log, at the latest; 1 of crowdLoses messages does not come, to each of them.
	crowdLate  = 300 * time.Millisecond
	crowdLoses = 200
)

// crowd is a run of many members in virtual time. Real are heartbeats, who hears of whom, the leader with its followers, and the rules of the
// log. Emulated are the log's way to the members, elections, the network, and steps; plans are the planner's, of a few of the members.
type crowd struct {
	*testing.T
	ctx context.Context

	mu      sync.Mutex // guards what follows
	rng     *rand.Rand
	state   consensus.State
	leader  int
	term    plan.Term
	members []*crowdMember
	asked   int // questions to members that live
	errs    []error
}

type crowdMember struct {
	*crowd
	peer  plan.PeerID
	index int
	beats *gossip.Tracker
	alive bool
	known consensus.State // the log as far as it has come
	hears func(plan.PeerID, any)
	says  func(plan.PeerID, []byte) (any, error)
	heard int // messages of others
	bytes int
	step  plan.Step
	end   context.CancelFunc
}

// State implements Consensus.
func (m *crowdMember) State() consensus.State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known
}

// Changed implements Consensus.
func (m *crowdMember) Changed() <-chan struct{} { return nil }

// Leader implements Consensus.
func (m *crowdMember) Leader() (plan.PeerID, plan.Term, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return crowdPeer(m.crowd.leader), m.term, m.crowd.leader == m.index
}

// Answers implements Consensus.
func (m *crowdMember) Answers(_ context.Context, p plan.PeerID) bool {
	m.mu.Lock()
	i := slices.IndexFunc(m.members, func(o *crowdMember) bool { return o.peer == p })
	there := i >= 0 && m.members[i].alive
	if there {
		m.asked++
	}
	m.mu.Unlock()
	if !there {
		time.Sleep(time.Second)
	}
	return there
}

// Refuses implements Peers: machines that die say nothing.
func (m *crowdMember) Refuses(context.Context, plan.PeerID) bool { return false }

// Propose implements Consensus.
func (m *crowdMember) Propose(_ context.Context, e consensus.Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.alive {
		return errors.New("dead")
	}
	if err := consensus.Authorize(m.state, consensus.Author{Peer: m.peer, Term: m.term}, e); err != nil {
		return err
	}
	next, err := consensus.Apply(m.state, e)
	if err != nil {
		return err
	}
	if gone, ok := e.(consensus.SetMemberState); ok && gone.State == consensus.Gone {
		if i := slices.IndexFunc(m.members, func(o *crowdMember) bool { return o.peer == gone.Peer }); m.members[i].alive {
			m.errs = append(m.errs, fmt.Errorf("%s lives and is marked gone: %s", gone.Peer, gone.Reason))
		}
	}
	m.commit(next)
	m.known = next
	return nil
}

// commit brings a state to the members after a while. Callers hold mu.
func (c *crowd) commit(next consensus.State) {
	c.state = next
	for _, m := range c.members {
		time.AfterFunc(time.Duration(c.rng.Int64N(int64(crowdLate))), func() {
			c.mu.Lock()
			m.known = c.state
			c.mu.Unlock()
			m.beats.SetPaces(gossip.PacesOf(next))
		})
	}
}

// Publish implements gossip.Topics.
func (m *crowdMember) Publish(_ context.Context, topic string, data []byte) error {
	if topic != topics.Events {
		return nil
	}
	said, err := m.says(m.peer, data) // each would decode it alike
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	late := 20*time.Millisecond + time.Duration(m.rng.Int64N(int64(200*time.Millisecond)))
	var to []*crowdMember
	for _, o := range m.members {
		if o != m && o.alive && m.rng.IntN(crowdLoses) != 0 {
			to = append(to, o)
		}
	}
	time.AfterFunc(late, func() {
		m.mu.Lock()
		for _, o := range to {
			o.heard, o.bytes = o.heard+1, o.bytes+len(data)
		}
		m.mu.Unlock()
		for _, o := range to {
			o.hears(m.peer, said)
		}
	})
	return nil
}

// Subscribe implements gossip.Topics.
func (m *crowdMember) Subscribe(_ string, decode func(plan.PeerID, []byte) (any, error), hear func(plan.PeerID, any)) error {
	m.says, m.hears = decode, hear
	return nil
}

// join adds so many members.
func (c *crowd) join(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.state
	next.Members = slices.Clone(next.Members)
	for range n {
		m := &crowdMember{crowd: c, index: len(c.members), peer: crowdPeer(len(c.members)), beats: gossip.NewTracker(), alive: true}
		c.members = append(c.members, m)
		// The log's rules admit fewer: what follows is what Join and a member's own word make of its state.
		next.Epoch++
		next.Members = append(next.Members, consensus.Member{Peer: m.peer, ProcessEpoch: 1, State: consensus.Active, Since: next.Epoch, Label: fmt.Sprint("node-", m.index), Profile: withDevices(1)})
		m.known = next
		m.beats.SetPaces(gossip.PacesOf(next))
		if err := m.beats.Listen(m, nil); err != nil {
			c.Fatal(err)
		}
		ctx, end := context.WithCancel(c.ctx)
		m.end = end
		go m.run(ctx, time.Duration(c.rng.Int64N(int64(time.Second))))
	}
	c.commit(next)
}

// run sends heartbeats as a node does.
func (m *crowdMember) run(ctx context.Context, wait time.Duration) {
	l := (*Leader)(nil)
	if m.index < crowdVoters {
		l = New(Config{
			Self: m.peer, Consensus: m, Peers: m, Heartbeats: m.beats, Log: slog.New(slog.DiscardHandler),
			Planner: Planner{
				Make: func(ctx context.Context, in planner.Input) (plan.Plan, plan.Reasons, error) {
					in.Members = in.Members[len(in.Members)-crowdWorkers:]
					return planner.Make(ctx, in)
				},
				ShouldReplan: func(context.Context, planner.Input, plan.Plan) (planner.Decision, error) {
					return planner.Decision{}, nil
				},
				Reselect: func(planner.Input, plan.Plan, planner.Measured) (planner.Reselection, error) {
					return planner.Reselection{}, planner.ErrNotElastic
				},
				Repair: func(planner.Input) (plan.Plan, plan.Reasons, error) {
					return plan.Plan{}, plan.Reasons{}, planner.ErrNoFit
				},
			},
		})
		go l.Run(ctx)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = gossip.Every
		b := m.heartbeat()
		if l != nil {
			l.Fill(&b)
		}
		if m.beats.Due(b, time.Now()) {
			if err := m.beats.Send(ctx, m, b); err != nil && ctx.Err() == nil {
				m.mu.Lock()
				m.errs = append(m.errs, err)
				m.mu.Unlock()
			}
		}
	}
}

// heartbeat takes a step each second of the plan that the member has a part in, and gives it up once another one is gone.
func (m *crowdMember) heartbeat() gossip.Heartbeat {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.known
	b := gossip.Heartbeat{Peer: m.peer, Phase: "waiting", Generation: s.Plan.Generation}
	if !s.Plan.Places(m.peer) {
		return b
	}
	b.Phase = "training"
	for _, p := range s.Plan.Peers() {
		if o, _ := s.Member(p); o.State == consensus.Gone {
			b.Phase, b.Stalled, b.Reason = "waiting", s.Plan.Generation, "a member is gone"
			return b
		}
	}
	m.step++
	b.Step, b.StepNanos = m.step, time.Second.Nanoseconds()
	return b
}

// kill ends a member and its machine.
func (c *crowd) kill(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members[i].alive = false
	c.members[i].end()
}

// elect makes another voter the leader.
func (c *crowd) elect(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader, c.term = i, c.term+1
	next := c.state
	next.Leader, next.LeaderTerm = crowdPeer(i), c.term
	c.commit(next)
}

// until waits for something that must come within a time, and returns when it came.
func (c *crowd) until(what string, limit time.Duration, ok func(consensus.State) bool) time.Duration {
	c.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		c.mu.Lock()
		s, errs := c.state, c.errs
		c.mu.Unlock()
		if len(errs) > 0 {
			c.Fatal(errs)
		}
		if ok(s) {
			c.Logf("%s after %v", what, time.Since(began))
			return time.Since(began)
		}
		if time.Since(began) > limit {
			c.Fatalf("after %v: not %s", limit, what)
		}
	}
}

// rate returns how many heartbeats, and how many of their bytes, the members that live received a second.
func (c *crowd) rate(d time.Duration) (mean, most, bytes float64) {
	count := func() (heard, size map[*crowdMember]int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		heard, size = map[*crowdMember]int{}, map[*crowdMember]int{}
		for _, m := range c.members {
			if m.alive {
				heard[m], size[m] = m.heard, m.bytes
			}
		}
		return heard, size
	}
	before, size := count()
	time.Sleep(d)
	after, larger := count()
	for m, n := range after {
		rate := float64(n-before[m]) / d.Seconds()
		mean, most, bytes = mean+rate/float64(len(after)), max(most, rate), bytes+float64(larger[m]-size[m])/d.Seconds()/float64(len(after))
	}
	return mean, most, bytes
}

func crowdPeer(i int) plan.PeerID { return plan.PeerID(fmt.Sprintf("p%04d", i)) }

// TestFiveHundredMembers: 500 members, 310 where time is short, join a run, a plan of some of them runs, workers, others and the leader die at once without a word, and
// messages get lost. What each member receives stays flat, the dead are noticed, the workers among them as soon as in a small run, and nobody
// that lives is called silent.
func TestFiveHundredMembers(t *testing.T) {
	members := 500
	if testing.Short() {
		members = 310 // the last one that dies is number 300
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := &crowd{T: t, ctx: ctx, rng: rand.New(rand.NewPCG(1, 2)), term: 1}
		run := rehearsedRun()
		run.Train.Stages, run.Train.Steps, run.Train.MinNodes = 6, 1000, 1
		c.state = consensus.State{Run: &run, Incarnation: 1, Epoch: 1, Leader: crowdPeer(0), LeaderTerm: 1, Owners: []plan.PeerID{crowdPeer(0)}}
		for len(c.members) < members {
			c.join(20)
			time.Sleep(time.Second)
		}
		c.until("a plan", time.Minute, func(s consensus.State) bool { return s.Plan.Generation > 0 })
		time.Sleep(20 * time.Second)
		mean, most, bytes := c.rate(20 * time.Second)
		t.Logf("each receives %.1f heartbeats a second, at most %.1f, %.0f bytes", mean, most, bytes)
		if most > 64+crowdWorkers+4 {
			t.Errorf("a member receives %.1f heartbeats a second", most)
		}

		c.mu.Lock()
		plan, asked := c.state.Plan, c.asked
		c.mu.Unlock()
		worker := slices.IndexFunc(c.members, func(m *crowdMember) bool { return m.peer == plan.Peers()[1] })
		others := []int{100, 200, 300}
		c.kill(worker)
		for _, i := range others {
			c.kill(i)
		}
		gone := func(s consensus.State, i int) bool {
			m, _ := s.Member(crowdPeer(i))
			return m.State == consensus.Gone
		}
		c.until("the worker is gone", UnreachableAfter+3*time.Second, func(s consensus.State) bool { return gone(s, worker) })
		c.until("a plan without it", 30*time.Second, func(s consensus.State) bool {
			return s.Plan.Generation > plan.Generation && !s.Plan.Places(crowdPeer(worker))
		})
		c.until("the others are gone", time.Minute, func(s consensus.State) bool {
			return !slices.ContainsFunc(others, func(i int) bool { return !gone(s, i) })
		})

		c.kill(0)
		time.Sleep(3 * time.Second)
		c.elect(1)
		c.until("the old leader is gone", time.Minute, func(s consensus.State) bool { return gone(s, 0) })
		time.Sleep(40 * time.Second)
		c.until("nobody else", time.Second, func(s consensus.State) bool {
			n := 0
			for _, m := range s.Members {
				if m.State == consensus.Gone {
					n++
				}
			}
			return n == 5
		})
		c.mu.Lock()
		t.Logf("%d questions to members that live", c.asked-asked)
		if c.asked-asked > 20 {
			t.Errorf("%d questions to members that live", c.asked-asked)
		}
		c.mu.Unlock()
		cancel()
	})
}
