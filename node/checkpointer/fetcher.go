package checkpointer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"pnode/checkpoint"
	"pnode/planner/plan"
)

// Fetcher brings chunks into the store from the nodes that have them.
type Fetcher struct {
	Self  plan.PeerID
	Store *checkpoint.Store
	// Fetch asks one peer and stores what comes; it is a method of link.Endpoint.
	Fetch func(ctx context.Context, peer plan.PeerID, hashes []plan.Hash, store func(plan.Hash, []byte) error) error
	// Living returns the peers that may be asked.
	Living func() []plan.PeerID
}

// ErrNoChunks says that no node of the run has what is needed.
var ErrNoChunks = errors.New("chunks are damaged or missing here and cannot be had from any node that is up; start a node that holds a copy")

const (
	// fetchBatch chunks are asked for at a time, so that another peer can take over early.
	fetchBatch = 16
	// awaitEvery is the time between two tries of Await.
	awaitEvery = time.Second
)

// Ensure returns when every chunk is here, asking the likeliest peers first. The error wraps
// ErrNoChunks when some cannot be had.
func (f Fetcher) Ensure(ctx context.Context, hashes []plan.Hash, holders []plan.PeerID) error {
	missing := f.Missing(hashes)
	var failures []error
	for _, peer := range f.order(holders) {
		for len(missing) > 0 {
			err := f.Fetch(ctx, peer, missing[:min(len(missing), fetchBatch)], f.Store.PutNamed)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			left := f.Missing(missing)
			if err == nil && len(left) == len(missing) {
				err = errors.New("sent nothing")
			}
			missing = left
			if err != nil {
				failures = append(failures, fmt.Errorf("%s: %w", peer, err))
				break
			}
		}
	}
	if len(missing) > 0 {
		lack := fmt.Errorf("%w: %d of %d chunks, first %s", ErrNoChunks, len(missing), len(hashes), missing[0])
		return errors.Join(append([]error{lack}, failures...)...)
	}
	return nil
}

// Await is Ensure for as long as some peer may have the chunks, and no longer than patience. A
// peer that is busy or has just come may be of no help at first.
func (f Fetcher) Await(ctx context.Context, hashes []plan.Hash, patience time.Duration) error {
	end := time.Now().Add(patience)
	for {
		err := f.Ensure(ctx, hashes, nil)
		if !errors.Is(err, ErrNoChunks) || len(f.order(nil)) == 0 || time.Now().After(end) {
			return err
		}
		select {
		case <-time.After(awaitEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Missing returns the distinct chunks that are not here.
func (f Fetcher) Missing(hashes []plan.Hash) []plan.Hash {
	var missing []plan.Hash
	seen := map[plan.Hash]bool{}
	for _, h := range hashes {
		if !seen[h] && !f.Store.HasChunk(h) {
			missing = append(missing, h)
		}
		seen[h] = true
	}
	return missing
}

// order returns the living holders, the other living members, then the holders that are gone:
// asking those costs a timeout. This node is left out.
func (f Fetcher) order(holders []plan.PeerID) []plan.PeerID {
	living := f.Living()
	var first, last []plan.PeerID
	for _, p := range holders {
		if slices.Contains(living, p) {
			first = append(first, p)
		} else {
			last = append(last, p)
		}
	}
	for _, p := range living {
		if !slices.Contains(holders, p) {
			first = append(first, p)
		}
	}
	return slices.DeleteFunc(append(first, last...), func(p plan.PeerID) bool { return p == f.Self })
}
