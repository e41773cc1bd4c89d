package swarm

import (
	"bytes"
	"encoding/binary"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"pnode/planner/plan"
	"pnode/swarm/streams"
)

// TestConnectionsEnd: a member of a large run closes connections that no plan needs any more, if the other end does not need them
// either, until it has about as many as before. One that a plan names stays, however little it is used. Then nothing comes or goes.
func TestConnectionsEnd(t *testing.T) {
	const members, full, most = 24, 6, 12
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, newVirtualNet(t), members, full)
		c.untilHeard(30 * time.Second)
		var ended atomic.Int64
		for _, s := range c.all {
			s.host.Network().Notify(&network.NotifyBundle{DisconnectedF: func(network.Network, network.Conn) { ended.Add(1) }})
		}
		worker := c.all[0]
		for i, lasts := range []time.Duration{6*time.Minute + 30*time.Second, time.Minute} { // two plans, of which the second has other members
			first := 1 + 8*i
			var others []plan.PeerID
			for _, s := range c.all[first : first+14] {
				others = append(others, s.ID())
				s.Want([]plan.PeerID{worker.ID()})
			}
			worker.Want(others)
			time.Sleep(lasts) // virtual
			for _, p := range others {
				if !connected(worker, p) {
					t.Errorf("the plan of members %d and on has one that is not connected", first)
				}
			}
			for _, s := range c.all[1:] {
				s.Want(nil)
			}
		}
		worker.Want(nil)
		c.all[1].Want([]plan.PeerID{worker.ID()}) // the other end's wish alone
		c.all[1].mesh.Hurry()
		time.Sleep(13 * time.Minute)
		if !connected(worker, c.all[1].ID()) {
			t.Error("a connection ended that the other end needs")
		}
		sum := 0
		for i, s := range c.all {
			n := len(s.Members())
			if sum += n; n > most+1 {
				t.Errorf("member %d has %d connections, want at most %d", i, n, most)
			}
		}
		if sum < members*full {
			t.Errorf("%d connections at %d members, want %d each at least", sum, members, full)
		}
		t.Logf("%.1f connections each, %d in member 0, %d ended", float64(sum)/members, len(worker.Members()), ended.Load()/2)
		before := ended.Load()
		time.Sleep(6 * time.Minute)
		if n := ended.Load() - before; n > 0 {
			t.Errorf("%d connections ended without a change", n/2)
		}
		c.untilHeard(10 * time.Second)
	})
}

// partProtocol asks a member whether it needs a connection: with the number of the asker's, answered by yes, after which the asker closes it
// or takes the question back.
const (
	partProtocol = "/pnode/part/1"
	partYes      = byte(1)
	partStays    = byte(2)
)

// TestQuestionTakenBack: a member that says that it does without a connection counts it as ended, until the asker says that it stays.
func TestQuestionTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, newVirtualNet(t), 24, 6)
		c.untilHeard(30 * time.Second)
		time.Sleep(6 * time.Minute) // virtual; now all are unused
		asker, said := c.all[0], 0
		for _, s := range c.all[1:] {
			if !connected(s, asker.ID()) {
				continue
			}
			for _, last := range [][]byte{nil, {0}, {partStays}} {
				st, answer := c.ask(asker, s)
				if st == nil {
					return
				}
				if answer != partYes {
					st.Reset()
					break
				}
				said++
				if s.store.WasMet(asker.host.ID()) {
					t.Error("a connection that ends counts as one that goes on")
				}
				if last == nil {
					st.Reset()
				} else if err := streams.WriteMessage(st, last); err != nil {
					t.Error(err)
				} else if b, err := streams.ReadMessage(st, 1); err != io.EOF {
					t.Errorf("% x, %v after the end", b, err)
				}
				synctest.Wait()
				if stays := bytes.Equal(last, []byte{partStays}); s.store.WasMet(asker.host.ID()) != stays {
					t.Errorf("after % x the connection counts as one that goes on: %v", last, !stays)
				}
			}
		}
		if said == 0 {
			t.Error("nobody does without a connection")
		}
	})
}

// ask asks a member whether it does without the connection with another one, which has 100, and returns the stream and the answer.
func (c *crowd) ask(asker, asked *Swarm) (network.Stream, byte) {
	c.Helper()
	st, err := asker.host.NewStream(c.ctx, asked.host.ID(), partProtocol)
	if err == nil {
		err = streams.WriteMessage(st, binary.AppendUvarint(nil, 100))
	}
	var b []byte
	if err == nil {
		b, err = streams.ReadMessage(st, 1)
	}
	if err != nil {
		c.Errorf("a question is not answered: %v", err)
		return nil, 0
	}
	return st, b[0]
}

// TestConnectionsStay: who asks a member whether it needs their connection, and needs it itself by the time of the answer, keeps it and says so.
// If that member asks at the same time, only one of them is told yes, so that it cannot close what the other keeps.
func TestConnectionsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, newVirtualNet(t), 24, 6)
		c.untilHeard(30 * time.Second)
		asker := c.all[0]
		var others []plan.PeerID
		for _, s := range c.all[1:15] {
			others = append(others, s.ID())
		}
		asker.Want(others)
		time.Sleep(time.Minute) // virtual
		asker.Want(nil)
		for _, s := range c.all[1:] {
			s.Want([]plan.PeerID{asker.ID()}) // so that it asks by the test's hand alone
		}
		var mu sync.Mutex // guards what follows
		asked, kept := map[*Swarm]bool{}, map[*Swarm]bool{}
		for _, s := range c.all[1:] {
			s.host.SetStreamHandler(partProtocol, func(st network.Stream) {
				defer st.Close()
				_, err := streams.ReadMessage(st, binary.MaxVarintLen64)
				if err != nil || st.Conn().RemotePeer() != asker.host.ID() {
					return
				}
				back, answer := c.ask(s, asker)
				if back == nil {
					return
				}
				if told, want := answer == partYes, s.host.ID() < asker.host.ID(); told != want {
					t.Errorf("a member that is asked at the same time is told that it may close the connection: %v, want %v", told, want)
				}
				_ = streams.WriteMessage(back, []byte{partStays})
				back.Close()
				asker.Want([]plan.PeerID{s.ID()})
				err = streams.WriteMessage(st, []byte{partYes})
				var b []byte
				if err == nil {
					b, err = streams.ReadMessage(st, 1)
				}
				mu.Lock()
				defer mu.Unlock()
				asked[s], kept[s] = true, err == nil && b[0] == partStays && connected(s, asker.ID())
			})
		}
		time.Sleep(7 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		for s := range asked {
			if !kept[s] || !asker.store.WasMet(s.host.ID()) {
				t.Errorf("%s does not know that the connection stays", s.ID())
			}
		}
		if len(asked) == 0 {
			t.Error("nobody was asked")
		}
	})
}

// connected reports whether a member is connected to another one.
func connected(s *Swarm, p plan.PeerID) bool {
	for _, c := range s.Members() {
		if c.Peer == p {
			return true
		}
	}
	return false
}
