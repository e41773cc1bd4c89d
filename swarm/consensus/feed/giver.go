package feed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"pnode/planner/plan"
)

const (
	// MaxFollowers bounds those that one voter feeds: all members of a run, where it has a single voter.
	MaxFollowers = 1024

	// rpcTimeout is how long one answer of a follower is waited for, which may write to a slow disk meanwhile.
	rpcTimeout = 10 * time.Second
	// shedWithin is the time within which a voter that is elected gives up its followers, one by one.
	shedWithin = 10 * time.Second
	// maxAnswerBytes bounds an answer of a follower, which has a few numbers and perhaps an error's text.
	maxAnswerBytes = 64 << 10
	// maxSnapshots bounds the snapshots that are sent at the same time: each is in memory.
	maxSnapshots = 4
)

const (
	// lifeOfEach is the time between two signs of life for each member of the run, so that a voter sends about as many a second
	// however many it feeds.
	lifeOfEach    = 8 * time.Millisecond
	leastLife     = 500 * time.Millisecond
	mostLife      = 2 * time.Second
	leastPatience = 2 * time.Second
	// MaxPatience bounds Patience.
	MaxPatience = 3 * mostLife
)

// KeepAlive returns the time between two signs of life to a follower that lacks nothing, in a run of so many members.
func KeepAlive(members int) time.Duration {
	return min(max(time.Duration(members)*lifeOfEach, leastLife), mostLife)
}

// Patience returns how long a follower waits for a sign of life before it asks another voter, in a run of so many members;
// 0 where it does not know any yet.
func Patience(members int) time.Duration {
	if members == 0 {
		return MaxPatience
	}
	return max(3*KeepAlive(members), leastPatience)
}

// View holds what a voter knows of raft at a time.
type View struct {
	// Leader leads in Term; "" where nobody is known to.
	Leader plan.PeerID
	Term   uint64
	// Commit is the last entry that is known to be committed.
	Commit uint64
	// Votes reports whether this node is a voter.
	Votes bool
	// Spared reports whether this node leads and others could feed.
	Spared bool
	// Members is how many the run has, or had not long ago.
	Members int
}

// Source is a voter's log.
type Source interface {
	View() View
	// Changed returns a channel that is closed when more is committed, or another node leads.
	Changed() <-chan struct{}
	// GetLog returns raft.ErrLogNotFound for an entry that is in the snapshot alone.
	GetLog(index uint64, l *raft.Log) error
	// Snapshots holds the newest snapshot.
	Snapshots() raft.SnapshotStore
	// Later takes in that a follower is in a later term, in which it takes nothing of this one.
	Later(ctx context.Context, follower plan.PeerID, term uint64)
}

// Reasons for which a voter does not feed a follower.
var (
	ErrNoVoter  = errors.New("this node does not vote")
	ErrNoLeader = errors.New("nobody is known to lead")
	ErrLeads    = errors.New("this node leads, and other voters are there")
	ErrFull     = errors.New("too many followers")
	errApart    = errors.New("the follower is in a later term")
)

// Giver feeds followers. Its methods may be called concurrently.
type Giver struct {
	source    Source
	logger    hclog.Logger
	snapshots chan struct{} // one for each that is being sent
	recent    recent

	mu  sync.Mutex // guards fed
	fed map[plan.PeerID]*net.Conn
}

// NewGiver returns a giver of a voter's log.
func NewGiver(source Source, logger hclog.Logger) *Giver {
	return &Giver{source: source, logger: logger, snapshots: make(chan struct{}, maxSnapshots), fed: map[plan.PeerID]*net.Conn{}}
}

// Fed returns how many followers are fed.
func (g *Giver) Fed() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.fed)
}

// Admits returns why a follower is not fed; nil if it is.
func (g *Giver) Admits(peer plan.PeerID, o Opening) error {
	v := g.source.View()
	switch {
	case !v.Votes:
		return ErrNoVoter
	case v.Leader == "" || v.Leader == peer:
		return ErrNoLeader
	case v.Spared && !o.Last:
		return ErrLeads
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, fed := g.fed[peer]; !fed && len(g.fed) >= MaxFollowers {
		return ErrFull
	}
	return nil
}

// Feed sends a follower the log on a stream until one of them ends, this node has no vote or no leader any more, or a
// snapshot has been sent: the follower opens another one then. A new stream of a follower ends the one before.
func (g *Giver) Feed(ctx context.Context, conn net.Conn, peer plan.PeerID, o Opening) error {
	g.mu.Lock()
	if before := g.fed[peer]; before != nil {
		(*before).Close()
	}
	g.fed[peer] = &conn
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		if g.fed[peer] == &conn {
			delete(g.fed, peer)
		}
		g.mu.Unlock()
	}()
	stream := &once{conn: &answers{Conn: conn}, ended: make(chan struct{})}
	t := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: stream, MaxPool: 1, Timeout: rpcTimeout, Logger: g.logger})
	defer t.Close()
	f := &following{Giver: g, transport: t, answers: stream.conn, peer: peer, opening: o, cursor: Begin(o.Index, g.source.View().Commit)}
	return f.run(ctx)
}

// following is one follower that is fed.
type following struct {
	*Giver
	transport *raft.NetworkTransport
	answers   *answers
	peer      plan.PeerID
	opening   Opening
	cursor    Cursor
	told      View      // of the newest message
	at        time.Time // when that was sent
	shed      time.Time // when this node gives it up, since it leads; zero while it does not
}

func (f *following) run(ctx context.Context) error {
	for ctx.Err() == nil {
		changed, v, now := f.source.Changed(), f.source.View(), time.Now()
		switch {
		case !v.Votes:
			return ErrNoVoter
		case v.Leader == f.peer:
			return ErrNoLeader
		case !v.Spared || f.opening.Last:
			f.shed = time.Time{}
		case f.shed.IsZero():
			f.shed = now.Add(rand.N(shedWithin))
		case !now.Before(f.shed):
			return ErrLeads
		}
		if v.Leader != "" { // else it is silent until somebody is elected
			more, err := f.send(ctx, v, now)
			if err != nil {
				return err
			}
			if more {
				continue
			}
		}
		wait := time.NewTimer(max(0, KeepAlive(v.Members)-time.Since(f.at)))
		if v.Leader == "" {
			wait.Reset(KeepAlive(v.Members))
		}
		select {
		case <-changed:
		case <-wait.C:
		case <-ctx.Done():
		}
		wait.Stop()
	}
	return ctx.Err()
}

// send sends what the follower lacks or, where a message is due or the leader has changed, a sign of life. more reports
// whether it may lack more.
func (f *following) send(ctx context.Context, v View, now time.Time) (more bool, err error) {
	header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(v.Leader), Addr: []byte(v.Leader)}
	prev, last, due := f.cursor.Span(v.Commit)
	if !due {
		if v.Leader == f.told.Leader && v.Term == f.told.Term && now.Sub(f.at) < KeepAlive(v.Members) {
			return false, nil
		}
		return false, f.append(ctx, v, now, &raft.AppendEntriesRequest{RPCHeader: header, Term: v.Term, Leader: header.Addr})
	}
	q := &raft.AppendEntriesRequest{RPCHeader: header, Term: v.Term, Leader: header.Addr, PrevLogEntry: prev}
	q.PrevLogTerm, err = f.term(prev)
	for i, size := prev+1, 0; i <= last && err == nil && size < maxBatchBytes; i++ {
		var l *raft.Log
		if l, err = f.entry(i); err == nil {
			q.Entries = append(q.Entries, l)
			size += len(l.Data)
		}
	}
	if errors.Is(err, raft.ErrLogNotFound) {
		return false, f.sendSnapshot(ctx, v, header)
	}
	if err != nil {
		return false, err
	}
	// No more than what the follower has with this message is said to be committed: what else it has may be of no leader.
	q.LeaderCommitIndex = prev + uint64(len(q.Entries))
	return true, f.append(ctx, v, now, q)
}

// append sends a message and takes in its answer.
func (f *following) append(ctx context.Context, v View, now time.Time, q *raft.AppendEntriesRequest) error {
	var r raft.AppendEntriesResponse
	f.told, f.at = v, now
	f.answers.expect()
	if err := f.transport.AppendEntries(raft.ServerID(f.peer), raft.ServerAddress(f.peer), q, &r); err != nil {
		return err
	}
	switch {
	case r.Term > q.Term:
		return f.apart(ctx, r.Term, q.Term)
	case q.LeaderCommitIndex == 0:
	case r.Success:
		f.cursor.Took(q.LeaderCommitIndex)
	case q.PrevLogEntry == 0:
		return fmt.Errorf("the follower does not take entry 1 of the log")
	default:
		f.cursor.Refused(r.LastLog)
	}
	return nil
}

// term returns the term of an entry, which may be the last one of the snapshot.
func (f *following) term(index uint64) (uint64, error) {
	if index == 0 {
		return 0, nil
	}
	l, err := f.entry(index)
	if err == nil {
		return l.Term, nil
	}
	if newest, listed := f.source.Snapshots().List(); listed == nil && len(newest) > 0 && newest[0].Index == index {
		return newest[0].Term, nil
	}
	return 0, err
}

// entry returns a committed entry.
func (f *following) entry(index uint64) (*raft.Log, error) {
	if l := f.recent.get(index); l != nil {
		return l, nil
	}
	l := new(raft.Log)
	if err := f.source.GetLog(index, l); err != nil {
		return nil, err
	}
	f.recent.put(l)
	return l, nil
}

// errSent ends a stream on which a snapshot has gone.
var errSent = errors.New("a snapshot was sent")

// sendSnapshot sends the newest snapshot, and signs of life while others are sent. It always returns an error.
func (f *following) sendSnapshot(ctx context.Context, v View, header raft.RPCHeader) error {
	for waiting := true; waiting; {
		select {
		case f.snapshots <- struct{}{}:
			waiting = false
		case <-time.After(KeepAlive(v.Members)):
			if err := f.append(ctx, v, time.Now(), &raft.AppendEntriesRequest{RPCHeader: header, Term: v.Term, Leader: header.Addr}); err != nil {
				return err
			}
			if v = f.source.View(); v.Leader == "" {
				return ErrNoLeader
			}
			header.ID, header.Addr = []byte(v.Leader), []byte(v.Leader)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer func() { <-f.snapshots }()
	newest, err := f.source.Snapshots().List()
	if err == nil && len(newest) == 0 {
		err = errors.New("no snapshot")
	}
	if err != nil {
		return err
	}
	meta, contents, err := f.source.Snapshots().Open(newest[0].ID)
	if err != nil {
		return err
	}
	defer contents.Close()
	q := &raft.InstallSnapshotRequest{
		RPCHeader: header, SnapshotVersion: meta.Version, Term: v.Term, Leader: header.Addr,
		LastLogIndex: meta.Index, LastLogTerm: meta.Term, Peers: meta.Peers, Size: meta.Size,
		Configuration: raft.EncodeConfiguration(meta.Configuration), ConfigurationIndex: meta.ConfigurationIndex,
	}
	var r raft.InstallSnapshotResponse
	f.answers.expect()
	if err := f.transport.InstallSnapshot(raft.ServerID(f.peer), raft.ServerAddress(f.peer), q, &r, contents); err != nil {
		return err
	}
	if r.Term > q.Term {
		return f.apart(ctx, r.Term, q.Term)
	}
	return errSent
}

// apart returns the error of a follower that is in a later term, and passes that on.
func (f *following) apart(ctx context.Context, its, own uint64) error {
	f.source.Later(ctx, f.peer, its)
	return fmt.Errorf("%w: %d, this node is in %d", errApart, its, own)
}

// recentEntries bounds the entries that are kept in memory for all followers; recentBytes their data.
const (
	recentEntries = 256
	recentBytes   = 8 << 20
)

// recent holds committed entries that were read of late: all followers get the same ones. The zero value is empty.
type recent struct {
	mu   sync.Mutex // guards the rest
	at   map[uint64]*raft.Log
	ring []uint64 // oldest first
	size int
}

func (r *recent) get(index uint64) *raft.Log {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at[index]
}

func (r *recent) put(l *raft.Log) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at == nil {
		r.at = map[uint64]*raft.Log{}
	}
	if r.at[l.Index] != nil {
		return
	}
	r.at[l.Index] = l
	r.ring = append(r.ring, l.Index)
	r.size += len(l.Data)
	for len(r.ring) > recentEntries || r.size > recentBytes && len(r.ring) > 1 {
		r.size -= len(r.at[r.ring[0]].Data)
		delete(r.at, r.ring[0])
		r.ring = r.ring[1:]
	}
}

// answers is a stream on which a follower answers, that reads no more of an answer than it may have: raft would hold whatever comes in memory.
// It belongs to the one that asks.
type answers struct {
	net.Conn
	left int
}

// expect has the next answer begin.
func (a *answers) expect() { a.left = maxAnswerBytes }

var errLong = errors.New("the follower's answer is too long")

func (a *answers) Read(b []byte) (int, error) {
	if a.left == 0 {
		return 0, errLong
	}
	n, err := a.Conn.Read(b[:min(len(b), a.left)])
	a.left -= n
	return n, err
}

// once is raft's stream layer of one stream.
type once struct {
	conn  *answers
	mu    sync.Mutex // guards used
	used  bool
	end   sync.Once
	ended chan struct{}
}

// Dial returns the stream the first time.
func (o *once) Dial(raft.ServerAddress, time.Duration) (net.Conn, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.used {
		return nil, net.ErrClosed
	}
	o.used = true
	return o.conn, nil
}

// Accept waits for the end.
func (o *once) Accept() (net.Conn, error) {
	<-o.ended
	return nil, net.ErrClosed
}

// Close closes the stream.
func (o *once) Close() error {
	o.end.Do(func() { close(o.ended) })
	return o.conn.Close()
}

// Addr returns the stream's own address.
func (o *once) Addr() net.Addr { return o.conn.LocalAddr() }
