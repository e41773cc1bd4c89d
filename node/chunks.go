package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"pnode/checkpoint"
	"pnode/planner/plan"
)

// chunkFetcher brings chunks into the store from the nodes that have them.
type chunkFetcher struct {
	self  plan.PeerID
	store *checkpoint.Store
	// fetch asks one peer; link.Endpoint.Fetch.
	fetch func(ctx context.Context, peer plan.PeerID, hashes []plan.Hash, store func(plan.Hash, []byte) error) error
	// living are the members of the run that are not gone.
	living func() []plan.PeerID
}

// errNoChunks says that no node of the run has what is needed.
var errNoChunks = errors.New("chunks are damaged or missing here and cannot be had from any node that is up; start a node that holds a copy")

const (
	// textPatience is how long a node waits for others to give it the run's text.
	textPatience = time.Minute
	awaitEvery   = time.Second
)

// fetchBatch chunks are asked for at a time, so that another peer can take over early.
const fetchBatch = 16

// ensure makes every chunk present here, asking the likeliest first.
func (f chunkFetcher) ensure(ctx context.Context, hashes []plan.Hash, holders []plan.PeerID) error {
	missing := f.missing(hashes)
	var failures []error
	for _, peer := range f.order(holders) {
		for len(missing) > 0 {
			err := f.fetch(ctx, peer, missing[:min(len(missing), fetchBatch)], f.store.PutNamed)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			left := f.missing(missing)
			if err != nil || len(left) == len(missing) {
				failures = append(failures, fmt.Errorf("%s: %w", peer, orNothing(err)))
				missing = left
				break
			}
			missing = left
		}
	}
	if len(missing) > 0 {
		what := fmt.Errorf("%w: %d of %d chunks, first %s", errNoChunks, len(missing), len(hashes), missing[0])
		return errors.Join(append([]error{what}, failures...)...)
	}
	return nil
}

// await is ensure for as long as somebody is there who may have the chunks: one who is busy or
// has just come may be of no help at first.
func (f chunkFetcher) await(ctx context.Context, hashes []plan.Hash, patience time.Duration) error {
	end := time.Now().Add(patience)
	for {
		err := f.ensure(ctx, hashes, nil)
		if !errors.Is(err, errNoChunks) || len(f.order(nil)) == 0 || time.Now().After(end) {
			return err
		}
		select {
		case <-time.After(awaitEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func orNothing(err error) error {
	if err == nil {
		return errors.New("sent nothing")
	}
	return err
}

// missing are the distinct chunks that are not here.
func (f chunkFetcher) missing(hashes []plan.Hash) []plan.Hash {
	var missing []plan.Hash
	seen := map[plan.Hash]bool{}
	for _, h := range hashes {
		if !seen[h] && !f.store.HasChunk(h) {
			missing = append(missing, h)
		}
		seen[h] = true
	}
	return missing
}

// order lists living holders, then the other living members, then holders that are gone:
// asking those costs a timeout. This node is left out.
func (f chunkFetcher) order(holders []plan.PeerID) []plan.PeerID {
	living := f.living()
	holds, lives := set(holders), set(living)
	var first, last []plan.PeerID
	for _, p := range holders {
		if lives[p] {
			first = append(first, p)
		} else {
			last = append(last, p)
		}
	}
	for _, p := range living {
		if !holds[p] {
			first = append(first, p)
		}
	}
	return slices.DeleteFunc(append(first, last...), func(p plan.PeerID) bool { return p == f.self })
}

func set(peers []plan.PeerID) map[plan.PeerID]bool {
	in := map[plan.PeerID]bool{}
	for _, p := range peers {
		in[p] = true
	}
	return in
}
