package link

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// cluster is endpoints that run, on some networks.
type cluster struct {
	t         testing.TB
	ids       []plan.PeerID // ascending
	networks  []*quicNetwork
	fronts    []Network // what the endpoints run on
	endpoints []*Endpoint
	stop      context.CancelFunc
	work      sync.WaitGroup
}

// run makes the endpoints of networks. Everything ends with close, which has to be called
// inside a bubble, or with the test.
func run(t testing.TB, networks []*quicNetwork, opt Options) *cluster {
	return runOn(t, networks, func(n *quicNetwork) Network { return n }, opt)
}

// runOn makes them on something in front of the networks.
func runOn(t testing.TB, networks []*quicNetwork, front func(*quicNetwork) Network, opt Options) *cluster {
	ctx, stop := context.WithCancel(context.Background())
	c := &cluster{t: t, networks: networks, stop: stop}
	for _, n := range networks {
		network := networkOf(t, front(n))
		e := NewEndpoint(network, opt)
		c.fronts = append(c.fronts, network)
		c.ids, c.endpoints = append(c.ids, n.Self()), append(c.endpoints, e)
		c.work.Go(func() {
			if err := e.Run(ctx); err != nil {
				t.Errorf("endpoint %.8s: %v", n.Self(), err)
			}
		})
	}
	return c
}

// close ends the endpoints and then the networks.
func (c *cluster) close() {
	c.stop()
	c.work.Wait()
	for _, n := range c.networks {
		n.close()
	}
	for _, n := range c.fronts {
		if m, ok := n.(*muxed); ok {
			m.wait()
		}
	}
}

// emulated makes a cluster on an emulated network.
func emulated(t testing.TB, peers int, shape LinkConditions, opt Options) (*cluster, *Emulated) {
	t.Helper()
	em, err := NewEmulated(EmulatedOptions{Peers: peers, Seed: 1, Conditions: shape})
	if err != nil {
		t.Fatal(err)
	}
	return run(t, em.networks, opt), em
}

// loopbackNetworks makes networks over real UDP sockets.
func loopbackNetworks(t testing.TB, peers int) []*quicNetwork {
	t.Helper()
	var conns []net.PacketConn
	for range peers {
		conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	return networksOn(t, conns)
}

// networksOn makes networks that know each other over bound sockets.
func networksOn(t testing.TB, conns []net.PacketConn) []*quicNetwork {
	t.Helper()
	book := map[plan.PeerID]net.Addr{}
	var ids []identity
	for i, conn := range conns {
		ids = append(ids, newIdentity(2, uint64(i)))
		book[ids[i].peer] = conn.LocalAddr()
	}
	var networks []*quicNetwork
	for i, id := range ids {
		n, err := newQUICNetwork(id, conns[i], book)
		if err != nil {
			t.Fatal(err)
		}
		networks = append(networks, n)
	}
	slices.SortFunc(networks, func(a, b *quicNetwork) int { return bytes.Compare([]byte(a.Self()), []byte(b.Self())) })
	return networks
}

func loopback(t testing.TB, peers int, opt Options) *cluster {
	c := run(t, loopbackNetworks(t, peers), opt)
	t.Cleanup(c.close)
	return c
}

// spread has the next session of peer i with peer j begin with n connections.
func (c *cluster) spread(i, j, n int) { c.endpoints[i].keep(c.ids[j], newTuner(n)) }

// sessions opens a generation on all endpoints.
func (c *cluster) sessions(g plan.Generation) []*Session {
	var all []*Session
	for _, e := range c.endpoints {
		all = append(all, e.Session(g, c.ids))
	}
	return all
}

// connections returns how many peer i keeps with peer j.
func (c *cluster) connections(i, j int) int {
	e := c.endpoints[i]
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.peer(c.ids[j]).conns)
}

func activation(g plan.Generation, step plan.Step, index int) wire.Tag {
	return wire.Tag{Kind: wire.Activation, Generation: g, Step: step, Index: int32(index)}
}

// payload is n bytes that depend on who sends what.
func payload(n int, seed ...int) []byte {
	pattern := fmt.Append(nil, seed)
	return bytes.Repeat(pattern, n/len(pattern)+1)[:n]
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func mustSend(t testing.TB, s *Session, to plan.PeerID, tag wire.Tag, b []byte) {
	t.Helper()
	if err := s.Send(within(t, time.Minute), to, wire.Frame{Tag: tag, Payload: b}); err != nil {
		t.Fatal(err)
	}
}

func mustReceive(t testing.TB, s *Session, from plan.PeerID, tag wire.Tag, want []byte) {
	t.Helper()
	got, err := s.Receive(within(t, time.Minute), from, tag)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%v: %d bytes that differ from the %d sent", tag, len(got), len(want))
	}
}

// everybody sends steps messages of every tensor kind to everybody, itself included, and
// receives them in the opposite order.
func everybody(t testing.TB, c *cluster, sessions []*Session, steps, size int) {
	t.Helper()
	kinds := []wire.Kind{wire.Activation, wire.Gradient, wire.ReducePart, wire.GatherPart, wire.TiedGrad}
	ctx := within(t, 2*time.Minute)
	var work errgroup.Group
	for me, s := range sessions {
		work.Go(func() error {
			for step := range steps {
				for to, id := range c.ids {
					for _, k := range kinds {
						tag := wire.Tag{Kind: k, Generation: s.generation, Step: plan.Step(step)}
						if err := s.Send(ctx, id, wire.Frame{Tag: tag, Payload: payload(size, me, to, int(k), step)}); err != nil {
							return err
						}
					}
				}
			}
			return nil
		})
		work.Go(func() error {
			for step := steps - 1; step >= 0; step-- {
				for from, id := range c.ids {
					for _, k := range kinds {
						tag := wire.Tag{Kind: k, Generation: s.generation, Step: plan.Step(step)}
						got, err := s.Receive(ctx, id, tag)
						if err != nil {
							return err
						}
						if !bytes.Equal(got, payload(size, from, me, int(k), step)) {
							return fmt.Errorf("%v from peer %d to %d differs", tag, from, me)
						}
					}
				}
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		t.Fatal(err)
	}
}
