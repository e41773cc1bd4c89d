package lifeline

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/mux"
	"pnode/swarm/tasks"
	"pnode/swarm/transport"
)

// place is a process whose connections are pipes.
type place struct {
	self     plan.PeerID
	incoming chan accepted
	others   map[plan.PeerID]*place
	lines    *Lines
	tasks    *tasks.Group
	dead     atomic.Bool // dials nobody
	mu       sync.Mutex  // guards the rest
	pipes    []net.Conn
	refuses  int           // how often the hosts of others have to be asked before they refuse; negative: they never do
	asked    []plan.PeerID // whose hosts were asked
	ended    []plan.PeerID
}

type accepted struct {
	conn transport.Conn
	from plan.PeerID
}

func (p *place) Self() plan.PeerID { return p.self }

func (p *place) Dial(_ context.Context, to plan.PeerID, over plan.Transport) (transport.Conn, error) {
	other := p.others[to]
	if over != plan.TCP || other == nil || p.dead.Load() {
		return nil, errors.New("no way")
	}
	here, there := net.Pipe()
	p.mu.Lock()
	p.pipes = append(p.pipes, here)
	p.mu.Unlock()
	other.incoming <- accepted{mux.New(there, mux.Config{}), p.self}
	return mux.New(here, mux.Config{Dialer: true}), nil
}

func (p *place) Accept(ctx context.Context) (transport.Conn, plan.PeerID, error) {
	select {
	case a := <-p.incoming:
		return a.conn, a.from, nil
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
}

// cut ends all connections as a middle box or an operating system does: without a word.
func (p *place) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.pipes {
		c.Close()
	}
	p.pipes = nil
}

func (p *place) seen() (asked, ended []plan.PeerID) {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked), slices.Clone(p.ended)
}

func newPlaces(names ...plan.PeerID) map[plan.PeerID]*place {
	all := map[plan.PeerID]*place{}
	for _, n := range names {
		p := &place{self: n, incoming: make(chan accepted, 8), others: all, tasks: tasks.New()}
		all[n] = p
		p.lines = New(Config{
			Conns: p, Tasks: p.tasks, Log: slog.New(slog.DiscardHandler),
			Refuses: func(_ context.Context, peer plan.PeerID) bool {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.asked = append(p.asked, peer)
				p.refuses--
				return p.refuses == 0
			},
			Ended: func(peer plan.PeerID) {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.ended = append(p.ended, peer)
			},
		})
	}
	return all
}

// TestAnEndedProcessIsKnownAtOnce: whichever end has dialed, a line that is cut and a host that refuses mean the end; a cut
// alone means that the line is made again, and an end in good order means nothing.
func TestAnEndedProcessIsKnownAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newPlaces("a", "b", "c")
		a, b := all["a"], all["b"]
		defer func() {
			for _, p := range all {
				p.tasks.Close()
				p.tasks.Wait()
			}
		}()
		a.lines.Follow([]plan.PeerID{"a", "b", "c", "unknown"})
		b.lines.Follow([]plan.PeerID{"a"})
		time.Sleep(time.Minute) // idle lines stay
		if asked, _ := a.seen(); len(asked) != 0 || !a.lines.up("b") || !b.lines.up("a") || !a.lines.up("c") {
			t.Fatalf("asked %v; lines up: %t %t %t", asked, a.lines.up("b"), b.lines.up("a"), a.lines.up("c"))
		}
		a.cut()
		if asked, ended := b.seen(); len(asked) == 0 || len(ended) != 0 {
			t.Errorf("after a cut: asked %v, ended %v", asked, ended)
		}
		time.Sleep(patience)
		if synctest.Wait(); !a.lines.up("b") || !b.lines.up("a") {
			t.Errorf("the line was not made again")
		}
		b.mu.Lock()
		b.refuses = 3 // its port is closed a moment after its connections
		b.mu.Unlock()
		a.dead.Store(true)
		a.cut()
		time.Sleep(time.Second)
		if _, ended := b.seen(); !slices.Equal(ended, []plan.PeerID{"a"}) {
			t.Errorf("after the end: ended %v", ended)
		}
		a.dead.Store(false)
		time.Sleep(time.Minute)
		b.lines.Follow(nil) // it dials nobody any more, and a's line stays a's matter
		a.lines.Follow([]plan.PeerID{"c"})
		time.Sleep(time.Minute)
		before, _ := a.seen()
		all["c"].tasks.Close()
		time.Sleep(time.Minute)
		if after, ended := a.seen(); len(after) != len(before) || len(ended) != 0 {
			t.Errorf("after an end in good order: asked %v, before %v, ended %v", after, before, ended)
		}
	})
}
