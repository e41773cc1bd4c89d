package node

import (
	"context"
	"log/slog"
	"time"

	"pnode/node/config"
	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm"
	"pnode/swarm/admission"
	"pnode/swarm/alpn"
	"pnode/swarm/topics"
)

// epilogueTime bounds how long a node of a finished run looks for others that do not know it yet,
// and then how long it tells them.
const epilogueTime = 2 * time.Second

// epilogue tells those who still look for a run that it is finished: a node that was away at the
// end comes back to nobody. Where no other node runs it takes no time.
func epilogue(ctx context.Context, cfg config.Config, seat membership, log *slog.Logger) {
	if len(seat.Known) == 0 || alpn.NobodyListens(ctx, seat.Known...) {
		return
	}
	if err := tellFinished(ctx, cfg, seat, log); err != nil {
		log.Info("nobody to tell that the run is finished", "cause", err)
	}
}

func tellFinished(ctx context.Context, cfg config.Config, seat membership, log *slog.Logger) error {
	identity, err := admission.LoadIdentity(cfg.Dir)
	if err != nil {
		return err
	}
	s, err := swarm.New(ctx, swarm.Config{
		Identity: identity, Run: seat.Run, OwnerKey: seat.OwnerKey, Capability: seat.Capability, Logger: log,
	})
	if err != nil {
		return err
	}
	defer s.Close()
	reaching, cancel := context.WithTimeout(ctx, epilogueTime)
	defer cancel()
	if err := s.Connect(reaching, seat.Known...); err != nil {
		return err
	}
	return sayFinished(ctx, s, seat.Finished)
}

// sayFinished repeats a heartbeat: the other end listens to it a moment after the connection.
func sayFinished(ctx context.Context, s *swarm.Swarm, step plan.Step) error {
	said := gossip.Heartbeat{Peer: s.ID(), Phase: Stopped.String(), Finished: step}.Encode()
	tick := time.NewTicker(gossip.Every / 4)
	defer tick.Stop()
	for end := time.Now().Add(epilogueTime); time.Now().Before(end); {
		if err := s.Topics().Publish(ctx, topics.Events, said); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
