package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
	"pnode/swarm/transport"
)

// lostWithin waits for the one peer that is to be lost.
func lostWithin(t *testing.T, s *Session, want plan.PeerID, d time.Duration) time.Duration {
	t.Helper()
	begin := time.Now()
	select {
	case got := <-s.Lost():
		if got != want {
			t.Fatalf("%.8s is lost, not %.8s", got, want)
		}
	case <-time.After(d):
		t.Fatalf("%.8s is not lost within %v", want, d)
	}
	return time.Since(begin)
}

func TestSilentPeerIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, em := emulated(t, 3, LinkConditions{Delay: 5 * time.Millisecond}, Options{PeerTimeout: 5 * time.Second})
		defer c.close()
		sessions := c.sessions(1)
		everybody(t, c, sessions, 1, 1000)
		mustSend(t, sessions[2], c.ids[0], activation(1, 1, 0), []byte("held"))
		time.Sleep(time.Second)
		waiting := make(chan error, 1)
		go func() {
			_, err := sessions[0].Receive(context.Background(), c.ids[2], activation(1, 1, 1))
			waiting <- err
		}()
		em.Kill(c.ids[2])
		if took := lostWithin(t, sessions[0], c.ids[2], 7*time.Second); took < 4*time.Second {
			t.Errorf("lost after %v already", took)
		}
		lostWithin(t, sessions[1], c.ids[2], 3*time.Second)
		if err := <-waiting; !errors.Is(err, ErrLost) || !errors.Is(err, net.ErrClosed) {
			t.Errorf("who waited got %v", err)
		}
		mustReceive(t, sessions[0], c.ids[2], activation(1, 1, 0), []byte("held"))
		if err := sessions[0].Send(t.Context(), c.ids[2], wire.Frame{Tag: activation(1, 1, 2)}); !errors.Is(err, ErrLost) {
			t.Errorf("send to the lost peer: %v", err)
		}
		mustSend(t, sessions[0], c.ids[1], activation(1, 1, 3), []byte("others go on"))
		mustReceive(t, sessions[1], c.ids[0], activation(1, 1, 3), []byte("others go on"))
	})
}

func TestUnreachablePeerIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, em := emulated(t, 2, LinkConditions{}, Options{PeerTimeout: 5 * time.Second})
		defer c.close()
		em.Cut(c.ids[0], c.ids[1], true)
		for i, s := range c.sessions(1) {
			lostWithin(t, s, c.ids[1-i], 7*time.Second)
		}
	})
}

// TestNextGenerationReconnects: after a partition has healed a new generation works, over
// new connections.
func TestNextGenerationReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, em := emulated(t, 2, LinkConditions{Delay: time.Millisecond}, Options{PeerTimeout: 5 * time.Second})
		defer c.close()
		sessions := c.sessions(1)
		everybody(t, c, sessions, 1, 10)
		em.Cut(c.ids[0], c.ids[1], true)
		for i, s := range sessions {
			lostWithin(t, s, c.ids[1-i], 8*time.Second)
		}
		synctest.Wait()
		for i := range c.ids {
			if n := c.connections(i, 1-i); n != 0 {
				t.Errorf("%d dead connections are kept", n)
			}
		}
		em.Cut(c.ids[0], c.ids[1], false)
		everybody(t, c, c.sessions(2), 1, 10)
	})
}

// TestNextGenerationDistrustsTheSilent: a generation that ends for another reason does not
// leave its successor a connection on which nothing came any more.
func TestNextGenerationDistrustsTheSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, em := emulated(t, 2, LinkConditions{Delay: time.Millisecond}, Options{})
		defer c.close()
		sessions := c.sessions(1)
		everybody(t, c, sessions, 1, 10)
		em.Kill(c.ids[1])
		time.Sleep(4 * time.Second)
		sessions[0].Close()
		synctest.Wait()
		if n := c.connections(0, 1); n != 0 {
			t.Errorf("%d silent connections are kept", n)
		}
	})
}

func TestClosedEndpointIsLostAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{Delay: time.Millisecond}, Options{})
		defer c.close()
		sessions := c.sessions(1)
		everybody(t, c, sessions, 1, 10)
		c.endpoints[1].shutdown()
		if took := lostWithin(t, sessions[0], c.ids[1], 5*time.Second); took > 2*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// TestPeerThatLeavesIsLost: a peer that closes its session, but lives on, is lost when its
// heartbeats have been missing for PeerTimeout; the connection stays.
func TestPeerThatLeavesIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{Delay: time.Millisecond}, Options{PeerTimeout: 5 * time.Second})
		defer c.close()
		sessions := c.sessions(1)
		everybody(t, c, sessions, 1, 10)
		sessions[1].Close()
		lostWithin(t, sessions[0], c.ids[1], 7*time.Second)
		if n := c.connections(0, 1); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}

// TestPeerThatMovesOnIsNotLost: it is this node that is behind.
func TestPeerThatMovesOnIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{Delay: time.Millisecond}, Options{})
		defer c.close()
		sessions := c.sessions(1)
		everybody(t, c, sessions, 1, 10)
		c.endpoints[0].Session(2, c.ids)
		select {
		case id := <-sessions[1].Lost():
			t.Errorf("%.8s is lost", id)
		case <-time.After(30 * time.Second):
		}
	})
}

// intruder is a peer that makes a connection, and sends whatever it likes.
func intruder(t *testing.T, c *cluster, me, to int) transport.Conn {
	t.Helper()
	conn, err := c.fronts[me].Dial(t.Context(), c.ids[to], "")
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func write(t *testing.T, conn transport.Conn, b []byte) transport.Stream {
	t.Helper()
	stream, err := conn.OpenStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Write(b); err != nil {
		t.Fatal(err)
	}
	return stream
}

// pieceOf returns the only piece of a small message.
func pieceOf(f wire.Frame, seq uint64) []byte {
	return append(wire.AppendPiece(nil, wire.AppendHeader(nil, f), seq, 0), f.Payload...)
}

// opened begins a stream of peer 0.
func opened(c *cluster, class wire.Class, g plan.Generation) []byte {
	return wire.AppendOpen(nil, wire.Open{Class: class, Generation: g, From: c.endpoints[0].epoch})
}

func TestCorruptStreamClosesTheConnection(t *testing.T) {
	piece := pieceOf(wire.Frame{Tag: activation(1, 0, 0), Payload: []byte("some bytes")}, 1)
	flip := func(b []byte, i int) []byte {
		b = bytes.Clone(b)
		b[i] ^= 0x40
		return b
	}
	for name, stream := range map[string]func(c *cluster) []byte{
		"stream header": func(c *cluster) []byte { return flip(opened(c, wire.Activations, 1), 0) },
		"magic":         func(c *cluster) []byte { return append(opened(c, wire.Activations, 1), flip(piece, 0)...) },
		"payload":       func(c *cluster) []byte { return append(opened(c, wire.Activations, 1), flip(piece, len(piece)-1)...) },
		"length":        func(c *cluster) []byte { return append(opened(c, wire.Activations, 1), flip(piece, 39)...) },
		"number": func(c *cluster) []byte {
			return append(opened(c, wire.Activations, 1), flip(piece, wire.HeaderBytes)...)
		},
		"wrong class": func(c *cluster) []byte { return append(opened(c, wire.Gradients, 1), piece...) },
		"far ahead": func(c *cluster) []byte {
			return append(opened(c, wire.Activations, 1), pieceOf(wire.Frame{Tag: activation(1, 0, 0)}, maxAhead+1)...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := emulated(t, 2, LinkConditions{}, Options{})
				defer c.close()
				s := c.endpoints[1].Session(1, c.ids)
				conn := intruder(t, c, 0, 1)
				write(t, conn, stream(c))
				<-conn.Context().Done()
				if closed, ok := transport.ClosedBy(conn.Err()); !ok || closed.Code != codeCorrupt || closed.Reason == "" {
					t.Errorf("the connection ended with %v", conn.Err())
				}
				lostWithin(t, s, c.ids[0], time.Second)
				wantFrameFault(t, s, c.ids[0])
				if n := c.endpoints[1].counts.corrupt.Load(); n != 1 {
					t.Errorf("%d corrupt connections are counted", n)
				}
			})
		})
	}
}

// wantFrameFault wants calls about a lost peer to end with its fault.
func wantFrameFault(t *testing.T, s *Session, peer plan.PeerID) {
	t.Helper()
	_, err := s.Receive(t.Context(), peer, activation(s.generation, 1<<30, 0))
	var fault *plan.Fault
	if !errors.As(err, &fault) || fault.Accused != peer || fault.Kind != plan.BadFrame || !errors.Is(err, ErrLost) {
		t.Errorf("%v, want the fault %q of %.8s", err, plan.BadFrame, peer)
	}
	if f := s.Fault(peer); f == nil || f != fault {
		t.Errorf("the session knows of the fault %v", f)
	}
}

// TestTensorOf255MB: a message that the plan does not have, or not of that size, is its sender's fault before any
// room is made for it.
func TestTensorOf255MB(t *testing.T) {
	const expected = 1 << 20
	for name, frame := range map[string]wire.Frame{
		"255 MB":          {Tag: activation(1, 7, 0), Payload: make([]byte, 255_000_000)},
		"one byte more":   {Tag: activation(1, 7, 0), Payload: make([]byte, expected+1)},
		"another's stage": {Tag: wire.Tag{Kind: wire.Activation, Generation: 1, Step: 7, Stage: 3}, Payload: []byte("x")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := emulated(t, 2, LinkConditions{}, Options{QueueBytes: 1 << 30})
				defer c.close()
				sender := c.endpoints[0].Session(1, c.ids)
				s := c.endpoints[1].Session(1, c.ids, Rules{Expect: func(from, _ plan.PeerID, tag wire.Tag, bytes int) error {
					if from != c.ids[0] || tag.Stage != 0 || bytes > expected {
						return fmt.Errorf("%w: %v of %d bytes", wire.ErrLength, tag, bytes)
					}
					return nil
				}})
				mustSend(t, sender, c.ids[1], activation(1, 6, 0), payload(expected, 1))
				mustReceive(t, s, c.ids[0], activation(1, 6, 0), payload(expected, 1))
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				if err := sender.Send(t.Context(), c.ids[1], frame); err != nil {
					t.Fatal(err)
				}
				lostWithin(t, s, c.ids[0], time.Second)
				wantFrameFault(t, s, c.ids[0])
				if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 32<<20 {
					t.Errorf("%d bytes were taken", after.TotalAlloc-before.TotalAlloc)
				}
			})
		})
	}
}

// TestWrongFramesAreDropped: messages of another generation and duplicates are read over,
// and so is a piece that comes again.
func TestWrongFramesAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{}, Options{})
		defer c.close()
		s := c.endpoints[1].Session(3, c.ids)
		conn := intruder(t, c, 0, 1)
		b := opened(c, wire.Activations, 3)
		for i, tag := range []wire.Tag{activation(3, 0, 0), activation(2, 0, 1), activation(4, 0, 1), activation(3, 0, 0), activation(3, 0, 1)} {
			piece := pieceOf(wire.Frame{Tag: tag, Payload: payload(100, int(tag.Generation))}, uint64(i+1))
			b = append(append(b, piece...), piece...)
		}
		stream := write(t, conn, b)
		mustReceive(t, s, c.ids[0], activation(3, 0, 1), payload(100, 3))
		mustReceive(t, s, c.ids[0], activation(3, 0, 0), payload(100, 3))
		time.Sleep(time.Second)
		if st := s.Stats()[0]; st.Dropped != 2 || st.Duplicates != 1 || st.Repeated != 5 || st.FramesReceived != 2 {
			t.Errorf("counts are %+v", st)
		}
		if _, err := s.Receive(t.Context(), c.ids[0], activation(3, 0, 0)); !errors.Is(err, ErrDuplicate) {
			t.Errorf("receiving twice: %v", err)
		}
		var acks [3 * wire.AckBytes]byte
		n, err := stream.Read(acks[:])
		if err != nil || n%wire.AckBytes != 0 {
			t.Fatalf("%d bytes of acknowledgements, %v", n, err)
		}
		if got, err := wire.DecodeAck(acks[n-wire.AckBytes : n]); err != nil || got != 10 {
			t.Errorf("%d pieces are acknowledged, %v", got, err)
		}
	})
}

func TestBackPressure(t *testing.T) {
	t.Parallel()
	const size = 100_000
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{Delay: time.Millisecond}, Options{QueueBytes: 2 * size, InboxBytes: 3 * size})
		defer c.close()
		sessions := c.sessions(1)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		sent := 0
		for ; sent < 1000; sent++ {
			err := sessions[0].Send(ctx, c.ids[1], wire.Frame{Tag: activation(1, 0, sent), Payload: payload(size, sent)})
			if errors.Is(err, context.DeadlineExceeded) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		// Inbox 3, queue 2, and what QUIC's windows (32 MB at most) hold in between.
		if sent < 5 || sent > 5+400 {
			t.Fatalf("%d messages were taken before Send waited", sent)
		}
		other := wire.Tag{Kind: wire.Gradient, Generation: 1}
		mustSend(t, sessions[0], c.ids[1], other, []byte("another class"))
		mustReceive(t, sessions[1], c.ids[0], other, []byte("another class"))
		// The first message that is held back is accepted because it is waited for,
		// although the inbox stays full.
		mustReceive(t, sessions[1], c.ids[0], activation(1, 0, 3), payload(size, 3))
		mustReceive(t, sessions[1], c.ids[0], activation(1, 0, 4), payload(size, 4))
		for i := range sent {
			if i != 3 && i != 4 {
				mustReceive(t, sessions[1], c.ids[0], activation(1, 0, i), payload(size, i))
			}
		}
		mustSend(t, sessions[0], c.ids[1], activation(1, 1, 0), payload(10*size, 1)) // larger than both bounds
		mustReceive(t, sessions[1], c.ids[0], activation(1, 1, 0), payload(10*size, 1))
		select {
		case id := <-sessions[0].Lost():
			t.Errorf("%.8s was lost", id)
		default:
		}
	})
}

// TestOwnMessagesAreBounded: what a node sends to itself has the same bound.
func TestOwnMessagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 1, LinkConditions{}, Options{InboxBytes: 10})
		defer c.close()
		s := c.sessions(1)[0]
		mustSend(t, s, c.ids[0], activation(1, 0, 0), make([]byte, 8))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Send(ctx, c.ids[0], wire.Frame{Tag: activation(1, 0, 1), Payload: make([]byte, 8)}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the second message: %v", err)
		}
		mustReceive(t, s, c.ids[0], activation(1, 0, 0), make([]byte, 8))
		mustSend(t, s, c.ids[0], activation(1, 0, 1), make([]byte, 8))
		mustReceive(t, s, c.ids[0], activation(1, 0, 1), make([]byte, 8))
	})
}
