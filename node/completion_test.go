package node

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"pnode/node/config"
	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm"
	"pnode/swarm/admission"
)

// TestAFinishedNodeTellsWhoComesBack: a node of a finished run that is started again tells one
// that looks for the run.
func TestAFinishedNodeTellsWhoComesBack(t *testing.T) {
	const run = plan.RunID("run")
	owner, err := admission.CreateOwner(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	seatIn := func(dir string) (admission.Identity, membership) {
		identity, err := admission.LoadIdentity(dir)
		if err != nil {
			t.Fatal(err)
		}
		capability, err := owner.Capability(run, identity, time.Hour, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return identity, membership{Run: run, OwnerKey: owner.PublicKey(), Capability: capability}
	}
	identity, seat := seatIn(t.TempDir())
	back, err := swarm.New(t.Context(), swarm.Config{
		Identity: identity, Run: run, OwnerKey: seat.OwnerKey, Capability: seat.Capability, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	waiting := gossip.NewTracker()
	if err := waiting.Listen(back.Topics(), nil); err != nil {
		t.Fatal(err)
	}
	finished := config.Config{Dir: t.TempDir()}
	teller, seat := seatIn(finished.Dir)
	ctx, heard := context.WithCancel(t.Context())
	told := make(chan plan.Step, 1)
	words := func() endWords {
		return endWords{Said: waiting.Finished(), Owner: func(p plan.PeerID) bool {
			c, ok := back.Capability(p)
			return p == teller.Peer() && ok && c.Role == admission.RoleOwner
		}}
	}
	go func() {
		defer heard() // enough is said
		told <- awaitFinished(t.Context(), words, func(endWords) {})
	}()

	seat.Known, seat.Finished = back.Addrs(), 40
	for ctx.Err() == nil { // each time it tells for a while, which a busy machine may miss
		announceCompletion(ctx, finished, seat, Output{Log: slog.New(slog.DiscardHandler)})
	}
	if step := <-told; step != 40 {
		t.Errorf("the run was finished at step %d, want 40", step)
	}
}
