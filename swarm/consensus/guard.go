package consensus

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
	"pnode/swarm/consensus/feed"
)

// maxTermRaise bounds how far ahead a term may be of the newest one known here. Elections raise it by one, every few
// seconds at most.
const maxTermRaise = 1 << 16

// warnEvery bounds how often refusals are told.
const warnEvery = 10 * time.Second

// checkPeer returns why a peer's messages of raft are not taken; nil if they are. Only leaders and candidates send
// them, and both are voters: of the newest configuration here, of the newest voucher in the log here, or by a newer one
// that the peer has shown. logged says that the log here knows the owners: a proof then rests on those alone.
func checkPeer(peer plan.PeerID, servers []Server, s State, logged bool, shown proof) error {
	if slices.Contains(servers, Server{Peer: peer, Voter: true}) {
		return nil
	}
	newest := uint64(0)
	if i := len(s.Vouchers) - 1; i >= 0 {
		if newest = s.Vouchers[i].Number; slices.Contains(s.Vouchers[i].Voters, peer) {
			return nil
		}
	}
	stranger := func(o plan.PeerID) bool { _, removed := s.Revocation(o); return removed || logged && !s.Owner(o) }
	if shown.Newest > newest && !slices.ContainsFunc(shown.Owners, stranger) {
		return nil
	}
	return fmt.Errorf("%w: %s is no voter and sends messages of raft", ErrForbidden, s.NameOf(peer))
}

// checkMessage returns why a message of raft is not taken from a peer: it speaks for another one, or in a term too far
// ahead of the one known here. leader is who leads as far as is known here.
func checkMessage(peer, leader plan.PeerID, message any, known plan.Term) error {
	term := uint64(0)
	switch m := message.(type) {
	case *raft.AppendEntriesRequest:
		term = m.Term
	case *raft.InstallSnapshotRequest:
		term = m.Term
	case *raft.RequestVoteRequest:
		term = m.Term
	case *raft.RequestPreVoteRequest:
		term = m.Term
	case *raft.TimeoutNowRequest:
		if peer != leader {
			return fmt.Errorf("%w: %s does not lead and hands the leadership over", ErrForbidden, peer.Short())
		}
	}
	var header raft.RPCHeader
	if m, ok := message.(raft.WithRPCHeader); ok {
		header = m.GetRPCHeader()
	}
	for _, name := range [][]byte{header.ID, header.Addr} { // by which raft goes, where they are there
		if string(name) != string(peer) {
			return fmt.Errorf("%w: %s sends a message of raft as %q", ErrForbidden, peer.Short(), wire.Clip(string(name), maxName))
		}
	}
	return checkRaise(peer, term, known)
}

// takes returns why a peer's messages of raft are not taken now.
func (n *Node) takes(peer plan.PeerID, shown proof) error {
	s := n.State()
	if n.founds(peer, s) {
		return nil
	}
	s, _ = n.inLineage(s)
	return checkPeer(peer, n.Servers(), s, logged(s, n.self), shown)
}

// logged reports whether the log here knows the owners of the run. It does from where the node self has joined: one that joins
// reads the log from its beginning, where those who vouch now may not be owners yet.
func logged(s State, self plan.PeerID) bool {
	_, joined := s.Member(self)
	return s.Run != nil && joined
}

// guarded is raft's transport, which looks at what comes before raft does. Each stream that comes has a transport of
// raft's to itself, so that it is known who sent a message. A node without a vote cannot depose the leader by the term
// that it answers with: it may raise the term once, as one must that was a candidate before it lost its vote.
type guarded struct {
	*raft.NetworkTransport // for what this node sends
	node                   *Node
	logger                 hclog.Logger
	messages               chan raft.RPC

	mu        sync.Mutex                 // guards what follows
	raised    map[raft.ServerID]struct{} // nodes without a vote that have raised the term
	told      map[raft.ServerID]told     // what the others have answered last
	heartbeat func(raft.RPC)             // takes the leader's heartbeats past messages
	warned    time.Time
}

// Consumer returns the channel of the messages that raft is to look at.
func (g *guarded) Consumer() <-chan raft.RPC { return g.messages }

// SetHeartbeatHandler has f take the leader's heartbeats at once.
func (g *guarded) SetHeartbeatHandler(f func(raft.RPC)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.heartbeat = f
}

// greet looks at what a peer shows that opens a stream of raft.
func (g *guarded) greet(peer plan.PeerID, shown []byte) (proof, error) {
	if g.node.takes(peer, proof{}) == nil {
		return proof{}, nil
	}
	vouchers, err := decodeVouchers(shown)
	if err != nil {
		return proof{}, err
	}
	return g.look(peer, vouchers)
}

// look returns what vouchers show of a peer. One that is known as a voter need not show anything, but a leader that it names may be a newer one.
func (g *guarded) look(peer plan.PeerID, vouchers []Voucher) (proof, error) {
	s, servers := g.node.State(), g.node.Servers()
	if g.node.founds(peer, s) {
		return proof{}, nil
	}
	s, voted := g.node.inLineage(s)
	before := trust{Term: g.node.newestTerm(proof{}), Logged: logged(s, g.node.self), Owners: s.Owners}
	if voters := votersOf(servers); len(voters) > 0 {
		before.Sets = [][]plan.PeerID{voters}
	}
	if i := len(s.Vouchers) - 1; i >= 0 {
		before.Newest = s.Vouchers[i].Number
		before.Sets = append(before.Sets, s.Vouchers[i].From, s.Vouchers[i].Voters)
	}
	if voted != nil {
		before.Sets = append(before.Sets, voted)
	}
	for _, r := range s.Revoked {
		before.Removed = append(before.Removed, r.Peer)
	}
	known, err := g.node.author.follow(peer, vouchers, before)
	if err != nil && checkPeer(peer, servers, s, logged(s, g.node.self), proof{}) == nil {
		return proof{}, nil
	}
	if err != nil {
		g.warn(peer, err)
	}
	return known, err
}

// serve takes raft's messages from a stream until it is closed.
func (g *guarded) serve(c *conn) {
	one := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: newSingle(c), MaxPool: 1, Timeout: rpcTimeout, Logger: g.logger})
	defer one.Close()
	one.SetHeartbeatHandler(func(m raft.RPC) {
		g.mu.Lock()
		f := g.heartbeat
		g.mu.Unlock()
		if g.passes(c, m) {
			f(m)
		}
	})
	for {
		select {
		case m := <-one.Consumer():
			if !g.passes(c, m) {
				return
			}
			c.busy.Store(true)
			answer, answered := m.RespChan, make(chan raft.RPCResponse, 1)
			m.RespChan = answered
			select {
			case g.messages <- m:
			case <-c.closed.Done():
				return
			}
			select {
			case r := <-answered:
				answer <- r
			case <-c.closed.Done():
				return
			}
			c.heard.Store(time.Now().UnixNano())
			c.busy.Store(false)
		case <-c.closed.Done():
			return
		}
	}
}

// passes reports whether raft is to look at a message. A stream with another one is reset.
func (g *guarded) passes(c *conn, m raft.RPC) bool {
	leader, _, _ := g.node.Leader()
	err := g.node.takes(c.peer, *c.shown)
	switch {
	case err == nil && c.feeds:
		err = checkFeed(c.peer, g.node.self, m.Command, func(p plan.PeerID) error { return g.node.takes(p, c.shown.of(p)) }, g.node.newestTerm(*c.shown))
	case err == nil:
		err = checkMessage(c.peer, leader, m.Command, g.node.newestTerm(*c.shown))
	}
	c.heard.Store(time.Now().UnixNano())
	if err == nil && c.feeds { // with the members grows how long it may be silent
		g.node.timing.feeds(feed.Patience(g.node.follower.Members()))
	}
	if _, fromLeader := m.Command.(*raft.AppendEntriesRequest); err == nil && fromLeader && c.peer == leader && !c.feeds {
		g.node.timing.heard(leader, time.Now())
		g.node.follower.heard(time.Now())
	}
	if err != nil {
		g.warn(c.peer, err)
		m.Respond(nil, err)
		c.end()
		c.Reset()
	}
	return err == nil
}

// newestTerm returns the newest term known here.
func (n *Node) newestTerm(shown proof) plan.Term {
	return max(plan.Term(n.engine.Load().raft.CurrentTerm()), n.State().LeaderTerm, shown.Term)
}

// warn tells of a refusal, not too often.
func (g *guarded) warn(peer plan.PeerID, cause error) {
	g.mu.Lock()
	early := time.Since(g.warned) < warnEvery
	if !early {
		g.warned = time.Now()
	}
	g.mu.Unlock()
	if !early {
		g.node.config.Logger.Warn("consensus: messages of raft are not taken", "from", g.node.State().NameOf(peer), "peer", peer, "cause", cause)
	}
}

// AppendEntriesPipeline says that there is none: every answer is looked at. The log is small.
func (*guarded) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// told holds what a server knows, and when it was last asked something that it has answered since.
type told struct {
	term, index, indexTerm, commit uint64 // of the newest message that brought no entries
	answer                         raft.AppendEntriesResponse
	asked                          time.Time
}

// repeatAfter is how soon after a server's answer it is told again what it knows. A leader takes its last contact with a
// server for newer by as much: leaseTimeout and that are less than a follower waits for.
const repeatAfter = 250 * time.Millisecond

// repeats reports whether a server has answered the same message, and any a moment ago: raft tells each server how far the
// log is 13 times a second, whether that has changed or not. r becomes the answer.
func (g *guarded) repeats(id raft.ServerID, q *raft.AppendEntriesRequest, r *raft.AppendEntriesResponse, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	last, ok := g.told[id]
	same := ok && len(q.Entries) == 0 && last.commit != 0 &&
		last.term == q.Term && last.index == q.PrevLogEntry && last.indexTerm == q.PrevLogTerm && last.commit == q.LeaderCommitIndex
	if !same || now.Sub(last.asked) >= repeatAfter {
		return false
	}
	*r = last.answer
	return true
}

// tell notes a server's answer to what was asked at a time. A heartbeat shows that the server is there, and not what it knows.
func (g *guarded) tell(id raft.ServerID, q *raft.AppendEntriesRequest, r *raft.AppendEntriesResponse, asked time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	last := g.told[id]
	switch {
	case !r.Success || len(q.Entries) > 0:
		delete(g.told, id)
		return
	case q.LeaderCommitIndex != 0:
		last = told{term: q.Term, index: q.PrevLogEntry, indexTerm: q.PrevLogTerm, commit: q.LeaderCommitIndex, answer: *r}
	case last.term != q.Term:
		return
	}
	last.asked = asked
	g.told[id] = last
}

// AppendEntries sends entries of the log, or says how far it is, unless the server has just answered the same.
func (g *guarded) AppendEntries(id raft.ServerID, to raft.ServerAddress, q *raft.AppendEntriesRequest, r *raft.AppendEntriesResponse) error {
	began := time.Now()
	if g.repeats(id, q, r, began) {
		return nil
	}
	if err := g.NetworkTransport.AppendEntries(id, to, q, r); err != nil {
		return err
	}
	if len(q.Entries) == 0 { // nothing is written, so that a round trip is all that it takes
		g.node.timing.answered(plan.PeerID(id), time.Since(began))
	}
	g.tell(id, q, r, began)
	return g.checkTerm(id, q.Term, r.Term)
}

func (g *guarded) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, q *raft.InstallSnapshotRequest, r *raft.InstallSnapshotResponse, data io.Reader) error {
	if err := g.NetworkTransport.InstallSnapshot(id, to, q, r, data); err != nil {
		return err
	}
	return g.checkTerm(id, q.Term, r.Term)
}

func (g *guarded) RequestVote(id raft.ServerID, to raft.ServerAddress, q *raft.RequestVoteRequest, r *raft.RequestVoteResponse) error {
	began := time.Now()
	if err := g.NetworkTransport.RequestVote(id, to, q, r); err != nil {
		return err
	}
	g.node.timing.voted(time.Since(began))
	return g.checkTerm(id, q.Term, r.Term)
}

// RequestPreVote asks whether an election could be won.
func (g *guarded) RequestPreVote(id raft.ServerID, to raft.ServerAddress, q *raft.RequestPreVoteRequest, r *raft.RequestPreVoteResponse) error {
	began := time.Now()
	if err := g.NetworkTransport.RequestPreVote(id, to, q, r); err != nil {
		return err
	}
	g.node.timing.voted(time.Since(began))
	return g.checkTerm(id, q.Term, r.Term)
}

// checkTerm returns an error for an answer whose term must not count: one too far ahead, whoever answers, and one of a
// node without a vote that raises the term again.
func (g *guarded) checkTerm(id raft.ServerID, asked, answered uint64) error {
	far := answered > asked+maxTermRaise
	if answered <= asked || !far && slices.Contains(g.node.Servers(), Server{Peer: plan.PeerID(id), Voter: true}) {
		return nil
	}
	g.mu.Lock()
	_, again := g.raised[id]
	g.raised[id] = struct{}{}
	g.mu.Unlock()
	if !again && !far {
		return nil
	}
	err := fmt.Errorf("%w: %s answers with term %d in term %d", ErrForbidden, plan.PeerID(id).Short(), answered, asked)
	g.warn(plan.PeerID(id), err)
	return err
}
