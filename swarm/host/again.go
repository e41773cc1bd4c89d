package host

import (
	"context"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"

	"pnode/planner/plan"
	"pnode/swarm/neterr"
)

const (
	// restartTime is how long a machine that says that nobody listens is asked again.
	restartTime = 8 * time.Second
	// The pauses between two tries.
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
)

// ConnectAgain connects to a peer by dial, and calls it again for 8 s while the peer's machine says that nobody listens:
// a node that is being started again has closed its port for a moment. libp2p's own pause of 5 s before it dials an
// address again is left out. The context of the later calls ends with the 8 s. The error of the last one wraps dial's.
func ConnectAgain(ctx context.Context, n network.Network, p peer.ID, dial func(context.Context) error) error {
	err := dial(ctx)
	if !neterr.Refused(err) {
		return err
	}
	began := time.Now()
	again, cancel := context.WithTimeout(ctx, restartTime)
	defer cancel()
	for pause := firstPause; neterr.Refused(err); pause = min(2*pause, longestPause) {
		select {
		case <-time.After(pause):
		case <-again.Done():
			return fmt.Errorf("nobody listens there, asked again for %s: %w", plan.Duration(time.Since(began).Round(time.Second)), err)
		}
		if s, ok := n.(*swarm.Swarm); ok {
			s.Backoff().Clear(p)
		}
		if next := dial(again); next == nil || again.Err() == nil {
			err = next
		}
	}
	return err
}
