package alive

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	manet "github.com/multiformats/go-multiaddr/net"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/neterr"
	"pnode/swarm/streams"
	"pnode/swarm/tasks"
)

const (
	// Protocol names it. Two members have a stream each way for as long as they are connected.
	Protocol = "/pnode/alive/1"
	// askEvery is the time between two questions to a member, and at least perMember for each member that there is.
	askEvery  = 2 * time.Second
	perMember = 250 * time.Millisecond
	// answerTime bounds an answer, freshTime the dial that follows its absence, secondChance the answer after that.
	answerTime   = 3 * time.Second
	freshTime    = 5 * time.Second
	secondChance = time.Second
	// idleTime is how long a member may leave its stream unused.
	idleTime = time.Minute
	// lookEvery is the time between two looks at this machine's addresses.
	lookEvery = time.Second
	reopen    = time.Second
)

// Config holds what a Watch needs.
type Config struct {
	Host    host.Host
	Streams *streams.Streams
	Peers   *admission.Peers
	Tasks   *tasks.Group
	// Fresh connects to a member anew, beside the connection that there is, and hangs up.
	Fresh func(context.Context, plan.PeerID) error
	// Moved is called when this machine's addresses have changed, with those that are gone.
	Moved func(gone []netip.Addr)
	// Addrs returns this machine's addresses.
	Addrs func() []netip.Addr
	Log   *slog.Logger
}

// Watch asks members for signs of life. Its methods may be called from any goroutine.
type Watch struct {
	Config
	// mu guards followed, the members that have a goroutine, and moved, which is closed and replaced when this machine's
	// addresses change.
	mu       sync.Mutex
	followed map[peer.ID]bool
	moved    chan struct{}
}

// New answers the members that ask.
func New(cfg Config) *Watch {
	w := &Watch{Config: cfg, followed: map[peer.ID]bool{}, moved: make(chan struct{})}
	w.Streams.Handle(Protocol, func(_ context.Context, _ plan.PeerID, st streams.Stream) {
		b := make([]byte, 1)
		for {
			err := st.SetDeadline(time.Now().Add(idleTime))
			if err == nil {
				_, err = io.ReadFull(st, b)
			}
			if err == nil {
				_, err = st.Write(b)
			}
			if err != nil {
				st.Reset()
				return
			}
		}
	})
	return w
}

// Joined begins to ask a new member, until it has left.
func (w *Watch) Joined(p peer.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.followed[p] {
		w.followed[p] = w.Tasks.Run(func(ctx context.Context) { w.follow(ctx, p) })
	}
}

func (w *Watch) follow(ctx context.Context, p peer.ID) {
	for {
		w.mu.Lock()
		if !w.Peers.Member(p) || ctx.Err() != nil {
			delete(w.followed, p)
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		err := w.ask(ctx, p)
		w.Log.Debug("swarm: signs of life", "peer", p, "err", err)
		select {
		case <-time.After(reopen):
		case <-ctx.Done():
		}
	}
}

// Answers reports whether a member answers before ctx ends.
func (w *Watch) Answers(ctx context.Context, p plan.PeerID) bool {
	id, err := peer.Decode(string(p))
	if err != nil {
		return false
	}
	st, err := w.Streams.Open(ctx, id, Protocol)
	if err != nil {
		return false
	}
	defer st.Reset()
	defer context.AfterFunc(ctx, func() { st.Reset() })()
	b := []byte{1}
	if _, err = st.Write(b); err == nil {
		_, err = io.ReadFull(st, b)
	}
	return err == nil
}

// ask asks a member for signs of life over one stream until that fails.
func (w *Watch) ask(ctx context.Context, p peer.ID) error {
	opening, cancel := context.WithTimeout(ctx, answerTime)
	st, err := w.Streams.Open(opening, p, Protocol)
	cancel()
	if err != nil {
		return err
	}
	defer st.Reset()
	defer context.AfterFunc(ctx, func() { st.Reset() })()
	b := make([]byte, 1)
	for {
		w.mu.Lock()
		moved := w.moved
		w.mu.Unlock()
		b[0]++
		if err := st.SetDeadline(time.Now().Add(answerTime)); err != nil {
			return err
		}
		_, err := st.Write(b)
		answer := []byte{0}
		if err == nil {
			_, err = io.ReadFull(st, answer)
		}
		if unanswered(err, st) {
			err = w.doubt(ctx, p, st, answer)
		}
		switch {
		case err != nil:
			return err
		case answer[0] != b[0]:
			return errors.New("the answer is to another question")
		}
		select {
		case <-time.After(max(askEvery, perMember*time.Duration(w.Peers.Count()))):
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// unanswered reports whether no answer came on a stream in time, whatever its connection's errors are, and the
// connection stands.
func unanswered(err error, st network.Stream) bool {
	return neterr.Silent(err) && !st.Conn().IsClosed()
}

// doubt dials a member anew that gives no sign of life, and closes the connection that it does not answer on if that works.
// Where it does not work either, the answer is waited for: the member or the whole network may be down.
func (w *Watch) doubt(ctx context.Context, p peer.ID, st network.Stream, answer []byte) error {
	w.Peers.SetSilent(p, true)
	defer w.Peers.SetSilent(p, false)
	for {
		fresh, cancel := context.WithTimeout(ctx, freshTime)
		unreachable := w.Fresh(fresh, plan.PeerID(p.String()))
		cancel()
		if err := st.SetDeadline(time.Now().Add(secondChance)); err != nil {
			return err
		}
		if _, err := io.ReadFull(st, answer); !unanswered(err, st) {
			return err
		}
		if unreachable == nil {
			break
		}
		w.Log.Debug("swarm: a member gives no sign of life", "peer", p, "addr", st.Conn().RemoteMultiaddr(), "err", unreachable)
	}
	w.Log.Info("swarm: control connection replaced: no answer over it, and a new one works", "peer", p, "addr", st.Conn().RemoteMultiaddr())
	if err := st.Conn().Close(); err != nil {
		w.Log.Debug("swarm: close connection", "peer", p, "err", err)
	}
	return errors.New("replaced")
}

// Run watches this machine's addresses until ctx ends. Connections from one that is gone are closed, and all members asked
// for signs of life.
func (w *Watch) Run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	last := w.Addrs()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := w.Addrs()
		if slices.Equal(now, last) {
			continue
		}
		w.Log.Info("swarm: this machine's addresses changed", "before", last, "now", now)
		gone := slices.DeleteFunc(last, func(a netip.Addr) bool { return slices.Contains(now, a) })
		for _, c := range w.Host.Network().Conns() {
			ip, err := manet.ToIP(c.LocalMultiaddr())
			at, _ := netip.AddrFromSlice(ip)
			if err == nil && slices.Contains(gone, at.Unmap()) {
				c.Close()
			}
		}
		last = now
		w.mu.Lock()
		close(w.moved)
		w.moved = make(chan struct{})
		w.mu.Unlock()
		w.Moved(gone)
	}
}

// MachineAddrs returns the addresses of this machine's interfaces that others may know, sorted.
func MachineAddrs() []netip.Addr {
	var out []netip.Addr
	all, _ := net.InterfaceAddrs() // none until they can be read again
	for _, a := range all {
		n, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		ip, _ := netip.AddrFromSlice(n.IP)
		if ip = ip.Unmap(); !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !slices.Contains(out, ip) {
			out = append(out, ip)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}
