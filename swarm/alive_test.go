package swarm

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
)

// connOf returns the control connection of a to b, nil for none.
func connOf(a, b *Swarm) network.Conn {
	id, err := peer.Decode(string(b.ID()))
	if err != nil {
		panic(err)
	}
	if conns := a.host.Network().ConnsToPeer(id); len(conns) > 0 {
		return conns[0]
	}
	return nil
}

// A control connection over which nothing comes any more is replaced where a new one works, long before it is idle for
// too long, and stays where nothing works.
func TestDeadControlConnection(t *testing.T) {
	for name, c := range map[string]struct {
		drops func(first byte) bool
		kept  bool
	}{
		"of packets of established connections": {func(first byte) bool { return first&0x80 == 0 }, false},
		"of all packets":                        {func(byte) bool { return true }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newVirtualNet(t)
				var down atomic.Bool
				n.drops = func(first byte) bool { return down.Load() && c.drops(first) }
				all := n.cluster(t, 2)
				serveEcho(all[1])
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				for _, s := range all {
					waitMembers(t, ctx, s, 1)
				}
				time.Sleep(10 * time.Second)
				before := connOf(all[0], all[1])
				down.Store(true)
				time.Sleep(12 * time.Second)
				if kept := !before.IsClosed(); kept != c.kept {
					t.Errorf("12 s after the loss the connection is open: %v, want %v", kept, c.kept)
				}
				down.Store(false)
				time.Sleep(5 * time.Second)
				for _, s := range all {
					waitMembers(t, ctx, s, 1)
				}
				call(t, ctx, all[0], all[1])
			})
		})
	}
}
