package mux

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pnode/swarm/neterr"
	"pnode/swarm/transport"
)

// rawPeer speaks the protocol by hand. It has dialed.
type rawPeer struct {
	t    *testing.T
	conn net.Conn
	all  *Conn // the other end
}

// withRaw calls f in virtual time with a peer whose preface was sent and which reads all, if reads is set.
func withRaw(t *testing.T, reads bool, f func(t *testing.T, p rawPeer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		near, far := newLine(1e9, time.Millisecond, time.Millisecond)
		p := rawPeer{t, near, New(far, Config{})}
		if reads {
			go io.Copy(io.Discard, near)
		}
		p.send([]byte(preface))
		f(t, p)
		p.all.Close(0, "")
		near.Close()
		<-p.all.Done()
	})
}

func (p rawPeer) send(b []byte) {
	p.t.Helper()
	if _, err := p.conn.Write(b); err != nil {
		p.t.Fatal(err)
	}
}

func frame(k kind, stream uint32, payload ...byte) []byte {
	return append(appendHeader(nil, header{kind: k, length: len(payload), stream: stream}), payload...)
}

func number(k kind, stream uint32, n uint64) []byte { return appendNumber(nil, k, stream, n) }

func repeat(n int, f func(i int) []byte) (b []byte) {
	for i := range n {
		b = append(b, f(i)...)
	}
	return b
}

// TestEndsInWords: what is said of a connection that has ended tells who ended it.
func TestEndsInWords(t *testing.T) {
	for _, c := range []struct {
		end         func(far net.Conn, a *Conn)
		here, there string
	}{
		{func(_ net.Conn, a *Conn) { a.Close(1, "enough") }, "was given up", "is closed by the other end"},
		{func(_ net.Conn, a *Conn) { a.Break("this machine has another address") }, "is cut", "is cut"},
		{func(far net.Conn, _ *Conn) { far.Close() }, "is cut", "was given up"},
	} {
		near, far := tcpPair(t)
		a, b := New(near, Config{Dialer: true}), New(far, Config{})
		joined(t, a, b)
		c.end(far, a)
		<-a.Done()
		<-b.Done()
		if got := [2]string{neterr.Verb(a.Err()), neterr.Verb(b.Err())}; got != [2]string{c.here, c.there} {
			t.Errorf("%v and %v: %q, want %q and %q", a.Err(), b.Err(), got, c.here, c.there)
		}
	}
}

// TestFaults: a peer that breaks the protocol loses the connection and hears why.
func TestFaults(t *testing.T) {
	full := make([]byte, maxData)
	for name, test := range map[string]struct {
		sent []byte
		want string
	}{
		"kind 0":            {frame(0, 1), "kind 0 of a frame"},
		"unknown kind":      {frame(kindFault+1, 1), "kind 10 of a frame"},
		"oversized":         {frame(kindData, 1, make([]byte, maxData+1)...), "with 16377 bytes"},
		"empty data":        {frame(kindData, 1), "with 0 bytes"},
		"long reset":        {frame(kindReset, 1, make([]byte, 9)...), "with 9 bytes"},
		"data on no stream": {frame(kindData, 0, 1), "on stream 0"},
		"ping on a stream":  {frame(kindPing, 1), "on stream 1"},
		"skipped stream":    {frame(kindData, 3, 1), "nobody has opened"},
		"our stream":        {frame(kindData, 2, 1), "nobody has opened"},
		"window of none":    {number(kindWindow, 1, 1), "nobody has opened"},
		"data after end":    {append(frame(kindEnd, 1), frame(kindData, 1, 1)...), "after its end"},
		"two ends":          {append(frame(kindEnd, 1), frame(kindEnd, 1)...), "after its end"},
		"reset after end":   {append(frame(kindEnd, 1), number(kindReset, 1, 1)...), "after its end"},
		"stream's window": {
			repeat(streamWindow/maxData+1, func(int) []byte { return frame(kindData, 1, full...) }), "bytes on stream 1, whose window",
		},
		"connection's window": {
			repeat(4*(streamWindow/maxData), func(i int) []byte { return frame(kindData, uint32(i%4*2+1), full...) }), "whose window",
		},
		"too many streams": {
			repeat(maxStreams+1, func(i int) []byte { return frame(kindData, uint32(2*i+1), 1) }), "more than 256 streams",
		},
		"pongs": {repeat(2, func(int) []byte { return frame(kindPong, 0, make([]byte, pongBytes)...) }), "without a PING"},
		"pong of more": {
			frame(kindPong, 0, binary.BigEndian.AppendUint64(make([]byte, 0, 16), 1<<40)[:8:8]...), "with 8 bytes",
		},
		"pong of too much": {
			frame(kindPong, 0, append(binary.BigEndian.AppendUint64(nil, 1<<40), make([]byte, 8)...)...), "1099511627776 bytes read",
		},
	} {
		t.Run(name, func(t *testing.T) {
			withRaw(t, false, func(t *testing.T, p rawPeer) {
				heard := make(chan []byte)
				go func() {
					b, _ := io.ReadAll(p.conn)
					heard <- b
				}()
				time.Sleep(10 * time.Millisecond) // it has sent its PING
				p.send(test.sent)
				<-p.all.Context().Done()
				err := p.all.Err()
				if err == nil || !strings.Contains(err.Error(), test.want) || !errors.Is(err, net.ErrClosed) {
					t.Errorf("ended with %v, want %q", err, test.want)
				}
				if _, ok := transport.ClosedBy(err); ok {
					t.Errorf("%v passes for the peer's Close", err)
				}
				if b := <-heard; !bytes.Contains(b, []byte(test.want)) {
					t.Errorf("the peer does not hear why: %q", b)
				}
			})
		})
	}
	t.Run("preface", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			near, far := newLine(1e9, time.Millisecond, time.Millisecond)
			c := New(far, Config{})
			near.Write([]byte("GET / HTTP/1.1\r\n"))
			<-c.Done()
			if err := c.Err(); err == nil || !strings.Contains(err.Error(), "GET / HT") {
				t.Errorf("ended with %v", err)
			}
		})
	})
	t.Run("pings", func(t *testing.T) {
		withRaw(t, false, func(t *testing.T, p rawPeer) {
			for p.all.Err() == nil { // nothing is read, so that no answer can be written for long
				p.send(frame(kindPing, 0))
			}
		})
	})
}

// TestLateFrames: what was sent before a stream's end was known is no fault.
func TestLateFrames(t *testing.T) {
	withRaw(t, true, func(t *testing.T, p rawPeer) {
		p.send(append(frame(kindData, 1, 'x'), frame(kindEnd, 1)...))
		s := accept(t, p.all)
		receive(t, s, "x")
		s.Close()
		time.Sleep(10 * time.Millisecond)
		p.send(number(kindStop, 1, 5))
		p.send(number(kindWindow, 1, 1<<30))
		p.send(number(kindWindow, 0, 1)) // less than before says nothing
		p.send(append(frame(kindData, 3, 'y'), number(kindReset, 3, 6)...))
		failsWith(t, accept(t, p.all).Read, true, 6)
		time.Sleep(10 * time.Millisecond)
		if err := p.all.Err(); err != nil {
			t.Error(err)
		}
	})
}

// TestStreamsThatNobodyAccepts: the peer may end streams before they are accepted; they take no room then.
func TestStreamsThatNobodyAccepts(t *testing.T) {
	withRaw(t, true, func(t *testing.T, p rawPeer) {
		for i := range uint32(2000) {
			p.send(append(number(kindReset, 2*i+1, 1), number(kindStop, 2*i+1, 2)...))
			if i%64 == 0 {
				time.Sleep(10 * time.Millisecond) // for the answers, which free the streams' places
			}
		}
		time.Sleep(10 * time.Millisecond)
		p.all.mu.Lock()
		defer p.all.mu.Unlock()
		if p.all.err != nil || len(p.all.accepts) > 0 || len(p.all.streams) > 0 || p.all.incoming > 0 {
			t.Errorf("%d streams to accept, %d known, %d counted, %v", len(p.all.accepts), len(p.all.streams), p.all.incoming, p.all.err)
		}
	})
}

// TestSmallFramesTakeLittle: bytes that come one by one take no more memory than their window.
func TestSmallFramesTakeLittle(t *testing.T) {
	c := newConn(nil, Config{})
	line := []byte(preface)
	for range 3 * maxData {
		line = append(line, frame(kindData, 1, 'x')...)
	}
	if err := c.readAll(bytes.NewReader(line)); err != io.EOF {
		t.Fatal(err)
	}
	if n := len(c.streams[1].in.chunks); n != 3 {
		t.Errorf("%d bytes take %d chunks", 3*maxData, n)
	}
}

// TestPeerThatReadsNothing: nothing that this end does waits for long.
func TestPeerThatReadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe() // which holds nothing
		c := New(far, Config{})
		s := open(t, c)
		failed := make(chan error)
		go func() {
			_, err := s.Write(make([]byte, 1<<20))
			failed <- err
		}()
		time.Sleep(time.Second)
		begin := time.Now()
		c.Close(42, "enough")
		if took := time.Since(begin); took > farewellTime {
			t.Errorf("Close took %v", took)
		}
		checkClosed(t, <-failed, false)
		<-c.Done()
		if took := time.Since(begin); took > lingerTime {
			t.Errorf("the goroutines took %v to end", took)
		}
		near.Close()
	})
}

// TestSilence: a peer that is silent is given up, and a connection without streams ends; one with streams lives, and
// something goes over it every second.
func TestSilence(t *testing.T) {
	withRaw(t, true, func(t *testing.T, p rawPeer) {
		s := open(t, p.all)
		send(t, s, "is there anybody?")
		begin := time.Now()
		_, err := s.Read(make([]byte, 1))
		if took := time.Since(begin); err == nil || took < idleTime-time.Second || took > idleTime+time.Second {
			t.Errorf("a silent peer is given up after %v: %v", took, err)
		}
	})
	onLine(t, 1e6, 20*time.Millisecond, 0, func(t *testing.T, a, b *Conn) {
		near, _ := joined(t, a, b)
		for range 60 {
			before := a.Stats().BytesReceived
			time.Sleep(1500 * time.Millisecond)
			if a.Stats().BytesReceived == before {
				t.Fatal("nothing came for 1.5 s")
			}
		}
		if a.Err() != nil || b.Err() != nil {
			t.Fatal(a.Err(), b.Err())
		}
		near.CancelRead(1)
		near.CancelWrite(1)
		accept := make(chan error)
		go func() {
			_, err := b.AcceptStream(t.Context())
			accept <- err
		}()
		begin := time.Now()
		if err := <-accept; err == nil || time.Since(begin) > 3*idleTime {
			t.Errorf("an idle connection ended with %v after %v", err, time.Since(begin))
		}
		<-a.Done()
	})
}

// TestBrokenLine: the end of the line without CLOSE is an error of its own, and no stream's end.
func TestBrokenLine(t *testing.T) {
	withRaw(t, true, func(t *testing.T, p rawPeer) {
		p.send(frame(kindData, 1, 'x'))
		s := accept(t, p.all)
		receive(t, s, "x")
		p.conn.Close()
		_, err := s.Read(make([]byte, 1))
		if !errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("read %v", err)
		}
		if _, ok := transport.ClosedBy(p.all.Err()); ok {
			t.Errorf("%v passes for the peer's Close", p.all.Err())
		}
	})
}

// TestLongReason: a reason arrives cut to what the protocol holds, in whole characters.
func TestLongReason(t *testing.T) {
	onLine(t, 1e6, time.Millisecond, 0, func(t *testing.T, a, b *Conn) {
		a.Close(1, strings.Repeat("é", transport.MaxReason))
		<-b.Context().Done()
		closed, ok := transport.ClosedBy(b.Err())
		if !ok || closed.Reason != strings.Repeat("é", transport.MaxReason/2) {
			t.Errorf("the peer hears %v", b.Err())
		}
	})
}

// FuzzFrames feeds a connection with what a peer may send: it never panics, and keeps to its bounds.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{}, false)
	f.Add(append(frame(kindData, 1, 'x'), frame(kindEnd, 1)...), false)
	f.Add(append(number(kindReset, 1, 1), number(kindStop, 1, 2)...), false)
	f.Add(append(number(kindWindow, 0, 1<<40), number(kindWindow, 1, 1<<63)...), true)
	f.Add(append(frame(kindPing, 0), frame(kindClose, 0, make([]byte, 10)...)...), true)
	f.Add(frame(kindPong, 0, make([]byte, pongBytes)...), true)
	f.Add(frame(kindFault, 0, 'w', 'h', 'y'), true)
	f.Add(repeat(300, func(i int) []byte { return frame(kindEnd, uint32(2*i+1)) }), false)
	f.Fuzz(func(t *testing.T, line []byte, dialer bool) {
		conn, _ := net.Pipe()
		c := newConn(conn, Config{Dialer: dialer})
		s := newStream(c, true)
		c.outgoing++
		s.buffer.push([]byte("hello"))
		c.offer(s)
		c.fill(nil, time.Now())
		r := bytes.NewReader(append([]byte(preface), line...))
		for range 2 { // once more after what the writer does has changed the streams
			err := c.readAll(r)
			if err == nil || errors.Is(err, errFault) {
				break
			}
			for range 20 {
				if len(c.fill(nil, time.Now())) == 0 {
					break
				}
			}
			r = bytes.NewReader(append([]byte(preface), line...))
		}
		bytes := 0
		for _, s := range c.streams {
			bytes += s.in.bytes
		}
		if bytes > maxConnWindow || c.in.limit > c.in.read+maxConnWindow || c.incoming > maxStreams || len(c.streams) > 2*maxStreams ||
			len(c.accepts) > maxStreams || len(c.pings.waiting) > maxPings+1 {
			t.Errorf("%d bytes, %d and %d streams, %d to accept, %d PINGs", bytes, c.incoming, len(c.streams), len(c.accepts), len(c.pings.waiting))
		}
		if c.linger != nil {
			c.linger.Stop()
		}
	})
}
