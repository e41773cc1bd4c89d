package swarm

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// late is a socket whose packets leave it later.
type late struct {
	net.PacketConn
	delay   time.Duration
	packets *atomic.Int64
	sending *sync.WaitGroup
}

func (l late) WriteTo(b []byte, to net.Addr) (int, error) {
	l.packets.Add(1)
	data := append([]byte(nil), b...)
	l.sending.Add(1)
	time.AfterFunc(l.delay, func() {
		defer l.sending.Done()
		_, _ = l.PacketConn.WriteTo(data, to) // a closed socket loses it
	})
	return len(b), nil
}

// TestSocketIsWrapped: everything that members say to each other goes through the wrapped
// sockets, which the link probe sees, and nothing over TCP.
func TestSocketIsWrapped(t *testing.T) {
	t.Parallel()
	const delay = 30 * time.Millisecond
	for _, listen := range []string{"127.0.0.1:0", "0.0.0.0:0"} { // opened by libp2p, and here
		t.Run(listen, func(t *testing.T) {
			t.Parallel()
			var packets atomic.Int64
			var sending sync.WaitGroup
			t.Cleanup(sending.Wait)
			o := testOwner(t)
			member := func() Config {
				cfg := testMember(t, o, testRun)
				cfg.Listen = []string{listen}
				cfg.Socket = func(c net.PacketConn) net.PacketConn { return late{c, delay, &packets, &sending} }
				return cfg
			}
			a := start(t, member())
			second := member()
			second.Bootstrap = a.Addrs()
			b := start(t, second)
			ctx := testContext(t)
			if err := b.Connect(ctx, a.Addrs()...); err != nil {
				t.Fatal(err)
			}
			p, err := b.Probe(ctx, a.ID())
			if err != nil {
				t.Fatal(err)
			}
			if rtt := time.Duration(p.RTTNanos); rtt < 2*delay {
				t.Errorf("a round trip of %v: faster than its two ways of %v", rtt, delay)
			}
			if packets.Load() == 0 {
				t.Error("no packet went through the wrapped sockets")
			}
			for _, addr := range append(a.Addrs(), b.Addrs()...) {
				if strings.Contains(addr, "/tcp/") {
					t.Errorf("listens on TCP: %s", addr)
				}
			}
		})
	}
}
