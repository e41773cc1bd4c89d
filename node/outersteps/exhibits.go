package outersteps

import (
	"context"
	"errors"
	"fmt"

	"pnode/pipeline/gather/seals"
	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
)

const protocolExhibit = "/pnode/exhibit/1"

// Question asks what the coordinator of replica By has of the messages of replica Of, in the round after step From.
type Question struct {
	Generation plan.Generation `json:"generation"`
	From       plan.Step       `json:"from"`
	By         plan.Replica    `json:"by"`
	Of         plan.Replica    `json:"of"`
}

// Peers exchanges requests with the members of the run.
type Peers interface {
	// Ask sends request as JSON and returns the answer.
	Ask(ctx context.Context, peer plan.PeerID, protocol string, request any) ([]byte, error)
	// Serve answers the requests of a protocol from now on.
	Serve(protocol string, answer func(ctx context.Context, from plan.PeerID, request []byte) ([]byte, error))
}

// ErrNothing is wrapped by the error of a coordinator that answers, and has not gathered what it is asked for.
var ErrNothing = errors.New("outersteps: nothing to show")

// ServeExhibits shows other members what coordinators here have of the newest round of their replicas.
func (w *Words) ServeExhibits(peers Peers) {
	peers.Serve(protocolExhibit, func(_ context.Context, _ plan.PeerID, request []byte) ([]byte, error) {
		var q Question
		if err := strict.Decode(request, &q); err != nil {
			return nil, fmt.Errorf("outersteps: %w", err)
		}
		e, err := w.Exhibit(q)
		if err != nil {
			return nil, nil // no bytes say so
		}
		return e.Append(nil), nil
	})
}

// Exhibit returns what a coordinator here has to show.
func (w *Words) Exhibit(q Question) (seals.Exhibit, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, said := range w.all {
		if said.Generation == q.Generation && said.From == q.From && said.Replica == q.By && q.Of >= 0 && int(q.Of) < len(said.shown) && len(said.shown[q.Of].Report) > 0 {
			return said.shown[q.Of], nil
		}
	}
	return seals.Exhibit{}, fmt.Errorf("%w: %+v", ErrNothing, q)
}

// Asker returns what has a member show what its coordinator has, or this node, which is self.
func (w *Words) Asker(peers Peers, self plan.PeerID) func(ctx context.Context, peer plan.PeerID, q Question) (seals.Exhibit, error) {
	return func(ctx context.Context, peer plan.PeerID, q Question) (seals.Exhibit, error) {
		if peer == self {
			return w.Exhibit(q)
		}
		answer, err := peers.Ask(ctx, peer, protocolExhibit, q)
		switch {
		case err != nil:
			return seals.Exhibit{}, err
		case len(answer) == 0:
			return seals.Exhibit{}, fmt.Errorf("%w: %+v", ErrNothing, q)
		}
		e, err := seals.Decode(answer)
		if err != nil {
			return e, fmt.Errorf("%w: %w", ErrNothing, err)
		}
		return e, nil
	}
}
