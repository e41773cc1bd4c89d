package consensus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pnode/planner/plan"
)

// testRecovery is a recovery by a node with a log of so many entries, signed by peers.
func testRecovery(by string, index uint64, voters, dead, signers string) Recovery {
	r := Recovery{Number: 1, By: plan.PeerID(by), Term: 3, Index: index, Voters: peersOf(voters), Dead: peersOf(dead)}
	return r.signedBy(signers)
}

func (r Recovery) signedBy(signers string) Recovery {
	r.Signatures = nil
	for _, p := range peersOf(signers) {
		signature, err := keyOf(p).Sign(r.message("run"))
		if err != nil {
			panic(err)
		}
		r.Signatures = append(r.Signatures, VoterMark{Peer: p, Signature: signature})
	}
	return r
}

// heard returns what a node of the cluster has heard of others since now.
func (c *cluster) heard(self plan.PeerID) func(plan.PeerID) time.Duration {
	began := time.Now()
	return func(p plan.PeerID) time.Duration { return time.Since(c.met(self, p, began)) }
}

// met returns when a peer was heard of last by another, at the earliest when that one began to listen.
func (c *cluster) met(self, p plan.PeerID, began time.Time) time.Time {
	c.hearing.Lock()
	defer c.hearing.Unlock()
	if at := c.lastHeard[[2]plan.PeerID{self, p}]; at.After(began) {
		return at
	}
	return began
}

// gossip notes once in a second who hears whom, until the test ends.
func (c *cluster) gossip(ctx context.Context) {
	for ctx.Err() == nil {
		c.hearing.Lock()
		for _, p := range c.net.peers() {
			for _, q := range c.net.peers() {
				if cut, _ := c.net.cut(p, q); !cut {
					c.lastHeard[[2]plan.PeerID{p, q}] = time.Now()
				}
			}
		}
		c.hearing.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// recovers has a node recover the run within a minute.
func (c *cluster) recovers(p plan.PeerID) Recovery {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	r, err := c.nodes[p].Recover(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// wantRefusal wants a recovery to be refused for a reason.
func (c *cluster) wantRefusal(p plan.PeerID, why string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	if _, err := c.nodes[p].Recover(ctx); !errors.Is(err, ErrNotLost) || !strings.Contains(err.Error(), why) {
		c.t.Errorf("recover at %s gives %v, want %q", p, err, why)
	}
}

// Two of three voters are lost for good: the third goes on alone, once nobody has heard of them for 10 minutes. It keeps the
// log, and who joins later finds the run.
func TestRecoverTheLastOfThree(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		c.must(c.leader(), WantPause{Count: 1})
		c.everywhere("the pause", func(s State) bool { return s.PauseWanted == 1 })
		c.wantRefusal("c", "leads")
		c.crash("a")
		c.crash("b")
		time.Sleep(time.Minute)
		c.wantRefusal("c", "try again in ")
		time.Sleep(RecoverAfter - time.Minute)
		c.recovers("c")
		s := c.nodes["c"].State()
		if s.PauseWanted != 1 || s.Incarnation != 2 || s.Leader != "c" {
			t.Errorf("after the recovery: pause %d, incarnation %d, leader %s", s.PauseWanted, s.Incarnation, s.Leader)
		}
		for _, p := range peersOf("a,b") {
			if m, _ := s.Member(p); m.State != Gone {
				t.Errorf("%s is %s", p, m.State)
			}
		}
		c.goesOn(c.nodes["c"])
		c.crash("c") // it goes on from its store
		c.start("c")
		c.until("its lead", func() bool { return c.leader() != nil })
		c.goesOn(c.nodes["c"])
	})
}

// Five nodes with three voters lose two of them. The newest log is that of a node without a vote: the others follow it, on
// their own logs.
func TestRecoverWithOthers(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		c.everywhere("the run", func(s State) bool { return s.Run != nil })
		var dead, living []plan.PeerID
		voters := votersOf(c.leader().Servers())
		for _, p := range c.peers {
			if slices.Contains(voters, p) && len(dead) < 2 && p != "a" {
				dead = append(dead, p)
			} else {
				living = append(living, p)
			}
		}
		for _, p := range dead {
			c.crash(p)
		}
		time.Sleep(RecoverAfter)
		r := c.recovers(living[0])
		c.everywhere("the recovery", func(s State) bool { return s.Recovery != nil && s.Recovery.ID() == r.ID() })
		c.goesOn(c.nodes[living[0]])
		c.goesOn(c.nodes[living[1]])
		for _, p := range living {
			if change, ok := c.nodes[p].ChangedOver(); !ok || change.Discarded {
				t.Errorf("%s: changed over %v, discarded %v", p, ok, change.Discarded)
			}
		}
		if r.Voters == nil || !slices.Equal(r.Dead, sorted(dead)) || !c.nodes[living[0]].lineage.get().Strong {
			t.Errorf("the recovery is %+v", r)
		}
		// One that comes back joins anew, by itself: an owner has signed.
		n := c.start(dead[0])
		c.until("the lineage there", func() bool { return n.lineage.get().id() == r.ID() })
		c.epochs++
		c.must(n, Join{Peer: dead[0], ProcessEpoch: c.epochs})
		c.must(n, SetMemberState{Peer: dead[0], ProcessEpoch: c.epochs, State: Active})
		c.goesOn(n)
		if _, ok := n.ChangedOver(); !ok {
			t.Error("who comes back did not change over")
		}
	})
}

func sorted(peers []plan.PeerID) []plan.PeerID {
	slices.Sort(peers)
	return peers
}

// Both parts of a run that was cut in two have gone on: that with the recovery counts, and the other one's entries since are
// given up, where an owner or most members have signed it.
func TestBothSidesWentOn(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		c.everywhere("the run", func(s State) bool { return s.Run != nil })
		c.net.partition("a") // the owner
		time.Sleep(RecoverAfter + time.Minute)
		r := c.recovers("a")
		other := c.nodes["b"]
		c.until("a leader there", func() bool { l, _, _ := other.Leader(); return l != "" && l != "a" })
		if _, _, leads := other.Leader(); !leads {
			other = c.nodes["c"]
		}
		c.must(other, WantPause{Count: 1})
		c.goesOnAlone("a")
		c.net.partition()
		for _, p := range peersOf("b,c") {
			n := c.nodes[p]
			c.until("the lineage at "+string(p), func() bool { return n.lineage.get().id() == r.ID() })
			m, _ := n.State().Member(p)
			c.must(n, Join{Peer: p, ProcessEpoch: m.ProcessEpoch + 10})
			if change, ok := n.ChangedOver(); !ok || !change.Discarded || change.Before.PauseWanted != 1 {
				t.Errorf("%s: changed over %v, discarded %v, pause %d", p, ok, change.Discarded, change.Before.PauseWanted)
			}
		}
		c.everywhere("one history", func(s State) bool { return s.PauseWanted == 0 && s.Recovery != nil })
	})
}

// goesOnAlone has a node without others propose.
func (c *cluster) goesOnAlone(p plan.PeerID) {
	c.t.Helper()
	m, _ := c.nodes[p].State().Member(p)
	c.must(c.nodes[p], Update{Peer: p, ProcessEpoch: m.ProcessEpoch, Addrs: []string{"alone"}})
}

// A member that is no owner recovers the run without the others' word, and these live after all: nobody believes it, and it
// comes back to them.
func TestWeakRecoveryYields(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		c.everywhere("the run", func(s State) bool { return s.Run != nil })
		c.net.partition("c")
		time.Sleep(RecoverAfter + time.Minute)
		c.recovers("c")
		if c.nodes["c"].lineage.get().Strong {
			t.Fatal("one member of three counts for all")
		}
		c.goesOnAlone("c")
		c.must(c.nodes["a"], WantPause{Count: 1})
		c.net.partition()
		n := c.nodes["c"]
		c.until("the way back", func() bool { return n.lineage.get().id() == "" })
		c.until("the log", func() bool { return n.State().PauseWanted == 1 })
		if change, ok := n.ChangedOver(); !ok || !change.Discarded || change.Recovery != nil {
			t.Errorf("changed over %v: %+v", ok, change)
		}
		for _, p := range peersOf("a,b") {
			if _, ok := c.nodes[p].ChangedOver(); ok {
				t.Errorf("%s believed one member", p)
			}
		}
	})
}

// A recovery counts where more than half of the members have signed it, also with a voter that has gone on alone since and counts them
// as lost. Members that left or were removed, and fewer than those who went on, are not enough.
func TestSignaturesOfMembersThatCountAsGone(t *testing.T) {
	silent := Member{State: Gone, Reason: "nothing was heard of it"}
	left := Member{State: Gone, Reason: ReasonLeft}
	for name, c := range map[string]struct {
		members map[string]Member
		revoked []Revocation
		want    bool
	}{
		"all are there":               {map[string]Member{"a": {State: Active}, "b": {State: Active}, "c": {State: Active}}, nil, true},
		"both count as lost":          {map[string]Member{"a": {State: Active}, "b": silent, "c": silent}, nil, true},
		"both left":                   {map[string]Member{"a": {State: Active}, "b": left, "c": left}, nil, false},
		"one left":                    {map[string]Member{"a": {State: Active}, "b": silent, "c": left}, nil, false},
		"one was removed":             {map[string]Member{"a": {State: Active}, "b": silent, "c": silent}, []Revocation{{Peer: "c"}}, false},
		"as many went on without":     {map[string]Member{"a": {State: Active}, "b": silent, "c": silent, "d": {State: Active}}, nil, false},
		"strangers":                   {map[string]Member{"a": {State: Active}}, nil, false},
		"one is there and one is not": {map[string]Member{"a": {State: Active}, "b": silent, "c": {State: Active}}, nil, true},
	} {
		s := State{Revoked: c.revoked}
		for p, m := range c.members {
			m.Peer = plan.PeerID(p)
			s = s.withMember(m)
		}
		r := Recovery{Signatures: []VoterMark{{Peer: "b"}, {Peer: "c"}}}
		if got := r.strong(s); got != c.want {
			t.Errorf("%s: must be believed: %v, want %v", name, got, c.want)
		}
	}
}

// The only voter of two nodes is lost, and the other one, which is no owner, recovers the run. The voter leads at once when it
// is started again, as it is a majority: the other one comes back to it.
func TestTheOnlyVoterComesBack(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		c.everywhere("the run", func(s State) bool { return s.Run != nil })
		c.crash("a")
		time.Sleep(RecoverAfter)
		c.recovers("b")
		c.goesOnAlone("b")
		c.start("a")
		n := c.nodes["b"]
		time.Sleep(lookSeldom)
		c.until("the way back", func() bool { return n.lineage.get().id() == "" })
		c.until("the log", func() bool { return n.State().Recovery == nil })
		if change, ok := n.ChangedOver(); !ok || !change.Discarded || change.Recovery != nil {
			t.Errorf("changed over %v: %+v", ok, change)
		}
		if _, ok := c.nodes["a"].ChangedOver(); ok {
			t.Error("the voter believed one member")
		}
	})
}

// A member that is no owner goes on alone, as the two others are lost. The owner comes back, which it said to be dead: it
// believes nobody by itself, and follows at its operator's word. With that the third believes it too.
func TestFollowAtTheOperatorsWord(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		c.everywhere("the run", func(s State) bool { return s.Run != nil })
		c.crash("a")
		c.crash("b")
		time.Sleep(RecoverAfter)
		c.recovers("c")
		c.goesOnAlone("c")
		a := c.start("a")
		c.until("the sight of c", func() bool { return a.Quorum().Apart == "c" })
		time.Sleep(2 * RecoverAfter)
		if _, ok := a.ChangedOver(); ok {
			t.Fatal("an owner believes one member that is none")
		}
		c.recovers("a")
		back := func(n *Node) {
			c.epochs++
			c.must(n, Join{Peer: n.self, ProcessEpoch: c.epochs})
			c.must(n, SetMemberState{Peer: n.self, ProcessEpoch: c.epochs, State: Active})
			c.goesOn(n)
		}
		back(a)
		b := c.start("b")
		c.until("the lineage at b", func() bool { return b.lineage.get().id() == c.nodes["c"].lineage.get().id() })
		back(b)
	})
}

// unlike has a node recover the run whose log is older than that of another one, as all voters are lost. It returns the two.
func unlike(c *cluster) (older, newer *Node) {
	c.must(c.nodes["a"], testRun())
	c.everywhere("the run", func(s State) bool { return s.Run != nil })
	voters := votersOf(c.leader().Servers())
	var living []plan.PeerID
	for _, p := range c.peers {
		if !slices.Contains(voters, p) {
			living = append(living, p)
		}
	}
	living = append(living, voters[len(voters)-1])
	older, newer = c.nodes[living[0]], c.nodes[living[1]]
	c.net.partition(older.self)
	c.must(c.leader(), WantPause{Count: 1})
	c.until("a newer log", func() bool { return newer.State().PauseWanted == 1 })
	for _, p := range voters[:len(voters)-1] {
		c.crash(p)
	}
	c.net.partition()
	return older, newer
}

// A node has another one go on, whose log is newer, and follows it at once: the next time that it would be asked is half a minute away.
func TestWhoHasAnotherGoOnFollowsAtOnce(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, c *cluster) {
		older, newer := unlike(c)
		time.Sleep(RecoverAfter)
		recovered := make(chan struct{})
		go func() {
			defer close(recovered)
			if _, err := older.Recover(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		c.until("another lineage", func() bool { return newer.lineage.get().number() == 1 })
		if took := c.until("the same one", func() bool { return older.lineage.get().number() == 1 }); took > time.Second {
			t.Errorf("followed after %v", took)
		}
		<-recovered
		c.goesOn(older)
	})
}

// What keeps a node from following at once does not undo that another one goes on.
func TestWhoHasAnotherGoOnFollowsLater(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, c *cluster) {
		older, newer := unlike(c)
		time.Sleep(RecoverAfter)
		y := older.Recoverer
		looks := y.lookAround(t.Context(), older.contacts())
		looks[older.self] = y.ownLook()
		r, err := agree(older.State(), older.lineage.get(), votersOf(older.Servers()), older.self, looks)
		if err != nil || r.By != newer.self {
			t.Fatalf("%+v, %v", r, err)
		}
		r.Signatures = y.gather(t.Context(), r, sortedPeers(looks))
		c.hearing.Lock()
		c.lastHeard[[2]plan.PeerID{older.self, r.Dead[0]}] = time.Now() // a voter is heard of again
		c.hearing.Unlock()
		if err := y.take(older.self, r); err == nil {
			t.Fatal("this node follows at once")
		}
		if err := y.goOn(t.Context(), r); err != nil {
			t.Error(err)
		}
		c.until("another lineage", func() bool { return newer.lineage.get().number() == 1 })
	})
}

// The node that was asked to go on is lost before it does. Who asked it recovers the run again.
func TestWhoWasToGoOnIsLost(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, c *cluster) {
		older, newer := unlike(c)
		c.crash(older.self)
		c.recoverAfter = RecoverAfter
		older = c.start(older.self)
		time.Sleep(RecoverAfter)
		c.until("another lineage", func() bool { return newer.lineage.get().number() == 1 })
		c.crash(newer.self)
		time.Sleep(RecoverAfter)
		c.until("a leader again", func() bool { return c.leader() == older })
		if n := older.lineage.get().number(); n != 2 {
			t.Errorf("the run is in lineage %d, want 2", n)
		}
		c.goesOn(older)
	})
}

// Nodes that are to recover the run by themselves do so, one of them for all, and not before.
func TestRecoverByItself(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		c.everywhere("the run", func(s State) bool { return s.Run != nil })
		voters := votersOf(c.leader().Servers())[:2]
		var living []plan.PeerID
		for _, p := range c.peers {
			if !slices.Contains(voters, p) {
				living = append(living, p)
			}
		}
		for _, p := range c.peers {
			c.nodes[p].config.RecoverAfter = RecoverAfter
		}
		for _, p := range voters {
			c.crash(p)
		}
		time.Sleep(RecoverAfter - 10*time.Second)
		if c.leader() != nil {
			t.Fatal("recovered too early")
		}
		time.Sleep(time.Minute)
		c.until("a leader", func() bool { return c.leader() != nil })
		c.everywhere("the recovery", func(s State) bool { return s.Recovery != nil && s.Recovery.Number == 1 })
		c.goesOn(c.nodes[living[0]])
	})
}

// crowdTransport asks a member in place of each of many that are not there, while they answer, and counts who is asked.
type crowdTransport struct {
	Transport
	instead plan.PeerID
	there   atomic.Bool
	answers atomic.Bool
	asked   atomic.Int64
}

func (t *crowdTransport) Open(ctx context.Context, p plan.PeerID) (Stream, error) {
	if !strings.HasPrefix(string(p), "!") {
		return t.Transport.Open(ctx, p)
	}
	s, err := t.Transport.Open(ctx, t.instead)
	return crowdStream{s, t}, err
}

type crowdStream struct {
	Stream
	t *crowdTransport
}

func (s crowdStream) Write(b []byte) (int, error) {
	if bytes.HasPrefix(b, appendRequest([]byte{streamRequest}, request{op: opLook})) {
		s.t.asked.Add(1)
	}
	if !s.t.answers.Load() {
		return 0, net.ErrClosed
	}
	return s.Stream.Write(b)
}

// TestWhoseTurnIsLaterAsksFew: a node that is to recover the run by itself asks some of many members while others would do so before it, and all of
// these where they do not answer: it goes on by itself then.
func TestWhoseTurnIsLaterAsksFew(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		c.everywhere("the run", func(s State) bool { return s.Run != nil })
		voters := votersOf(c.leader().Servers())[:2]
		const crowd = 100
		wires := map[plan.PeerID]*crowdTransport{}
		for _, p := range c.peers {
			if slices.Contains(voters, p) {
				continue
			}
			n := c.nodes[p]
			w, known := &crowdTransport{Transport: n.config.Transport, instead: p}, n.config.Contacts
			w.answers.Store(true)
			for _, q := range c.peers {
				if q != p && !slices.Contains(voters, q) {
					w.instead = q
				}
			}
			n.config.Transport, wires[p] = w, w
			n.config.Contacts = func() []plan.PeerID {
				all := slices.Clone(known())
				for i := 0; i < crowd && w.there.Load(); i++ { // each is before all nodes
					all = append(all, plan.PeerID(fmt.Sprintf("!%03d", i)))
				}
				return all
			}
			n.config.RecoverAfter = RecoverAfter
		}
		for _, p := range voters {
			c.crash(p)
		}
		time.Sleep(RecoverAfter - 5*lookEvery)
		for _, w := range wires {
			w.there.Store(true)
		}
		time.Sleep(7 * lookEvery)
		for _, w := range wires {
			w.asked.Store(0)
		}
		time.Sleep(5 * lookEvery)
		for p, w := range wires {
			if n := w.asked.Load(); n < 4*looksAtOnce/2 || n > 6*looksAtOnce {
				t.Errorf("%s asked %d of %d in five turns", p, n, crowd)
			}
			w.answers.Store(false)
			w.asked.Store(0)
		}
		if c.leader() != nil {
			t.Fatal("recovered before those whose turn is earlier")
		}
		time.Sleep(2 * lookEvery)
		for p, w := range wires {
			if n := w.asked.Load(); n < crowd {
				t.Errorf("%s asked %d of %d that are to recover the run before it", p, n, crowd)
			}
		}
		time.Sleep(time.Minute)
		c.until("a leader", func() bool { return c.leader() != nil })
		c.everywhere("the recovery", func(s State) bool { return s.Recovery != nil && s.Recovery.Number == 1 })
	})
}

// TestForgedRecoveries shows nodes recoveries that they must not believe.
func TestForgedRecoveries(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		c.everywhere("the run", func(s State) bool { return s.Run != nil })
		victim := c.nodes["b"]
		good := testRecovery("c", 7, "a,b,c", "a,b", "c")
		changed := testRecovery("c", 7, "a,b,c", "a,b", "a")
		changed.Index = 9
		short := testRecovery("c", 7, "a,b,c", "a,b", "a")
		short.Signatures[0].Signature = short.Signatures[0].Signature[:3]
		for what, r := range map[string]Recovery{
			"one member's word":        good,
			"nobody's":                 good.signedBy(""),
			"changed after":            changed,
			"a short signature":        short,
			"the living are most":      testRecovery("c", 7, "a,b,c", "a", "a"),
			"one that is dead goes on": testRecovery("a", 7, "a,b,c", "a,b", "a"),
			"an owner's, by another":   testRecovery("x", 7, "a,b,c", "a,b", "a"),
			"by who hears the dead":    testRecovery("b", 7, "a,b,c", "a,c", "a"),
		} {
			if err := victim.Recoverer.take("c", r); err == nil {
				t.Errorf("%s: believed", what)
			}
			if err := victim.author.recovered(r); err == nil && strings.HasPrefix(what, "changed") {
				t.Errorf("%s: the signatures hold", what)
			}
		}
		for _, p := range c.peers {
			if _, ok := c.nodes[p].ChangedOver(); ok {
				t.Errorf("%s changed over", p)
			}
		}
		// Nor does a member put one into the log.
		for _, p := range peersOf("a,b,c") {
			if err := c.nodes[p].Propose(t.Context(), Recover{good}); !errors.Is(err, ErrForbidden) && !errors.Is(err, ErrRejected) {
				t.Errorf("%s proposes a recovery: %v", p, err)
			}
		}
	})
}

// TestAgree has a node decide from what others say.
func TestAgree(t *testing.T) {
	ten := Silence{"a", RecoverAfter.Milliseconds()}
	twenty := Silence{"b", 2 * RecoverAfter.Milliseconds()}
	run := testRun().Spec
	members := []Member{{Peer: "a", State: Active}, {Peer: "b", State: Active}, {Peer: "c", State: Active}, {Peer: "d", State: Active}}
	for _, c := range []struct {
		what  string
		looks map[plan.PeerID]Look
		want  string
	}{
		{"two of three are dead", map[plan.PeerID]Look{"c": {Term: 2, Index: 5, Silent: []Silence{ten, twenty}}}, "c"},
		{"another has a newer log", map[plan.PeerID]Look{"c": {Term: 2, Index: 5, Silent: []Silence{ten, twenty}}, "d": {Term: 2, Index: 6}}, "d"},
		{"of a newer term", map[plan.PeerID]Look{"c": {Term: 2, Index: 5}, "d": {Term: 3, Index: 1}}, "d"},
		{"another lineage's log does not count", map[plan.PeerID]Look{"c": {Term: 2, Index: 5}, "d": {Lineage: "x", Term: 3, Index: 1}}, "c"},
		{"a majority answers", map[plan.PeerID]Look{"c": {}, "b": {}}, "a majority"},
		{"somebody leads", map[plan.PeerID]Look{"c": {}, "d": {Leader: "a"}}, "leads"},
		{"heard a while ago", map[plan.PeerID]Look{"c": {Silent: []Silence{ten, twenty}}, "d": {Silent: []Silence{{"b", 60_000}}}}, "try again in 9 min"},
	} {
		s := State{Run: &run, Members: members}
		r, err := agree(s, lineage{}, peersOf("a,b,c"), "c", c.looks)
		got := string(r.By)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
	if _, err := agree(State{}, lineage{}, nil, "c", map[plan.PeerID]Look{"c": {}}); !errors.Is(err, ErrNotLost) {
		t.Errorf("without a log: %v", err)
	}
}

// TestConversion says what becomes of a log.
func TestConversion(t *testing.T) {
	first := testRecovery("c", 7, "a,b,c", "a,b", "c")
	second := Recovery{Number: 2, After: first.ID(), By: "d", Term: 5, Index: 3}
	for _, c := range []struct {
		now, next   *Recovery
		self        plan.PeerID
		term, index uint64
		want        conversion
	}{
		{nil, &first, "c", 3, 7, founded},
		{nil, &first, "d", 3, 7, kept},
		{nil, &first, "d", 2, 9, kept},
		{nil, &first, "d", 3, 8, discarded},
		{nil, &first, "d", 4, 1, discarded},
		{&first, &second, "e", 5, 3, kept},
		{nil, &second, "e", 1, 1, discarded},
		{&first, nil, "e", 1, 1, discarded},
	} {
		got := lineage{Recovery: c.now}.conversion(lineage{Recovery: c.next}, c.self, plan.Term(c.term), c.index)
		if got != c.want {
			t.Errorf("%v to %v at %s with %d, %d: %q, want %q", c.now, c.next, c.self, c.term, c.index, got, c.want)
		}
	}
	if l := (lineage{Recovery: &first}); l.before(lineage{}) || !(lineage{}).before(l) || !l.before(lineage{Recovery: &second}) {
		t.Error("the higher number does not count")
	}
}

func FuzzDecodeLook(f *testing.F) {
	f.Add([]byte(`{"term":3,"index":7,"silent":[{"peer":"a","millis":5}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := decodeLook(b)
		if err == nil && len(l.Silent) > maxVoters {
			t.Error(fmt.Sprint(len(l.Silent)) + " voters")
		}
	})
}

// TestGoingOnApartIsToldOnce: at the second look, since the word of who recovered the run may be on its way at the first, and again where the
// two had come together meanwhile.
func TestGoingOnApartIsToldOnce(t *testing.T) {
	var out strings.Builder
	n := &Node{config: Config{Logger: slog.New(slog.NewTextHandler(&out, nil))}, machine: &machine{}}
	n.machine.state.Store(&State{Members: []Member{{Peer: "b", Label: "desk"}}})
	y := &Recoverer{node: n}
	for i, c := range []struct {
		apart bool
		told  int
	}{{true, 0}, {true, 1}, {true, 1}, {false, 1}, {true, 1}, {false, 1}, {true, 1}, {true, 2}} {
		if y.noteApart("b", c.apart, "`pnode recover` here has this node follow it"); strings.Count(out.String(), "desk goes on with the run apart from this node") != c.told {
			t.Errorf("look %d: told %s", i, out.String())
		}
		if (y.apartFrom() == "b") != c.apart {
			t.Errorf("look %d: apart from %q", i, y.apartFrom())
		}
	}
}
