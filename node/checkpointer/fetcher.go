package checkpointer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/checkpoint"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
	"pnode/swarm/neterr"
)

// Fetcher brings chunks into the store from the nodes that have them.
type Fetcher struct {
	Self  plan.PeerID
	Store *checkpoint.Store
	// Fetch asks one peer and stores what comes; it is a method of link.Endpoint.
	Fetch func(ctx context.Context, peer plan.PeerID, hashes []plan.Hash, store func(plan.Hash, []byte) error) error
	// Living returns the peers that may be asked.
	Living func() []plan.PeerID
	// Busy reports whether a peer that gave this error may well have what it was asked for, and give it soon. nil says that of none.
	Busy func(error) bool
	// Silent reports whether nothing has come from a peer lately: others are asked before, since asking it may cost a timeout. nil
	// says that of nobody.
	Silent func(plan.PeerID) bool

	put func(plan.Hash, []byte) error // stores a chunk; nil is the store's PutNamed
}

// ErrNoChunks says that no node of the run has what is needed.
var ErrNoChunks = errors.New("chunks are lacking here and cannot be had from any node that is up; start a node that holds a copy")

const (
	// fetchBatch chunks are asked for at a time, so that another peer can take over early.
	fetchBatch = 16
	// awaitEvery is the time between two tries of Await, or of who was busy.
	awaitEvery = time.Second
	// busyPatience bounds how long peers that are busy are asked again.
	busyPatience = 30 * time.Second
)

// Ensure returns when every chunk is here, asking the likeliest peers first, and those that are busy again for some time. The error wraps
// ErrNoChunks when some cannot be had, unless this node lacks files, memory or room on its disk to get or store them.
func (f Fetcher) Ensure(ctx context.Context, hashes []plan.Hash, holders []plan.PeerID) error {
	here := &storing{put: f.put}
	if here.put == nil {
		here.put = f.Store.PutNamed
	}
	missing, end := f.Missing(hashes), time.Now().Add(busyPatience)
	for {
		var failures []error
		for _, peer := range f.order(holders) {
			for len(missing) > 0 {
				err := f.Fetch(ctx, peer, missing[:min(len(missing), fetchBatch)], here.store)
				if err := cmp.Or(ctx.Err(), here.err()); err != nil {
					return err
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
		switch exhausted := slices.IndexFunc(failures, neterr.Exhausted); {
		case len(missing) == 0:
			return nil
		case exhausted >= 0:
			return fmt.Errorf("chunks cannot be fetched: %w", failures[exhausted])
		case f.Busy == nil || !slices.ContainsFunc(failures, f.Busy) || time.Now().After(end):
			lack := fmt.Errorf("%w: %d of %d chunks, first %s", ErrNoChunks, len(missing), len(hashes), missing[0])
			return errors.Join(append([]error{lack}, failures...)...)
		}
		select {
		case <-time.After(awaitEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// storing stores chunks that come from others, possibly from several at once.
type storing struct {
	put func(plan.Hash, []byte) error

	mu      sync.Mutex // guards refused
	refused error      // of put: whoever else is asked, nothing can be stored here
}

func (s *storing) store(h plan.Hash, data []byte) error {
	err := s.put(h, data)
	if err != nil && !errors.Is(err, checkpoint.ErrCorrupt) { // wrong bytes are one source's fault
		s.mu.Lock()
		defer s.mu.Unlock()
		s.refused = err
	}
	return err
}

// err returns why a chunk that came was not stored.
func (s *storing) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// gatherBatch chunks are asked of one of several sources at a time: few, so that a fast source takes over from a slow one.
const gatherBatch = 2

// Gather brings the chunks of layers here from several of their holders at once, each chunk from one of them. Chunks that
// firstBytes of each layer consist of come before the others. put stores a chunk; its error ends the gathering, but for checkpoint.ErrCorrupt. What no
// holder gives is asked of every member. The error wraps ErrNoChunks when some cannot be had.
func (f Fetcher) Gather(ctx context.Context, layers []consensus.LayerRef, firstBytes func(layer int) int64, put func(plan.Hash, []byte) error) error {
	g := gathering{wanted: f.wanted(layers, firstBytes)}
	here := &storing{put: put}
	var sources errgroup.Group
	for _, peer := range g.sources(f.speaking(), f.Self) {
		sources.Go(func() error {
			for batch := g.take(peer); len(batch) > 0 && ctx.Err() == nil; batch = g.take(peer) {
				if err := f.Fetch(ctx, peer, batch, here.store); err != nil {
					return err
				}
			}
			return nil
		})
	}
	_ = sources.Wait() // what a source did not give is asked of others
	if err := cmp.Or(ctx.Err(), here.err()); err != nil {
		return err
	}
	var rest []plan.Hash
	for _, l := range layers {
		rest = append(rest, l.Chunks...)
	}
	f.put = put
	return f.Ensure(ctx, rest, nil)
}

// gathering holds the chunks of some layers that nobody was asked for yet, the most urgent first.
type gathering struct {
	mu     sync.Mutex // guards wanted
	wanted []wantedChunk
}

// wantedChunk is a chunk with the members that have it.
type wantedChunk struct {
	hash    plan.Hash
	holders []plan.PeerID
}

// wanted returns the chunks of layers that are not here, each once.
func (f Fetcher) wanted(layers []consensus.LayerRef, firstBytes func(layer int) int64) []wantedChunk {
	var first, later []wantedChunk
	seen := map[plan.Hash]bool{}
	for _, l := range layers {
		for i, h := range l.Chunks {
			if seen[h] || f.Store.HasChunk(h) {
				continue
			}
			seen[h] = true
			if int64(i)*checkpoint.ChunkBytes < firstBytes(l.Layer) {
				first = append(first, wantedChunk{h, l.Holders})
			} else {
				later = append(later, wantedChunk{h, l.Holders})
			}
		}
	}
	return append(first, later...)
}

// sources returns the living members that have some of it.
func (g *gathering) sources(living []plan.PeerID, self plan.PeerID) []plan.PeerID {
	return slices.DeleteFunc(slices.Clone(living), func(p plan.PeerID) bool {
		return p == self || !slices.ContainsFunc(g.wanted, func(w wantedChunk) bool { return slices.Contains(w.holders, p) })
	})
}

// take returns the next chunks for a member to send, none when it has no more of them.
func (g *gathering) take(from plan.PeerID) (batch []plan.Hash) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wanted = slices.DeleteFunc(g.wanted, func(w wantedChunk) bool {
		goes := len(batch) < gatherBatch && slices.Contains(w.holders, from)
		if goes {
			batch = append(batch, w.hash)
		}
		return goes
	})
	return batch
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

// speaking returns the living peers that are not silent.
func (f Fetcher) speaking() []plan.PeerID {
	living := f.Living()
	if f.Silent == nil {
		return living
	}
	return slices.DeleteFunc(slices.Clone(living), f.Silent)
}

// order returns the living holders, the other living members, those that are silent, then the holders that are gone:
// asking those costs a timeout. This node is left out.
func (f Fetcher) order(holders []plan.PeerID) []plan.PeerID {
	living := f.speaking()
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
	for _, p := range f.Living() {
		if !slices.Contains(first, p) && !slices.Contains(last, p) {
			first = append(first, p)
		}
	}
	return slices.DeleteFunc(append(first, last...), func(p plan.PeerID) bool { return p == f.Self })
}
