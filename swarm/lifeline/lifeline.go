// Package lifeline finds out at once that a member's process has ended, however it did: by an idle TCP connection,
// which the member's operating system closes then. QUIC has nothing of the kind: its connections go silent, and silence
// may be a network that is down.
//
// [Lines] keeps one connection with each member that Follow names, pnode-lifeline/1, over TCP alone. Either end may dial,
// the one with the lower peer ID first. A line that ends without a word makes nobody dead, since middle boxes end
// connections too: the member's host is asked whether anybody listens there still, and only its refusal counts.
//
// Goroutines, all in the swarm's tasks: one that accepts, one for each line, one for each member that is followed.
//
// It is called by swarm; package alpn makes the connections.
package lifeline

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/tasks"
	"pnode/swarm/transport"
)

const (
	// ALPN names the protocol.
	ALPN = "pnode-lifeline/1"
	// patience is how long the end with the higher peer ID waits for the other one to dial.
	patience = 3 * time.Second
	// firstRetry, which doubles up to lastRetry, is the time between two dials.
	firstRetry = time.Second
	lastRetry  = time.Minute
	// dialTime bounds a dial.
	dialTime = 5 * time.Second
	// codeOver says that an end does not need the line any more.
	codeOver = transport.Code(1)
)

// refusalWaits are the pauses before a host is asked whether anybody listens. A process that ends closes its connections and
// ports one by one, which takes a while on a busy machine.
var refusalWaits = []time.Duration{0, 20 * time.Millisecond, 80 * time.Millisecond, 300 * time.Millisecond, time.Second}

// Config holds what Lines need.
type Config struct {
	Conns Conns
	// Refuses reports whether a member's host says that nobody listens there.
	Refuses func(context.Context, plan.PeerID) bool
	// Ended is called when a member's process has ended, from any goroutine.
	Ended func(plan.PeerID)
	Tasks *tasks.Group
	Log   *slog.Logger
}

// Conns makes connections of ALPN; *alpn.Transport does.
type Conns interface {
	Self() plan.PeerID
	Dial(ctx context.Context, p plan.PeerID, over plan.Transport) (transport.Conn, error)
	Accept(ctx context.Context) (transport.Conn, plan.PeerID, error)
}

// Lines are the lifelines of a node. Its methods may be called from any goroutine.
type Lines struct {
	Config
	mu       sync.Mutex // guards what follows
	lines    map[plan.PeerID]transport.Conn
	followed map[plan.PeerID]*follower
}

// follower keeps a line with one member.
type follower struct {
	end  context.CancelFunc
	look chan struct{} // capacity 1: the line has changed
}

// New accepts the lines of others until the swarm closes.
func New(cfg Config) *Lines {
	l := &Lines{Config: cfg, lines: map[plan.PeerID]transport.Conn{}, followed: map[plan.PeerID]*follower{}}
	cfg.Tasks.Run(func(ctx context.Context) {
		for {
			conn, p, err := cfg.Conns.Accept(ctx)
			if err != nil {
				return
			}
			l.hold(p, conn, func() error { _, err := conn.AcceptStream(ctx); return err })
		}
	})
	return l
}

// Follow has lines with these members from now on, and with no others that this node would dial.
func (l *Lines) Follow(peers []plan.PeerID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wanted := map[plan.PeerID]bool{}
	for _, p := range peers {
		wanted[p] = p != l.Conns.Self()
		if wanted[p] && l.followed[p] == nil {
			f := &follower{look: make(chan struct{}, 1)}
			var ctx context.Context
			ctx, f.end = context.WithCancel(l.Tasks.Context)
			l.followed[p] = f
			if !l.Tasks.Run(func(context.Context) { l.follow(ctx, p, f) }) {
				f.end()
			}
		}
	}
	for p, f := range l.followed {
		if !wanted[p] {
			f.end()
			delete(l.followed, p)
		}
	}
}

// follow dials a member whenever there is no line, until ctx ends.
func (l *Lines) follow(ctx context.Context, p plan.PeerID, f *follower) {
	first, retry := time.Duration(0), firstRetry
	if l.Conns.Self() > p {
		first = patience
	}
	wait := first
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.look:
			wait = first
			continue
		case <-time.After(wait):
		}
		if l.up(p) {
			wait, retry = lastRetry, firstRetry
			continue
		}
		dialing, cancel := context.WithTimeout(ctx, dialTime)
		conn, err := l.Conns.Dial(dialing, p, plan.TCP)
		cancel()
		if err == nil {
			l.hold(p, conn, func() error {
				st, err := conn.OpenStream(ctx)
				if err == nil {
					_, err = st.Write([]byte{0}) // by which the other end learns of it
				}
				return err
			})
			wait, retry = lastRetry, firstRetry
			continue
		}
		l.Log.Debug("swarm: no lifeline", "peer", p, "err", err)
		wait, retry = retry, min(2*retry, lastRetry)
	}
}

func (l *Lines) up(p plan.PeerID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines[p] != nil
}

// hold keeps a connection as the line of a member, in place of an older one, and keeps it busy by a stream, without
// which it would end.
func (l *Lines) hold(p plan.PeerID, conn transport.Conn, stream func() error) {
	l.mu.Lock()
	older := l.lines[p]
	l.lines[p] = conn
	l.mu.Unlock()
	if older != nil {
		older.Close(codeOver, "replaced")
	}
	l.Tasks.Run(func(ctx context.Context) {
		defer conn.Close(codeOver, "not needed any more")
		if stream() == nil {
			select {
			case <-conn.Context().Done():
			case <-ctx.Done():
				return
			}
		}
		l.mu.Lock()
		current, followed := l.lines[p] == conn, l.followed[p]
		if current {
			delete(l.lines, p)
		}
		l.mu.Unlock()
		closed := (*transport.ConnError)(nil)
		if !current || followed == nil || errors.As(conn.Err(), &closed) {
			return
		}
		l.Log.Debug("swarm: a lifeline broke", "peer", p, "err", conn.Err())
		for _, wait := range refusalWaits {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return
			}
			if l.up(p) {
				return
			}
			if l.Refuses(ctx, p) {
				l.Log.Info("swarm: a member's process has ended", "peer", p)
				l.Ended(p)
				return
			}
		}
		select {
		case followed.look <- struct{}{}:
		default:
		}
	})
}
