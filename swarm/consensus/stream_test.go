package consensus

import (
	"errors"
	"net"
	"testing"
)

// deadStream is a stream to a peer that died: it cannot be closed in order, only reset.
type deadStream struct {
	Stream
	t     *testing.T
	reset bool
}

func (s *deadStream) Close() error {
	s.t.Error("a dead peer is waited for")
	return nil
}

func (s *deadStream) Reset() error {
	s.reset = true
	return nil
}

func TestLayerClosesWithoutItsPeers(t *testing.T) {
	l, s := newStreamLayer(nil, "", nil, newTiming()), &deadStream{t: t}
	if _, err := l.track(s, "b", &proof{}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil || !s.reset {
		t.Errorf("closed with %v, the stream reset: %v", err, s.reset)
	}
}

// A stream that opens while the layer closes is reset as well, and whoever holds the layer does not wait for its peer.
func TestClosedLayerTakesNoStream(t *testing.T) {
	l, s := newStreamLayer(nil, "", nil, newTiming()), &deadStream{t: t}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.track(s, "b", nil); !errors.Is(err, net.ErrClosed) || !s.reset {
		t.Errorf("taken with %v, the stream reset: %v", err, s.reset)
	}
}
