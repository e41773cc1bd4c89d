package link

import (
	"context"
	"errors"
	"testing"

	"pnode/planner/plan"
	"pnode/swarm/transport"
)

var errNetwork = errors.New("the network is down")

// brokenNetwork accepts nothing.
type brokenNetwork struct{ Network }

func (brokenNetwork) Self() plan.PeerID { return "self" }

func (brokenNetwork) Accept(context.Context) (transport.Conn, plan.PeerID, error) {
	return nil, "", errNetwork
}

// TestRunReturnsTheNetworksError: also where the context ends while the endpoint shuts down.
func TestRunReturnsTheNetworksError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	e := NewEndpoint(brokenNetwork{}, Options{})
	e.work.Go(func() error { // shutdown ends e.ctx and waits for this
		<-e.ctx.Done()
		cancel()
		return nil
	})
	if err := e.Run(ctx); !errors.Is(err, errNetwork) {
		t.Errorf("got %v", err)
	}
	if err := NewEndpoint(brokenNetwork{}, Options{}).Run(ctx); err != nil {
		t.Errorf("after the context ended: %v", err)
	}
}
