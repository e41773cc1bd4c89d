package consensus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
	"pnode/swarm/consensus/feed"
)

// deafAfter is how long a voter hears nothing from the leader itself until it has other voters feed it: it may have lost
// its vote without hearing of that.
const deafAfter = 5 * heartbeatTimeout

// An answer to a follower: code (1 byte), length (4 bytes) and JSON of vouchers and, where it is not fed, length and text
// of the reason.
const (
	codeFed    = 1
	codeNotFed = 2
)

// source is this node's log as package feed sees it.
type source struct {
	node   *Node
	engine *engine
}

// View returns what raft knows. A node that hears of a leader from others alone names none.
func (s source) View() feed.View {
	r := s.engine.raft
	term := r.CurrentTerm()
	_, leader := r.LeaderWithID()
	v := feed.View{Leader: plan.PeerID(leader), Term: term, Commit: r.CommitIndex()}
	voters := 0
	for _, o := range r.GetConfiguration().Configuration().Servers {
		if o.Suffrage == raft.Voter {
			voters++
			v.Votes = v.Votes || plan.PeerID(o.ID) == s.node.self
		}
	}
	if v.Leader != s.node.self && s.node.follower.deaf() { // others bring it the leader's messages, perhaps those to whom it would bring them
		v.Leader = ""
	}
	v.Spared = v.Leader == s.node.self && voters > 1
	v.Members = s.node.follower.Members()
	if r.CurrentTerm() != term { // an election is under way
		v.Leader = ""
	}
	return v
}

// Changed returns a channel that is closed when more is applied, or another node leads.
func (s source) Changed() <-chan struct{} { return s.node.Changed() }

// GetLog reads an entry.
func (s source) GetLog(index uint64, l *raft.Log) error { return s.node.store.GetLog(index, l) }

// Snapshots returns this node's snapshots.
func (s source) Snapshots() raft.SnapshotStore { return s.engine.snapshots }

// Later raises the term here to that of a follower, which may do so once: it was a candidate before it lost its vote. With this voter's
// answer to its next message the leader learns of it, and one is elected whose messages that member takes.
func (s source) Later(ctx context.Context, follower plan.PeerID, term uint64) {
	known := s.engine.raft.CurrentTerm()
	if term <= known || s.engine.transport.checkTerm(raft.ServerID(follower), known, term) != nil {
		return
	}
	self := []byte(s.node.self)
	q := &raft.RequestVoteRequest{ // raft takes its term in, and grants nothing: it is by a log without an entry
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: self, Addr: self}, Term: term, LeadershipTransfer: true,
	}
	select {
	case s.engine.transport.messages <- raft.RPC{Command: q, RespChan: make(chan raft.RPCResponse, 1)}:
	case <-ctx.Done():
	}
}

// follower has voters feed this node, while it has no vote itself.
type follower struct {
	node *Node

	mu     sync.Mutex // guards direct
	direct time.Time  // when a leader's own message came last since raft was started here
}

// heard notes that a message came from the leader itself.
func (f *follower) heard(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.direct = now
}

// Follows reports whether voters are to feed this node: it has no vote, as far as it knows, or does not hear from a leader.
// A node that starts may have lost its vote while it was away: it asks at once.
func (f *follower) Follows() bool {
	n := f.node
	n.mu.Lock()
	changing := n.changing
	n.mu.Unlock()
	state := n.engine.Load().raft.State()
	if changing || state == raft.Leader || state == raft.Shutdown {
		return false
	}
	return !slices.Contains(n.Servers(), Server{Peer: n.self, Voter: true}) || f.deaf()
}

// deaf reports whether no message has come from a leader itself for deafAfter, or since raft was started here.
func (f *follower) deaf() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(f.direct) > deafAfter
}

// Voters returns who votes by the log here, and who leads.
func (f *follower) Voters() ([]plan.PeerID, plan.PeerID) {
	n := f.node
	leader, _, _ := n.Leader()
	s, others := n.inLineage(n.State())
	voters := slices.Concat(votersOf(n.Servers()), others)
	if i := len(s.Vouchers) - 1; i >= 0 {
		voters = append(voters, s.Vouchers[i].Voters...)
	}
	return voters, leader
}

// Contacts returns other members.
func (f *follower) Contacts() []plan.PeerID { return f.node.contacts() }

// Changed returns a channel that is closed at the next change of the state, the leader or the servers.
func (f *follower) Changed() <-chan struct{} { return f.node.Changed() }

// End returns the last entry of the log here.
func (f *follower) End() uint64 { return f.node.engine.Load().raft.LastIndex() }

// Members returns how many the run has, those that left last counted too.
func (f *follower) Members() int { return len(f.node.State().Members) }

// Ended ends what a voter brings whose process has ended.
func (f *follower) Ended(p plan.PeerID) {
	l := f.node.engine.Load().layer
	var feeds []*conn
	l.mu.Lock()
	for c := range l.conns {
		if c.feeds && c.peer == p {
			feeds = append(feeds, c)
		}
	}
	l.mu.Unlock()
	for _, c := range feeds {
		c.Reset()
	}
}

// Open has a voter feed this node, if the voter shows that it is one.
func (f *follower) Open(ctx context.Context, voter plan.PeerID, last bool) (feed.Session, []plan.PeerID, error) {
	n := f.node
	e := n.engine.Load()
	s, err := n.config.Transport.Open(ctx, voter)
	if err != nil {
		return nil, nil, fmt.Errorf("consensus: follow %s: %w", voter, err)
	}
	c, err := e.layer.track(s, voter, nil)
	if err != nil {
		return nil, nil, err
	}
	e.layer.mu.Lock()
	c.feeds = true
	e.layer.mu.Unlock()
	named, err := f.greet(ctx, e, c, last)
	if err != nil {
		c.Reset()
		c.Close()
		return nil, named, fmt.Errorf("consensus: follow %s: %w", voter, err)
	}
	c.heard.Store(time.Now().UnixNano())
	n.timing.feeds(feed.Patience(f.Members()))
	fed := &session{conn: c, done: make(chan struct{})}
	go func() {
		defer close(fed.done)
		e.transport.serve(c)
	}()
	return fed, nil, nil
}

// greet asks a voter on a stream to feed this node, and reads its answer. It returns whom the vouchers there name.
func (f *follower) greet(ctx context.Context, e *engine, c *conn, last bool) (named []plan.PeerID, err error) {
	stop := context.AfterFunc(ctx, func() { c.Reset() })
	defer stop()
	head := append([]byte{streamFollow, byte(len(e.layer.lineage))}, e.layer.lineage...)
	if _, err := c.Write(append(head, feed.Opening{Index: e.raft.LastIndex(), Last: last}.Encode()...)); err != nil {
		return nil, err
	}
	var code [1]byte
	b, err := readMessage(c, code[:], maxProofBytes)
	if err != nil {
		return nil, err
	}
	vouchers, err := decodeVouchers(b)
	if err != nil {
		return nil, err
	}
	if i := len(vouchers) - 1; i >= 0 {
		named = vouchers[i].Voters
	}
	if code[0] != codeFed {
		reason, err := readMessage(c, nil, maxText)
		if err != nil {
			return named, err
		}
		return named, errors.New(wire.Clip(string(reason), maxText))
	}
	shown, err := e.transport.look(c.peer, vouchers)
	if err != nil {
		return nil, err
	}
	e.layer.mu.Lock()
	c.shown = &shown // from now on prune looks at it
	e.layer.mu.Unlock()
	if !stop() {
		return nil, ctx.Err()
	}
	return nil, nil
}

// session is a stream on which this node is fed.
type session struct {
	*conn
	done chan struct{}
}

// Done returns a channel that is closed when the stream has ended.
func (s *session) Done() <-chan struct{} { return s.done }

// Heard returns when the newest message came: now, while raft looks at it.
func (s *session) Heard() time.Time {
	if s.conn.busy.Load() {
		return time.Now()
	}
	return time.Unix(0, s.conn.heard.Load())
}

// Close ends the stream.
func (s *session) Close() {
	s.conn.Reset()
	s.conn.Close()
	<-s.done
}

// admit reads what a follower says that opens a stream, and answers it. It returns what is to be done with the stream then.
func (e *engine) admit(n *Node, peer plan.PeerID, s Stream) (func(), error) {
	var b [feed.OpeningBytes]byte
	if _, err := io.ReadFull(s, b[:]); err != nil {
		return nil, err
	}
	opening, err := feed.Decode(b[:])
	if err != nil {
		return nil, fmt.Errorf("%w stream: %w", ErrMalformed, err)
	}
	refusal := e.giver.Admits(peer, opening)
	shown := n.notary.shown()
	answer := appendSized([]byte{codeFed}, shown)
	if refusal != nil {
		answer = appendSized(appendSized([]byte{codeNotFed}, shown), []byte(refusal.Error()))
	}
	if _, err := s.Write(answer); err != nil || refusal != nil {
		return nil, errors.Join(err, refusal)
	}
	return func() {
		c, err := e.layer.track(s, peer, nil)
		if err != nil {
			return
		}
		defer c.Close()
		if err := e.giver.Feed(c.closed, c, peer, opening); err != nil {
			n.config.Logger.Debug("consensus: a follower is fed no longer", "peer", peer, "cause", err)
		}
	}, nil
}

// checkFeed returns why a message of a feed is not taken: it is none that brings the log, or names a leader that cannot
// be. votes returns why a peer is no voter; known is the newest term here.
func checkFeed(peer, self plan.PeerID, message any, votes func(plan.PeerID) error, known plan.Term) error {
	var header raft.RPCHeader
	term := uint64(0)
	switch m := message.(type) {
	case *raft.AppendEntriesRequest:
		header, term = m.RPCHeader, m.Term
	case *raft.InstallSnapshotRequest:
		header, term = m.RPCHeader, m.Term
	default:
		return fmt.Errorf("%w: %s sends %T to who takes the log from it", ErrForbidden, peer.Short(), message)
	}
	leader := plan.PeerID(header.ID)
	if string(header.Addr) != string(header.ID) || leader == self {
		return fmt.Errorf("%w: %s brings the log as of the leader %q at %q", ErrForbidden, peer.Short(), wire.Clip(string(header.ID), maxName), wire.Clip(string(header.Addr), maxName))
	}
	if err := votes(leader); err != nil {
		return fmt.Errorf("%s names a leader: %w", peer.Short(), err)
	}
	return checkRaise(peer, term, known)
}

// checkRaise returns why a message of raft is not taken that is of a term too far ahead of the one known here.
func checkRaise(peer plan.PeerID, term uint64, known plan.Term) error {
	if term > uint64(known)+maxTermRaise {
		return fmt.Errorf("%w: %s sends a message of raft in term %d, the newest known here is %d", ErrForbidden, peer.Short(), term, known)
	}
	return nil
}
