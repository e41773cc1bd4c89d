package node

import (
	"context"
	"log/slog"
	"time"

	"pnode/node/generation"
	"pnode/node/leader"
	"pnode/node/notice"
	"pnode/swarm/consensus"
)

const (
	// farewellTimeout bounds giving the vote away: a node that could take it may be silent, for
	// leader.UnreachableAfter until it counts as gone.
	farewellTimeout = 2 * leader.UnreachableAfter
	// leastFarewell is for how long a node tries to give its vote away even when its time is over.
	leastFarewell = time.Second
	// readyTimeout bounds telling the platform that this node is ready to go.
	readyTimeout = 2 * time.Second
)

// farewell gives the vote of a node away that is done with its part, on a goroutine of its own: until then the loop follows the run,
// whose other members may be asked to leave as well.
type farewell struct {
	cancel context.CancelFunc
	done   chan error // gets the result; nil while the vote is not given away
}

// begin has the vote given away, unless that is under way.
func (f *farewell) begin(ctx context.Context, n *Node, patience time.Duration) {
	if f.done != nil {
		return
	}
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(ctx, patience)
	f.cancel, f.done = cancel, done
	n.group.Go(func() error {
		defer cancel()
		done <- n.raft.Leave(ctx)
		return nil
	})
}

// withdraw keeps the vote, and reports whether it was given away before.
func (f *farewell) withdraw() (given bool) {
	if f.done == nil {
		return false
	}
	f.cancel()
	given = <-f.done == nil
	f.done = nil
	return given
}

// patience returns for how long a node tries to give its vote away.
func (e *exit) patience(now time.Time) time.Duration {
	if e.notice.At.IsZero() {
		return farewellTimeout
	}
	return min(farewellTimeout, max(leastFarewell, e.notice.At.Sub(now)-e.parting/2))
}

// followFarewell gives the vote away of a node that has left, while somebody is there to take it. Where all others leave, too, the run
// stops: they need this node's vote for that, and nobody gets it.
func (l *loop) followFarewell(ctx context.Context, state consensus.State) {
	switch now := time.Now(); {
	case !l.exit.left || l.exit.over:
	case continues(state, l.self):
		l.stopGeneration(generation.ErrReplaced)
		l.farewell.begin(ctx, l.Node, l.exit.patience(now))
	case l.farewell.withdraw():
		l.exit.gave(nil)
	default:
		l.exit.left, l.exit.lost, l.exit.moved = false, nil, now
	}
}

// sayReady tells the platform that it need not wait for this node any more, where it does.
func sayReady(ctx context.Context, why notice.Notice, log *slog.Logger) {
	if why.Ready == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := why.Ready(ctx); err != nil { // it takes the machine away later, that is all
		log.Info("the platform was not told that this node is ready to go", "cause", err)
	}
}
