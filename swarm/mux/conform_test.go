package mux

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"pnode/swarm/transport"
)

// TestConform holds what users of a transport.Conn count on, over QUIC and over this package: they are equal.
func TestConform(t *testing.T) {
	for _, pair := range pairs {
		t.Run(pair.name, func(t *testing.T) {
			for name, test := range map[string]func(*testing.T, transport.Conn, transport.Conn){
				"echo": conformEcho, "half close": conformHalfClose, "big both ways": conformBig,
				"cancel read": conformCancelRead, "cancel write": conformCancelWrite, "cancel own": conformCancelOwn,
				"cancel after end": conformCancelAfterEnd, "deadlines": conformDeadlines, "deadline in a write": conformWriteDeadline,
				"close": conformClose, "close wakes": conformCloseWakes, "close under load": conformCloseLoaded, "contexts": conformContexts,
				"stream limit": conformLimit, "unread stream": conformUnread, "urgent passes bulk": conformUrgent,
				"turns": conformTurns, "unused stream": conformUnused, "stats": conformStats,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					a, b := pair.make(t)
					if a.Transport() != transportOf(pair.name) {
						t.Errorf("transport is %v", a.Transport())
					}
					test(t, a, b)
				})
			}
		})
	}
}

func noise(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed)})
	r.Read(b)
	return b
}

func open(t *testing.T, c transport.Conn) transport.Stream {
	t.Helper()
	s, err := c.OpenStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func accept(t *testing.T, c transport.Conn) transport.Stream {
	t.Helper()
	s, err := c.AcceptStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func send(t *testing.T, s transport.Stream, b string) {
	t.Helper()
	if n, err := s.Write([]byte(b)); err != nil || n != len(b) {
		t.Fatalf("wrote %d of %d bytes: %v", n, len(b), err)
	}
}

func receive(t *testing.T, s transport.Stream, want string) {
	t.Helper()
	b := make([]byte, len(want))
	if _, err := io.ReadFull(s, b); err != nil || string(b) != want {
		t.Fatalf("read %q, %v, want %q", b, err, want)
	}
}

// joined returns the two ends of a stream that a has opened with the byte "o".
func joined(t *testing.T, a, b transport.Conn) (near, far transport.Stream) {
	t.Helper()
	near = open(t, a)
	send(t, near, "o")
	far = accept(t, b)
	receive(t, far, "o")
	return near, far
}

func conformEcho(t *testing.T, a, b transport.Conn) {
	for _, ends := range [][2]transport.Conn{{a, b}, {b, a}} {
		near, far := joined(t, ends[0], ends[1])
		send(t, far, "answer")
		receive(t, near, "answer")
	}
}

func conformHalfClose(t *testing.T, a, b transport.Conn) {
	near, far := joined(t, a, b)
	send(t, near, "the last word")
	near.Close()
	got, err := io.ReadAll(far)
	if err != nil || string(got) != "the last word" {
		t.Fatalf("read %q, %v", got, err)
	}
	if _, err := near.Write([]byte("more")); err == nil {
		t.Error("a closed stream can be written to")
	}
	send(t, far, "still open")
	receive(t, near, "still open")
	far.Close()
	for range 2 { // the end stays the end
		if n, err := near.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Fatalf("read %d bytes, %v, want EOF", n, err)
		}
	}
	near.CancelRead(9) // of no effect
	if _, err := near.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("CancelRead after the end: %v, want EOF", err)
	}
}

func conformBig(t *testing.T, a, b transport.Conn) {
	const size = 8 << 20
	near, far := joined(t, a, b)
	var all sync.WaitGroup
	for i, s := range []transport.Stream{near, far} {
		all.Go(func() {
			if n, err := s.Write(noise(size, uint64(i))); n != size || err != nil {
				t.Errorf("wrote %d bytes, %v", n, err)
			}
			s.Close()
		})
		all.Go(func() {
			got, err := io.ReadAll(s)
			if err != nil || !bytes.Equal(got, noise(size, uint64(1-i))) {
				t.Errorf("%d bytes came, %v, or are wrong", len(got), err)
			}
		})
	}
	all.Wait()
}

// failsWith repeats a call until it fails, and checks which end has cut the stream with which code.
func failsWith(t *testing.T, call func([]byte) (int, error), remote bool, code transport.Code) {
	t.Helper()
	b := make([]byte, 1<<10)
	var err error
	for err == nil {
		_, err = call(b)
	}
	var cut *transport.StreamError
	if !errors.As(err, &cut) || cut.Remote != remote || cut.Code != code {
		t.Errorf("failed with %v, want code %d, remote %v", err, code, remote)
	}
	if got, ok := transport.CutBy(err); ok != remote || remote && got != code {
		t.Errorf("CutBy is %d, %v", got, ok)
	}
}

func conformCancelRead(t *testing.T, a, b transport.Conn) {
	near, far := joined(t, a, b)
	far.CancelRead(7)
	failsWith(t, near.Write, true, 7)
	failsWith(t, far.Read, false, 7)
	send(t, far, "the other direction")
	receive(t, near, "the other direction")
}

func conformCancelWrite(t *testing.T, a, b transport.Conn) {
	near, far := joined(t, a, b)
	send(t, near, "lost or not")
	near.CancelWrite(1 << 40)
	failsWith(t, far.Read, true, 1<<40)
	failsWith(t, near.Write, false, 1<<40)
	send(t, far, "the other direction")
	receive(t, near, "the other direction")
}

// conformCancelOwn: a cut wakes this end's own calls.
func conformCancelOwn(t *testing.T, a, b transport.Conn) {
	near, _ := joined(t, a, b)
	var all sync.WaitGroup
	all.Go(func() { failsWith(t, near.Read, false, 3) })
	all.Go(func() { failsWith(t, func([]byte) (int, error) { return near.Write(make([]byte, 64<<20)) }, false, 4) })
	near.CancelRead(3)
	near.CancelWrite(4)
	near.CancelRead(5) // of no effect
	near.CancelWrite(6)
	all.Wait()
	failsWith(t, near.Read, false, 3)
	failsWith(t, near.Write, false, 4)
}

func conformCancelAfterEnd(t *testing.T, a, b transport.Conn) {
	near, far := joined(t, a, b)
	send(t, near, "unread")
	near.Close()
	far.CancelRead(3)
	failsWith(t, far.Read, false, 3)
	far.Close()
	if _, err := near.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("read %v, want EOF", err)
	}
	near.CancelWrite(5) // after its end
	next, farNext := joined(t, a, b)
	send(t, next, "the next stream")
	receive(t, farNext, "the next stream")
}

func conformDeadlines(t *testing.T, a, b transport.Conn) {
	near, far := joined(t, a, b)
	late := func(what string, call func([]byte) (int, error)) {
		t.Helper()
		if _, err := call(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s after its deadline: %v", what, err)
		}
	}
	near.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	late("Read", near.Read)
	near.SetReadDeadline(time.Time{})
	send(t, far, "in time")
	receive(t, near, "in time")
	near.SetWriteDeadline(time.Now().Add(-time.Second))
	late("Write", near.Write)
	send(t, far, "x")
	receive(t, near, "x")
	near.SetDeadline(time.Now())
	late("Read", near.Read)
	late("Write", near.Write)
	near.SetDeadline(time.Time{})
	send(t, near, "again")
	receive(t, far, "again")
	var all sync.WaitGroup
	all.Go(func() { late("blocked Read", near.Read) })
	near.SetReadDeadline(time.Now()) // also of a call that blocks
	all.Wait()
}

// conformWriteDeadline: what a Write that fails late has said that it has taken over arrives, and no more.
func conformWriteDeadline(t *testing.T, a, b transport.Conn) {
	near, far := joined(t, a, b)
	message, first := noise(64<<20, 1), make([]byte, 1)
	var n int
	var err error
	var writing sync.WaitGroup
	writing.Go(func() { n, err = near.Write(message) })
	if _, err := io.ReadFull(far, first); err != nil { // so some has been taken over
		t.Fatal(err)
	}
	near.SetWriteDeadline(time.Now())
	writing.Wait()
	if !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 || n == len(message) {
		t.Fatalf("wrote %d bytes, %v", n, err)
	}
	near.SetWriteDeadline(time.Time{})
	near.Close()
	if got, err := io.ReadAll(far); err != nil || !bytes.Equal(append(first, got...), message[:n]) {
		t.Errorf("%d bytes came, %v, of %d", 1+len(got), err, n)
	}
}

func checkClosed(t *testing.T, err error, remote bool) {
	t.Helper()
	var closed *transport.ConnError
	if !errors.As(err, &closed) || closed.Remote != remote || closed.Code != 42 || closed.Reason != "enough" {
		t.Errorf("ended with %v (remote %v wanted)", err, remote)
	}
	if !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v does not wrap net.ErrClosed", err)
	}
	if _, ok := transport.ClosedBy(err); ok != remote {
		t.Errorf("ClosedBy is %v", ok)
	}
}

func conformClose(t *testing.T, a, b transport.Conn) {
	near, far := joined(t, a, b)
	if a.Err() != nil || b.Err() != nil || a.Context().Err() != nil {
		t.Fatal("ended before the end")
	}
	a.Close(42, "enough")
	a.Close(43, "more than enough") // of no effect
	<-a.Context().Done()
	<-b.Context().Done()
	checkClosed(t, a.Err(), false)
	checkClosed(t, b.Err(), true)
	call := func(f func([]byte) (int, error)) error { _, err := f([]byte("x")); return err }
	for _, err := range []error{call(near.Read), call(near.Write)} {
		checkClosed(t, err, false)
	}
	for _, err := range []error{call(far.Read), call(far.Write)} {
		checkClosed(t, err, true)
	}
	_, err := a.OpenStream(t.Context())
	checkClosed(t, err, false)
	_, err = b.AcceptStream(t.Context())
	checkClosed(t, err, true)
	near.CancelRead(1) // nothing happens
	near.CancelWrite(1)
	near.Close()
	near.SetUrgency(1)
}

// conformCloseWakes: whatever blocks fails when the peer closes.
func conformCloseWakes(t *testing.T, a, b transport.Conn) {
	near, _ := joined(t, a, b)
	var all sync.WaitGroup
	all.Go(func() {
		_, err := a.AcceptStream(t.Context())
		checkClosed(t, err, true)
	})
	all.Go(func() {
		_, err := near.Read(make([]byte, 1))
		checkClosed(t, err, true)
	})
	all.Go(func() {
		_, err := near.Write(make([]byte, 64<<20)) // more than any window
		checkClosed(t, err, true)
	})
	b.Close(42, "enough")
	all.Wait()
}

// conformCloseLoaded: the peer hears the reason though both directions are full.
func conformCloseLoaded(t *testing.T, a, b transport.Conn) {
	count := []func() int{bulk(t, a, b, 2), bulk(t, b, a, 2)}
	for count[0]() < 8<<20 || count[1]() < 8<<20 {
		if a.Err() != nil || b.Err() != nil {
			t.Fatal(a.Err(), b.Err())
		}
		time.Sleep(time.Millisecond)
	}
	a.Close(42, "enough")
	<-b.Context().Done()
	checkClosed(t, b.Err(), true)
}

func conformContexts(t *testing.T, a, b transport.Conn) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := b.AcceptStream(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("AcceptStream: %v", err)
	}
	joined(t, a, b) // it works still
}

func conformLimit(t *testing.T, a, b transport.Conn) {
	var streams []transport.Stream
	for range maxStreams {
		streams = append(streams, open(t, a))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := a.OpenStream(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%d streams and one more: %v", maxStreams, err)
	}
	opened := make(chan transport.Stream)
	go func() {
		s, err := a.OpenStream(t.Context())
		if err != nil {
			t.Error(err)
		}
		opened <- s
	}()
	for _, s := range streams {
		send(t, s, "x")
	}
	for i := range streams {
		far := accept(t, b)
		receive(t, far, "x")
		if i%2 == 0 {
			far.Close()
			far.CancelRead(1)
		}
	}
	for _, s := range streams {
		s.Close()
		s.CancelRead(2)
	}
	s := <-opened
	send(t, s, "room again")
	receive(t, accept(t, b), "room again")
}

// conformUnread: a stream that nobody reads fills its window and stops no other.
func conformUnread(t *testing.T, a, b transport.Conn) {
	near, _ := joined(t, a, b)
	near.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	n, err := near.Write(make([]byte, 2*connWindow))
	if !errors.Is(err, os.ErrDeadlineExceeded) || n > streamWindow+bufferBytes {
		t.Fatalf("an unread stream took %d bytes: %v", n, err)
	}
	near2, far2 := joined(t, a, b)
	go near2.Write(make([]byte, 2*connWindow))
	if _, err := io.ReadFull(far2, make([]byte, 2*connWindow)); err != nil {
		t.Fatal(err)
	}
	near.CancelWrite(1)
}

// conformUrgent: a message of urgency 0 comes before bulk that was written before it, but for what is on the way.
func conformUrgent(t *testing.T, a, b transport.Conn) {
	bulk, farBulk := joined(t, a, b)
	bulk.SetUrgency(6)
	urgent, farUrgent := joined(t, a, b)
	urgent.SetUrgency(0)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			if _, err := bulk.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	})
	all.Go(func() {
		for {
			if _, err := farBulk.Read(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	})
	for range 50 {
		send(t, urgent, "now")
		receive(t, farUrgent, "now")
		send(t, farUrgent, "yes")
		receive(t, urgent, "yes")
	}
	bulk.CancelWrite(1)
	all.Wait()
}

// conformTurns: streams of one urgency get about the same.
func conformTurns(t *testing.T, a, b transport.Conn) {
	const each = 2 << 20
	var all sync.WaitGroup
	var far []transport.Stream
	for range 4 {
		near, other := joined(t, a, b)
		far = append(far, other)
		all.Go(func() {
			if _, err := near.Write(make([]byte, each)); err != nil {
				t.Error(err)
			}
		})
	}
	for _, s := range far {
		all.Go(func() {
			if _, err := io.ReadFull(s, make([]byte, each)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// conformUnused: a stream on which nothing was sent is there for the peer once it ends.
func conformUnused(t *testing.T, a, b transport.Conn) {
	open(t, a).Close()
	if got, err := io.ReadAll(accept(t, b)); len(got) > 0 || err != nil {
		t.Errorf("an unused stream brought %q, %v", got, err)
	}
}

func conformStats(t *testing.T, a, b transport.Conn) {
	near, far := joined(t, a, b)
	send(t, near, strings.Repeat("x", 1000))
	receive(t, far, strings.Repeat("x", 1000))
	send(t, far, "back")
	receive(t, near, "back")
	for end, conn := range []transport.Conn{a, b} {
		s := conn.Stats()
		for s.LatestRTT == 0 && conn.Context().Err() == nil { // an answer is on the way
			time.Sleep(time.Millisecond)
			s = conn.Stats()
		}
		if s.MinRTT <= 0 || s.MinRTT > s.LatestRTT+s.SmoothedRTT || s.SmoothedRTT <= 0 || s.CongestionWindow == 0 {
			t.Errorf("end %d: %+v", end, s)
		}
	}
	if s := a.Stats(); s.BytesSent < 1000 {
		t.Errorf("%d bytes sent", s.BytesSent)
	}
	if s := b.Stats(); s.BytesReceived < 1000 {
		t.Errorf("%d bytes received", s.BytesReceived)
	}
}
