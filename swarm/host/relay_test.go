package host

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/time/rate"
)

// A member that sends on many circuits gets no more of the rate than one that sends on one.
func TestMembersTakeTurnsInCircuits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		p := newPace(ctx, rate.NewLimiter(circuitsBytesPerS, circuitsBurst))
		sent := map[peer.ID]*int{"many": new(int), "one": new(int)}
		send := func(from peer.ID) {
			for p.wait(from, circuitBuffer) == nil {
				p.mu.Lock()
				*sent[from] += circuitBuffer
				p.mu.Unlock()
			}
		}
		for range circuitsPerPeer {
			go send("many")
		}
		go send("one")
		<-ctx.Done()
		synctest.Wait()
		many, one := *sent["many"], *sent["one"]
		if all := many + one; all < 55*circuitsBytesPerS || all > 65*circuitsBytesPerS {
			t.Errorf("%d bytes in a minute, want %d a second", all, circuitsBytesPerS)
		}
		if many > one*11/10 || one > many*11/10 {
			t.Errorf("%d bytes on many circuits, %d on one", many, one)
		}
		if len(p.turns) > 0 {
			t.Errorf("%d turns are left", len(p.turns))
		}
	})
}
