package link

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"pnode/pipeline/wire"
)

// TestInboxIsBoundedInMessages: messages without a payload take room too, those to oneself
// included.
func TestInboxIsBoundedInMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{Delay: time.Millisecond}, Options{QueueFrames: 2, InboxFrames: 3})
		defer c.close()
		sessions := c.sessions(1)
		for to, want := range []int{3, 3 + 2} { // what waits in the outbox comes on top
			sent := 0
			for ; sent < 100; sent++ {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				err := sessions[0].Send(ctx, c.ids[to], wire.Frame{Tag: activation(1, 0, sent)})
				cancel()
				if errors.Is(err, context.DeadlineExceeded) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if sent != want {
				t.Errorf("peer %d: %d messages were taken before Send waited, want %d", to, sent, want)
			}
			first := 3 * to // of the peer's the one that has no room: it is waited for
			mustReceive(t, sessions[to], c.ids[0], activation(1, 0, first), nil)
			for i := range sent {
				if i != first {
					mustReceive(t, sessions[to], c.ids[0], activation(1, 0, i), nil)
				}
			}
		}
	})
}

// TestMessagesUnderWayAreBounded: a peer that leaves its first message incomplete has a
// bounded number of later ones kept track of, wanted or not, and goes on when it is complete.
func TestMessagesUnderWayAreBounded(t *testing.T) {
	const frames, most = 4, 4 + 2
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{}, Options{InboxFrames: frames, InboxBytes: 2 * wire.MaxPieceBytes})
		defer c.close()
		s := c.endpoints[1].Session(3, c.ids)
		conn := intruder(t, c, 0, 1)
		large := wire.Frame{Tag: activation(3, 0, 0), Payload: payload(wire.MaxPieceBytes+1, 1)}
		header := wire.AppendHeader(nil, large)
		begin := append(wire.AppendPiece(opened(c, wire.Activations, 3), header, 1, 0), large.Payload[:wire.MaxPieceBytes]...)
		for seq := uint64(2); seq < 100; seq++ { // of another generation
			begin = append(begin, pieceOf(wire.Frame{Tag: activation(2, 0, int(seq))}, seq)...)
		}
		last := activation(3, 0, 100)
		write(t, conn, append(begin, pieceOf(wire.Frame{Tag: last, Payload: []byte("last")}, 100)...))
		time.Sleep(time.Second)
		f := s.remotes[c.ids[0]].inflows[wire.Activations]
		f.mu.Lock()
		pieces, messages := f.pieces, len(f.partial)
		f.mu.Unlock()
		if pieces != most || messages != most-1 {
			t.Errorf("%d messages of %d pieces are kept track of, want %d pieces", messages, pieces, most)
		}
		end := wire.AppendPiece(opened(c, wire.Activations, 3), header, 1, wire.MaxPieceBytes)
		write(t, conn, append(end, large.Payload[wire.MaxPieceBytes:]...))
		mustReceive(t, s, c.ids[0], large.Tag, large.Payload)
		mustReceive(t, s, c.ids[0], last, []byte("last"))
		time.Sleep(time.Second)
		if f.pieces != 0 || len(f.partial) != 0 {
			t.Errorf("%d messages of %d pieces are left", len(f.partial), f.pieces)
		}
	})
}

// TestBrokenConnectionsLeaveNoReaders: while a peer has no room, connections come and go;
// whoever waited for room on one of them ends with it.
func TestBrokenConnectionsLeaveNoReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{Delay: time.Millisecond}, Options{QueueFrames: 4, InboxFrames: 1})
		defer c.close()
		sessions := c.sessions(1)
		for i := range 5 {
			mustSend(t, sessions[0], c.ids[1], activation(1, 0, i), nil)
		}
		goroutines := func() int {
			conns, _ := c.endpoints[0].connections(c.ids[1])
			for _, conn := range conns {
				conn.Close(codeSilent, "a test")
			}
			time.Sleep(3 * time.Second)
			return runtime.NumGoroutine()
		}
		goroutines() // both ends dial from now on
		before, after := goroutines(), 0
		for range 20 {
			after = goroutines()
		}
		if after > before+10 {
			t.Errorf("%d goroutines after 20 more connections, %d before", after, before)
		}
		for i := range 5 {
			mustReceive(t, sessions[1], c.ids[0], activation(1, 0, i), nil)
		}
	})
}

// TestBlockedClassesLetControlPass: what is not read of all other classes leaves the connection
// room for control messages, on a line so slow that windows never grow.
func TestBlockedClassesLetControlPass(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{BytesPerS: 1_250_000, Delay: 20 * time.Millisecond}, Options{InboxFrames: 1})
		defer c.close()
		sessions := c.sessions(1)
		kinds := []wire.Kind{wire.Activation, wire.Gradient, wire.ReducePart}
		for i := range 6 {
			for _, k := range kinds {
				mustSend(t, sessions[0], c.ids[1], numbered(k, 1, i), payload(size, i))
			}
		}
		time.Sleep(30 * time.Second) // 18 MB take 15
		control := numbered(wire.KindReport, 1, 0)
		mustSend(t, sessions[0], c.ids[1], control, []byte("report"))
		mustReceive(t, sessions[1], c.ids[0], control, []byte("report"))
		select {
		case id := <-sessions[1].Lost():
			t.Errorf("%.8s is lost", id)
		default:
		}
		for i := range 6 {
			for _, k := range kinds {
				mustReceive(t, sessions[1], c.ids[0], numbered(k, 1, i), payload(size, i))
			}
		}
	})
}
