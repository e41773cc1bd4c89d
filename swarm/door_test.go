package swarm

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"pnode/pipeline/model"
	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/consensus"
	"pnode/swarm/door"
	"pnode/swarm/streams"
)

// resident is a node of a run as package node makes one, as far as admission goes: a swarm, the log on its
// streams, and a door between both.
type resident struct {
	*Swarm
	t     *testing.T
	cfg   Config
	log   *consensus.Node
	store *memoryKV
	kept  []plan.PeerID
	epoch uint64
	owner admission.Owner
	stop  func()
}

// founder begins a run on a net.
func (n *virtualNet) founder(t *testing.T) *resident {
	t.Helper()
	o := testOwner(t)
	r := &resident{t: t, cfg: testMember(t, o, testRun), store: newMemoryKV(), owner: o}
	r.cfg.Simulated = n.Host()
	r.run(true)
	r.must(consensus.SetRun{Owner: r.ID(), Spec: plan.RunSpec{
		Run: testRun, Model: model.Config{Vocab: 256, Context: 8, Blocks: 1, Heads: 1, Channels: 8},
		Train: plan.TrainSpec{Steps: 100, Micros: 2, MicroBatch: 1},
	}})
	r.enroll()
	return r
}

// resident lets a node come in by an invite, as an active member of the roster.
func (n *virtualNet) resident(t *testing.T, v admission.Invite) *resident {
	t.Helper()
	r, err := n.newcomer(t, v)
	if err != nil {
		t.Fatal(err)
	}
	r.enroll()
	return r
}

// newcomer comes to the contact of an invite, and does not enter the roster.
func (n *virtualNet) newcomer(t *testing.T, v admission.Invite) (*resident, error) {
	t.Helper()
	id, sim, ctx := testIdentity(t), n.Host(), testContext(t)
	parsed, err := admission.ParseInvite(v.String())
	if err != nil {
		t.Fatal(err)
	}
	if parsed, err = Claim(ctx, Config{Identity: id, Simulated: sim}, parsed); err != nil {
		return nil, err
	}
	capability, err := parsed.Redeem(id, time.Now())
	if err != nil {
		return nil, err
	}
	r := &resident{t: t, store: newMemoryKV(), cfg: Config{
		Identity: id, Run: parsed.Grant.Run, OwnerKey: parsed.OwnerKey, Capability: capability,
		Bootstrap: parsed.Addrs, Logger: testLogger(t), Simulated: sim,
	}}
	if o, err := admission.OwnerBy(id, capability, parsed.OwnerKey); err == nil {
		r.owner = o
	}
	r.run(false)
	return r, r.Connect(ctx, parsed.Addrs...)
}

// run starts the parts of a resident, for the first time or again.
func (r *resident) run(founds bool) {
	r.t.Helper()
	d := door.New(admission.Run{ID: testRun, OwnerKey: r.cfg.OwnerKey}, r.kept, time.Now)
	r.cfg.Admit, r.cfg.Offer = d.Admit, d.Offer
	r.Swarm = start(r.t, r.cfg)
	var err error
	r.log, err = consensus.Start(context.Background(), consensus.Config{
		Transport: swarmTransport{r.Swarm}, KV: r.store, Run: string(testRun), Signer: r.cfg.Identity, Bootstrap: founds,
		Logger: r.Swarm.cfg.Logger, Proof: r.cfg.Capability,
		Owner: func(p plan.PeerID, proof []byte) error {
			c, err := admission.DecodeCapability(proof)
			if err == nil {
				err = c.Verify(admission.Run{ID: testRun, OwnerKey: r.cfg.OwnerKey}, time.Now())
			}
			if err == nil && (c.Peer != p || c.Role != admission.RoleOwner) {
				err = admission.ErrSignature
			}
			return err
		},
		Contacts: func() (peers []plan.PeerID) {
			for _, c := range r.Members() {
				peers = append(peers, c.Peer)
			}
			return peers
		},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	d.Open(r.log)
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() {
		for ctx.Err() == nil {
			changed := r.log.Changed()
			state := r.log.State()
			for _, gone := range state.Revoked {
				r.Block(gone.Peer, admission.Removed(state.Removal(gone)))
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	})
	s, log := r.Swarm, r.log
	r.stop = sync.OnceFunc(func() {
		cancel()
		following.Wait()
		if err := errors.Join(log.Close(), s.Close()); err != nil {
			r.t.Error(err)
		}
	})
	r.t.Cleanup(r.stop)
}

// restart ends a resident and starts it again, with what it knew of the run.
func (r *resident) restart() {
	r.t.Helper()
	for _, m := range r.log.State().Members {
		r.kept = append(r.kept, m.Peer)
	}
	r.cfg.Bootstrap = r.Known()
	r.stop()
	r.run(false)
}

// invite makes an invite at a time and has it noted in the log.
func (r *resident) invite(opt admission.InviteOptions, at time.Time) admission.Invite {
	r.t.Helper()
	opt.Run, opt.Addrs = testRun, r.Addrs()
	v, err := r.owner.Invite(opt, at)
	if err != nil {
		r.t.Fatal(err)
	}
	r.must(consensus.Invite{
		Serial: uint64(v.Grant.Serial), Issuer: r.ID(), Made: time.Now().Unix(), Owner: opt.Owner, Uses: v.Grant.Uses,
		RedeemBefore: v.Grant.RedeemBefore.Unix(), Bearer: v.Bearer(), Signed: v.Grant.Encode(),
	})
	r.until("its own invite", func(s consensus.State) bool { _, ok := s.Grant(uint64(v.Grant.Serial)); return ok })
	return v
}

// enroll brings a resident into the roster.
func (r *resident) enroll() {
	r.t.Helper()
	r.epoch++
	r.must(consensus.Join{Peer: r.ID(), ProcessEpoch: r.epoch})
	r.must(consensus.SetMemberState{Peer: r.ID(), ProcessEpoch: r.epoch, State: consensus.Active})
	r.until("the roster", func(s consensus.State) bool { return s.Run != nil && s.Admitted(r.ID()) })
}

// awaitVoters waits until so many nodes have a vote.
func (r *resident) awaitVoters(n int) {
	r.t.Helper()
	voters := func() (n int) {
		for _, s := range r.log.Servers() {
			if s.Voter {
				n++
			}
		}
		return n
	}
	for voters() < n {
		time.Sleep(time.Second) // virtual
	}
}

func (r *resident) must(e consensus.Entry) {
	r.t.Helper()
	if err := r.log.Propose(testContext(r.t), e); err != nil {
		r.t.Fatal(err)
	}
}

// until waits until the log here says so.
func (r *resident) until(what string, ok func(consensus.State) bool) {
	r.t.Helper()
	ctx := testContext(r.t)
	for {
		changed := r.log.Changed()
		if ok(r.log.State()) {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			r.t.Fatalf("never: %s", what)
		}
	}
}

// patched comes to a door by an invite with a client that skips its own checks, and never enters the roster.
func (n *virtualNet) patched(t *testing.T, v admission.Invite, at *resident) (*Swarm, error) {
	t.Helper()
	s := n.client(t, v)
	return s, s.Connect(testContext(t), at.Addrs()...)
}

// client is a newcomer that believes an invite open, whatever it says.
func (n *virtualNet) client(t *testing.T, v admission.Invite) *Swarm {
	t.Helper()
	id := testIdentity(t)
	capability, err := v.Redeem(id, v.Grant.RedeemBefore.Add(-time.Minute)) // its clock is where it wants it
	if err != nil {
		t.Fatal(err)
	}
	return start(t, Config{
		Identity: id, Run: testRun, OwnerKey: v.OwnerKey, Capability: capability, Logger: testLogger(t), Simulated: n.Host(),
	})
}

// An expired invite lets in nobody, whatever the client believes: the door knows the end from the log.
func TestVirtualExpiredInviteWithAClientThatSkipsItsCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVirtualNet(t)
		f := n.founder(t)
		m := n.resident(t, f.invite(admission.InviteOptions{}, time.Now()))
		v := f.invite(admission.InviteOptions{TTL: time.Hour, Uses: 8}, time.Now().Add(-2*time.Hour))
		for _, at := range []*resident{f, m} {
			s, err := n.patched(t, v, at)
			if !errors.Is(err, admission.ErrInviteExpired) {
				t.Errorf("an expired invite: %v", err)
			}
			if slices.ContainsFunc(at.Members(), func(c admission.Capability) bool { return c.Peer == s.ID() }) {
				t.Error("it is a member")
			}
		}
		// An honest client is told before it redeems.
		if _, err := n.newcomer(t, v); !errors.Is(err, admission.ErrInviteExpired) {
			t.Errorf("an honest client: %v", err)
		}
		// A door that asks the leader anyway is refused by it.
		c, err := v.Redeem(testIdentity(t), v.Grant.RedeemBefore.Add(-time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		capability, _ := admission.DecodeCapability(c)
		err = m.log.Propose(testContext(t), consensus.Redeem{Serial: uint64(v.Grant.Serial), Peer: capability.Peer, Signature: capability.Signature()})
		if !errors.Is(err, consensus.ErrRejected) || !strings.Contains(err.Error(), "expired") {
			t.Errorf("a lying door: %v", err)
		}
	})
}

// An invite with one use lets in one peer, through whichever of three doors it comes at once, also after all of them were
// started again: the log counts, not the roster.
func TestVirtualOneUseAtThreeDoors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVirtualNet(t)
		f := n.founder(t)
		two := f.invite(admission.InviteOptions{Uses: 2}, time.Now())
		doors := []*resident{f, n.resident(t, two), n.resident(t, two)}
		v := f.invite(admission.InviteOptions{Uses: 1}, time.Now())
		came := n.storm(t, v, doors)
		if came != 1 {
			t.Errorf("%d of 3 came in by an invite for one", came)
		}
		for _, r := range doors {
			r.restart()
		}
		for _, r := range doors {
			r.until("the log after the restart", func(s consensus.State) bool { g, _ := s.Grant(uint64(v.Grant.Serial)); return len(g.Peers) == 1 })
		}
		if came := n.storm(t, v, doors); came != 0 {
			t.Errorf("%d more came in after a restart", came)
		}
		if members := len(f.log.State().Members); members != 3 {
			t.Errorf("%d members in the roster", members)
		}
	})
}

// storm sends one patched client with an invite to each door at once, and returns how many are let in.
func (n *virtualNet) storm(t *testing.T, v admission.Invite, doors []*resident) (came int) {
	t.Helper()
	results, ctx := make(chan error), testContext(t)
	for _, at := range doors {
		s, addrs := n.client(t, v), at.Addrs()
		go func() { results <- s.Connect(ctx, addrs...) }()
	}
	for range doors {
		switch err := <-results; {
		case err == nil:
			came++
		case !errors.Is(err, admission.ErrInviteUsed) && !errors.Is(err, admission.ErrRefused):
			t.Errorf("refused with %v", err)
		}
	}
	return came
}

// Without a majority nobody new comes in and is told why; who belongs to the run does.
func TestVirtualNobodyNewWithoutAMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVirtualNet(t)
		f := n.founder(t)
		v := f.invite(admission.InviteOptions{Uses: 8}, time.Now())
		a, b := n.resident(t, v), n.resident(t, v)
		f.awaitVoters(3)
		a.stop()
		b.stop()
		waitMembers(t, testContext(t), f.Swarm, 0)
		time.Sleep(10 * time.Second) // virtual: the leader notices
		if _, err := n.patched(t, v, f); !errors.Is(err, admission.ErrNoMajority) {
			t.Errorf("a newcomer: %v", err)
		}
		a.restart()
		waitMembers(t, testContext(t), f.Swarm, 1)
		if _, err := n.patched(t, v, f); err != nil {
			t.Errorf("with a majority again: %v", err)
		}
	})
}

// A node that was killed comes back with the state of its newest snapshot, and all who vote by now came after that: it lets
// them in, since it knew them, and gets the log of them.
func TestVirtualReturnWithAnOldState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVirtualNet(t)
		f := n.founder(t)
		v := f.invite(admission.InviteOptions{Uses: 8}, time.Now())
		a := n.resident(t, v)
		for i := range uint64(600) {
			f.must(consensus.WantPause{Count: i + 1})
		}
		time.Sleep(2 * time.Minute) // virtual: both make a snapshot
		for range 3 {
			n.resident(t, v)
		}
		f.awaitVoters(5)
		f.stop()
		a.restart()
		a.until("the roster with who came after its snapshot", func(s consensus.State) bool { return len(s.Members) == 5 })
		waitMembers(t, testContext(t), a.Swarm, 3)
	})
}

// A peer that an owner has removed is cut off, told why, and stays out over restarts, by any invite; so does who comes by an
// invite that was revoked.
func TestVirtualRevoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVirtualNet(t)
		f := n.founder(t)
		v := f.invite(admission.InviteOptions{Uses: 8}, time.Now())
		a, b := n.resident(t, v), n.resident(t, v)
		waitMembers(t, testContext(t), a.Swarm, 2)
		f.must(consensus.Revoke{By: f.ID(), Peer: b.ID(), Reason: "it sends nonsense"})
		waitMembers(t, testContext(t), f.Swarm, 1)
		waitMembers(t, testContext(t), a.Swarm, 1)
		waitMembers(t, testContext(t), b.Swarm, 0)
		refused := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, admission.ErrBlocked) || !strings.Contains(err.Error(), "removed from the run by") || !strings.Contains(err.Error(), "it sends nonsense") {
				t.Errorf("%s: %v", what, err)
			}
		}
		f.restart()
		a.restart()
		a.until("the log", func(s consensus.State) bool { return len(s.Revoked) == 1 })
		f.until("the log", func(s consensus.State) bool { return len(s.Revoked) == 1 })
		waitMembers(t, testContext(t), a.Swarm, 1)
		for _, at := range []*resident{f, a} {
			refused("it comes back", b.Connect(testContext(t), at.Addrs()...))
		}
		again := f.invite(admission.InviteOptions{}, time.Now())
		_, err := Claim(testContext(t), Config{Identity: b.cfg.Identity, Simulated: n.Host()}, again)
		refused("it asks with another invite", err)
		err = f.log.Propose(testContext(t), consensus.Join{Peer: b.ID(), ProcessEpoch: 99})
		if !errors.Is(err, consensus.ErrRejected) {
			t.Errorf("it is brought into the roster: %v", err)
		}
		f.must(consensus.Revoke{By: f.ID(), Serial: uint64(v.Grant.Serial)})
		if _, err := n.patched(t, v, f); !errors.Is(err, admission.ErrInviteRevoked) {
			t.Errorf("a revoked invite: %v", err)
		}
		if len(a.Members()) != 1 {
			t.Error("a member that came by the invite is gone with it")
		}
	})
}

// Who comes by an owner's invite for owners lets others in while the founder is away, and removes them.
func TestVirtualOwnershipIsHandedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVirtualNet(t)
		f := n.founder(t)
		v := f.invite(admission.InviteOptions{Owner: true, Uses: 2}, time.Now())
		o, p := n.resident(t, v), n.resident(t, v)
		o.until("two more owners", func(s consensus.State) bool { return len(s.Owners) == 3 })
		q := n.resident(t, o.invite(admission.InviteOptions{Owner: true}, time.Now()))
		m := n.resident(t, o.invite(admission.InviteOptions{}, time.Now()))
		o.awaitVoters(3)
		f.stop()
		for leader := plan.PeerID(""); leader == "" || leader == f.ID(); leader, _, _ = o.log.Leader() {
			time.Sleep(time.Second) // virtual
		}
		s, err := n.patched(t, q.invite(admission.InviteOptions{}, time.Now()), q)
		if err != nil {
			t.Errorf("by the invite of the fourth owner: %v", err)
		}
		s.Close() // it has no log, and would keep who is removed
		q.must(consensus.Revoke{By: q.ID(), Peer: m.ID()})
		waitMembers(t, testContext(t), m.Swarm, 0)
		if s := p.log.State(); !s.Owner(q.ID()) || s.Owner(m.ID()) || s.Admitted(m.ID()) {
			t.Errorf("owners %v", s.Owners)
		}
		if _, err := m.owner.Invite(admission.InviteOptions{Run: testRun, Addrs: m.Addrs()}, time.Now()); !errors.Is(err, admission.ErrNoOwnerKey) {
			t.Errorf("a member makes an invite: %v", err)
		}
	})
}

// A second owner removes the founder's node while it leads; the others elect another leader and go on.
func TestVirtualRevokeTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVirtualNet(t)
		f := n.founder(t)
		v := f.invite(admission.InviteOptions{Owner: true, Uses: 2}, time.Now())
		o, p := n.resident(t, v), n.resident(t, v)
		o.until("two more owners", func(s consensus.State) bool { return len(s.Owners) == 3 })
		o.awaitVoters(3)
		if _, _, leads := f.log.Leader(); !leads {
			t.Fatal("the founder does not lead")
		}
		o.must(consensus.Revoke{By: o.ID(), Peer: f.ID()})
		for _, r := range []*resident{o, p} {
			waitMembers(t, testContext(t), r.Swarm, 1)
			r.until("another leader", func(s consensus.State) bool { return s.Leader != f.ID() })
		}
		n.resident(t, o.invite(admission.InviteOptions{}, time.Now())) // comes into the roster, too
	})
}

// A member answers a claim to who knows an invite's secret, as the peer that signed it, and to nobody else.
func TestVirtualClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVirtualNet(t)
		f := n.founder(t)
		v := f.invite(admission.InviteOptions{}, time.Now())
		unknown, err := f.owner.Invite(admission.InviteOptions{Run: testRun, Addrs: f.Addrs()}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		x := newStranger(t, n.Host())
		x.connect(t, testContext(t), f.Swarm)
		claim := func(v admission.Invite, newcomer, contact peer.ID) []byte {
			c, err := v.Claim(newcomer, contact)
			if err != nil {
				t.Fatal(err)
			}
			return c.Append(nil)
		}
		other := testIdentity(t).ID()
		for name, b := range map[string][]byte{
			"of an invite that is not in the log": claim(unknown, x.ID(), f.host.ID()),
			"of another peer":                     claim(v, other, f.host.ID()),
			"to another contact":                  claim(v, x.ID(), other),
			"cut short":                           claim(v, x.ID(), f.host.ID())[:50],
			"too long":                            append(claim(v, x.ID(), f.host.ID()), 0),
		} {
			if reply, err := x.ask(testContext(t), f.Swarm, b); err == nil {
				t.Errorf("a claim %s is answered with %d bytes", name, len(reply))
			}
		}
		reply, err := x.ask(testContext(t), f.Swarm, claim(v, x.ID(), f.host.ID()))
		if err != nil {
			t.Fatal(err)
		}
		offer, err := admission.DecodeOffer(reply)
		if err != nil || offer.Run.ID != testRun || len(reply) > admission.MaxOfferBytes {
			t.Errorf("the answer: %+v, %v", offer, err)
		}
	})
}

// An invite of an owner that is reached over a relay is claimed from the relay, which is a member and knows the invite too;
// where that one is not there, from the owner.
func TestVirtualClaimFromARelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVirtualNet(t)
		f := n.founder(t)
		m := n.resident(t, f.invite(admission.InviteOptions{}, time.Now()))
		v := f.invite(admission.InviteOptions{}, time.Now())
		m.until("the invite", func(s consensus.State) bool { _, ok := s.Grant(uint64(v.Grant.Serial)); return ok })
		parsed, err := admission.ParseInvite(v.String())
		if err != nil {
			t.Fatal(err)
		}
		over := func(relay string) string { return relay + "/p2p-circuit/p2p/" + string(f.ID()) }
		nobody := "/ip4/203.0.113.9/udp/9/quic-v1/p2p/" + string(testIdentity(t).Peer())
		for name, addrs := range map[string][]string{
			"a relay alone":              {over(m.Addrs()[0])},
			"a relay that is gone first": {over(nobody), over(m.Addrs()[0])},
			"the owner after it":         append([]string{over(nobody)}, f.Addrs()...),
		} {
			parsed.Addrs = addrs
			got, err := Claim(testContext(t), Config{Identity: testIdentity(t), Simulated: n.Host()}, parsed)
			if err != nil || got.Grant.Serial != v.Grant.Serial || !slices.Equal(got.Addrs, addrs) {
				t.Errorf("%s: %v with %v, %v", name, got.Grant.Serial, got.Addrs, err)
			}
		}
	})
}

// ask sends a claim and returns what comes back.
func (x *stranger) ask(ctx context.Context, to *Swarm, claim []byte) ([]byte, error) {
	st, err := x.NewStream(ctx, to.host.ID(), "/pnode/invite/1")
	if err != nil {
		return nil, err
	}
	defer st.Reset()
	if err := streams.WriteMessage(st, claim); err != nil {
		return nil, err
	}
	return streams.ReadMessage(st, 1<<20)
}

// swarmTransport carries the log between members.
type swarmTransport struct{ swarm *Swarm }

func (t swarmTransport) Self() plan.PeerID { return t.swarm.ID() }

func (t swarmTransport) Open(ctx context.Context, peer plan.PeerID) (consensus.Stream, error) {
	return t.swarm.Open(ctx, peer, "/test/raft/1")
}

func (t swarmTransport) Handle(f func(plan.PeerID, consensus.Stream)) {
	t.swarm.Handle("/test/raft/1", func(_ context.Context, from plan.PeerID, s streams.Stream) { f(from, s) })
}

// memoryKV keeps a log over restarts.
type memoryKV struct {
	mu    sync.Mutex // guards pairs
	pairs map[string][]byte
}

func newMemoryKV() *memoryKV { return &memoryKV{pairs: map[string][]byte{}} }

func (m *memoryKV) Get(key []byte) ([]byte, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.pairs[string(key)]
	return bytes.Clone(v), ok, nil
}

func (m *memoryKV) Write(changes []consensus.Change) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range changes {
		if c.Delete {
			delete(m.pairs, string(c.Key))
		} else {
			m.pairs[string(c.Key)] = bytes.Clone(c.Value)
		}
	}
	return nil
}

func (m *memoryKV) Scan(from []byte, reverse bool, visit func(key, value []byte) bool) error {
	m.mu.Lock()
	keys := slices.Sorted(maps.Keys(m.pairs))
	m.mu.Unlock()
	if reverse {
		slices.Reverse(keys)
	}
	for _, k := range keys {
		order := bytes.Compare([]byte(k), from)
		if reverse && order > 0 || !reverse && order < 0 {
			continue
		}
		if v, found, _ := m.Get([]byte(k)); found && !visit([]byte(k), v) {
			return nil
		}
	}
	return nil
}
