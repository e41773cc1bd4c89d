package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"pnode/swarm/alpn"
)

const (
	// desertedAfter is how long the machines of all others must say that no node runs there
	// before one that comes back waits no longer: time enough to start them all by hand.
	desertedAfter = 2 * time.Minute
	// desertedEvery is the time between two such questions.
	desertedEvery = 5 * time.Second
)

// errDeserted: nobody is there to come back to, and the machines say so.
var errDeserted = errors.New("node: the other nodes do not run")

// awaitDeserted waits until the others' addresses have been deserted for desertedAfter, and
// tells whether that came before the end of ctx.
func awaitDeserted(ctx context.Context, deserted func(context.Context) bool) bool {
	tick := time.NewTicker(desertedEvery)
	defer tick.Stop()
	var since time.Time
	for {
		switch now := time.Now(); {
		case !deserted(ctx):
			since = time.Time{}
		case since.IsZero():
			since = now
		case now.Sub(since) >= desertedAfter:
			return true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

// deserted tells whether this node comes back to a run of which no other node runs.
func (n *Node) deserted(ctx context.Context) bool {
	return len(n.trying) > 0 && len(n.contacts()) == 0 && alpn.NobodyListens(ctx, n.trying...)
}

// desertedError says what to do where nobody is there any more.
func (n *Node) desertedError() error {
	tried := n.trying[:min(len(n.trying), 3)]
	return fmt.Errorf("%w: %w: the machines at %s have said so for %.0f minutes. If they finished run %s without this node it is over, and `pnode export` in one of their folders gives the model; else start them again (`pnode train --resume` or `pnode join`), and then this one",
		ErrUnreachable, errDeserted, strings.Join(tried, ", "), desertedAfter.Minutes(), n.seat.Run)
}
