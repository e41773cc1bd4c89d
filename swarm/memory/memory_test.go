package memory

import (
	"bytes"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go"

	"pnode/swarm/transport"
)

const latency = 10 * time.Millisecond

// line joins two ends, whose paths lose what cut says: from a to b, and back.
type line struct {
	a, b *Conn
	cut  [2]atomic.Bool
}

func newLine(t *testing.T, bitsPerS int) *line {
	l := &line{}
	path := func(i int) Path {
		return Path{
			Latency: func() time.Duration { return latency }, Lost: l.cut[i].Load,
			Up: NewRate(bitsPerS), Down: NewRate(bitsPerS),
		}
	}
	l.a, l.b = Pair(End{Out: path(0)}, End{Out: path(1)})
	t.Cleanup(func() {
		l.a.Close(0, "")
		l.b.Close(0, "")
	})
	return l
}

// stream opens a stream from a to b with one byte.
func (l *line) stream(t *testing.T) (near, far transport.Stream) {
	t.Helper()
	near, err := l.a.OpenStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := near.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if far, err = l.b.AcceptStream(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := far.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return near, far
}

// Bytes take the latency and their turn on the line.
func TestTimeOnTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, 8_000_000)
		near, far := l.stream(t)
		began := time.Now()
		message := bytes.Repeat([]byte("byte"), 250_000)
		go func() {
			near.Write(message)
			near.Close()
		}()
		got, err := io.ReadAll(far)
		if err != nil || !bytes.Equal(got, message) {
			t.Fatalf("%d bytes came, %v", len(got), err)
		}
		if took := time.Since(began); took < time.Second+latency || took > time.Second+2*latency {
			t.Errorf("1 MB took %v on a line of 1 MB/s", took)
		}
		if s := l.a.Stats(); s.MinRTT != 2*latency || s.LatestRTT < s.MinRTT || s.BytesSent < 1_000_000 || l.b.Stats().BytesReceived != s.BytesSent {
			t.Errorf("%+v, and %+v", s, l.b.Stats())
		}
	})
}

// What is lost comes once the line is back; both ends live if that is soon.
func TestLostBytesAreSentAgain(t *testing.T) {
	for _, cut := range [][]int{{0}, {1}, {0, 1}} {
		synctest.Test(t, func(t *testing.T) {
			l := newLine(t, 20_000_000)
			near, far := l.stream(t)
			for _, i := range cut {
				l.cut[i].Store(true)
			}
			began := time.Now()
			message := bytes.Repeat([]byte("byte"), 500_000) // more than goes without acknowledgements
			go func() {
				near.Write(message)
				near.Close()
			}()
			time.Sleep(12 * time.Second)
			l.cut[0].Store(false)
			l.cut[1].Store(false)
			got, err := io.ReadAll(far)
			if err != nil || !bytes.Equal(got, message) {
				t.Fatalf("%v is cut: %d bytes came, %v", cut, len(got), err)
			}
			if took := time.Since(began); took < 12*time.Second || took > 25*time.Second {
				t.Errorf("%v is cut: the message came after %v", cut, took)
			}
			if l.a.Err() != nil || l.b.Err() != nil {
				t.Errorf("%v is cut: ended with %v, %v", cut, l.a.Err(), l.b.Err())
			}
		})
	}
}

// An end that hears nothing ends in silence after half a minute, the other one by what it sends then.
func TestSilenceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, 20_000_000)
		began := time.Now()
		l.cut[0].Store(true)
		<-l.b.Context().Done()
		if took := time.Since(began); took < idleTime || took > idleTime+heardEvery || !errors.As(l.b.Err(), new(*quic.IdleTimeoutError)) {
			t.Errorf("the deaf end ends after %v with %v", took, l.b.Err())
		}
		if l.a.Err() != nil {
			t.Fatalf("the other one ends with %v before it can know", l.a.Err())
		}
		l.cut[0].Store(false)
		<-l.a.Context().Done()
		if !errors.As(l.a.Err(), new(*quic.StatelessResetError)) {
			t.Errorf("the other one ends with %v", l.a.Err())
		}
	})
}

// An end that did not hear that the peer has closed learns so from what it sends.
func TestClosedUnheard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, 20_000_000)
		near, _ := l.stream(t)
		l.cut[1].Store(true)
		l.b.Close(7, "gone")
		time.Sleep(time.Second)
		if l.a.Err() != nil {
			t.Fatalf("told of it over a line that is cut: %v", l.a.Err())
		}
		l.cut[1].Store(false)
		began := time.Now()
		near.Write([]byte("there?"))
		<-l.a.Context().Done()
		if took := time.Since(began); took > 3*latency || !errors.As(l.a.Err(), new(*quic.StatelessResetError)) {
			t.Errorf("ended after %v with %v", took, l.a.Err())
		}
	})
}
