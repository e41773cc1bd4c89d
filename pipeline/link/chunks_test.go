package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

func hashes(n int) []plan.Hash {
	var all []plan.Hash
	for i := range n {
		all = append(all, plan.Hash{byte(i), byte(i >> 8), 7})
	}
	return all
}

// library answers with bytes that depend on the hash; of every tenth chunk it has none.
func library(size int) ChunkFunc {
	return func(h plan.Hash) ([]byte, error) {
		if h[0]%10 == 9 {
			return nil, errors.New("not here")
		}
		return payload(size, int(h[0]), int(h[1])), nil
	}
}

func TestFetchOverLoopback(t *testing.T) {
	c := loopback(t, 2, Options{PeerTimeout: time.Minute})
	for i, e := range c.endpoints { // whoever asks dials, whatever the order of the IDs
		c.endpoints[1-i].ServeChunks(library(wire.MaxChunkBytes))
		want := hashes(2)
		var got []plan.Hash
		err := e.Fetch(within(t, time.Minute), c.ids[1-i], want, func(h plan.Hash, b []byte) error {
			got = append(got, h)
			if !bytes.Equal(b, payload(wire.MaxChunkBytes, int(h[0]), int(h[1]))) {
				return fmt.Errorf("chunk %v differs", h)
			}
			return nil
		})
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("fetched %v, %v", got, err)
		}
	}
}

func TestFetchPassesOverMissingChunks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{Delay: time.Millisecond}, Options{})
		defer c.close()
		c.endpoints[1].ServeChunks(library(100))
		got := 0
		err := c.endpoints[0].Fetch(t.Context(), c.ids[1], hashes(600), func(h plan.Hash, b []byte) error {
			got++
			return nil
		})
		// Of 0..599 the low bytes 9, 19 .. 249 are missing: 25 in each full 256, and of
		// the last 88 (low bytes 0..87) those up to 79.
		if want := 600 - 2*25 - 8; !errors.Is(err, ErrMissing) || got != want {
			t.Fatalf("got %d chunks, want %d, and %v", got, want, err)
		}
	})
}

func TestFetchEndsWithTheStoresError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{}, Options{ChunkStreams: 2})
		defer c.close()
		c.endpoints[1].ServeChunks(library(200_000))
		full := errors.New("disk full")
		for range 10 { // streams that end early must not use up the limit
			if err := c.endpoints[0].Fetch(t.Context(), c.ids[1], hashes(5), func(plan.Hash, []byte) error { return full }); !errors.Is(err, full) {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
	})
}

func TestFetchRefusals(t *testing.T) {
	store := func(plan.Hash, []byte) error { return nil }
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{Delay: time.Millisecond}, Options{ChunkTimeout: 3 * time.Second})
		defer c.close()
		fetch := func() error { return c.endpoints[0].Fetch(t.Context(), c.ids[1], hashes(1), store) }
		if err := fetch(); !errors.Is(err, ErrBusy) {
			t.Errorf("from a peer that does not serve: %v", err)
		}
		c.endpoints[1].ServeChunks(func(plan.Hash) ([]byte, error) { return make([]byte, wire.MaxChunkBytes+1), nil })
		if err := fetch(); !errors.Is(err, ErrMissing) {
			t.Errorf("a chunk that is too large: %v", err)
		}
		c.endpoints[1].ServeChunks(func(plan.Hash) ([]byte, error) { return nil, fmt.Errorf("%w: too many open files", ErrBusy) })
		if err := fetch(); !errors.Is(err, ErrBusy) || errors.Is(err, ErrMissing) {
			t.Errorf("from a peer that can open no more files: %v", err)
		}
		slow := make(chan struct{})
		c.endpoints[1].ServeChunks(func(plan.Hash) ([]byte, error) { <-slow; return nil, nil })
		begin := time.Now()
		if err := fetch(); err == nil || time.Since(begin) > 5*time.Second {
			t.Errorf("from a peer that stands still: %v after %v", err, time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.endpoints[0].Fetch(ctx, c.ids[1], hashes(1), store); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("under a deadline: %v", err)
		}
		close(slow)
		if err := c.endpoints[0].Fetch(t.Context(), "nobody", hashes(1), store); !errors.Is(err, ErrStranger) {
			t.Errorf("from a stranger: %v", err)
		}
	})
}

func TestChunkStreamsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{}, Options{ChunkStreams: 4})
		defer c.close()
		var now, most atomic.Int64
		c.endpoints[1].ServeChunks(func(plan.Hash) ([]byte, error) {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Second)
			now.Add(-1)
			return []byte("chunk"), nil
		})
		var work errgroup.Group
		for range 20 {
			work.Go(func() error {
				return c.endpoints[0].Fetch(t.Context(), c.ids[1], hashes(1), func(plan.Hash, []byte) error { return nil })
			})
		}
		if err := work.Wait(); err != nil || most.Load() != 2 {
			t.Errorf("%d requests at once, want 2: %v", most.Load(), err)
		}
		conn := intruder(t, c, 0, 1)
		request := wire.AppendChunkRequest(wire.AppendOpen(nil, wire.Open{Class: wire.Chunks, From: c.endpoints[0].epoch}), hashes(1))
		for range 6 {
			write(t, conn, request).Close()
		}
		time.Sleep(10 * time.Second)
		if n := c.endpoints[1].counts.busyChunks.Load(); n != 2 || most.Load() != 4 {
			t.Errorf("of 6 requests past the own limit %d were refused, and %d answered at once", n, most.Load())
		}
	})
}

func TestCorruptChunkRequestClosesTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{}, Options{})
		defer c.close()
		c.endpoints[1].ServeChunks(library(1))
		request := wire.AppendChunkRequest(wire.AppendOpen(nil, wire.Open{Class: wire.Chunks, From: c.endpoints[0].epoch}), hashes(1))
		for name, b := range map[string][]byte{
			"count":    append(request[:wire.OpenBytes:wire.OpenBytes], 255, 255, 255, 255),
			"trailing": append(bytes.Clone(request), 0),
		} {
			conn := intruder(t, c, 0, 1)
			write(t, conn, b)
			select {
			case <-conn.Context().Done():
			case <-time.After(5 * time.Second):
				t.Errorf("%s: the connection stays", name)
			}
		}
	})
}

// TestFetchBesideASession: a session's messages have the line to themselves, however much
// is being fetched at the same time.
func TestFetchBesideASession(t *testing.T) {
	t.Parallel()
	const rate, size = 250_000, 200_000
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{BytesPerS: rate, Delay: 5 * time.Millisecond, QueueBytes: 16 << 10}, Options{})
		defer c.close()
		sessions := c.sessions(1)
		everybody(t, c, sessions, 1, 10)
		c.endpoints[0].ServeChunks(library(1_000_000))
		var work errgroup.Group
		work.Go(func() error {
			return c.endpoints[1].Fetch(t.Context(), c.ids[0], hashes(2), func(plan.Hash, []byte) error { return nil })
		})
		time.Sleep(2 * time.Second) // of 8 or more
		begin := time.Now()
		mustSend(t, sessions[0], c.ids[1], activation(1, 1, 0), payload(size, 1))
		mustReceive(t, sessions[1], c.ids[0], activation(1, 1, 0), payload(size, 1))
		alone := time.Second * size / rate
		if took := time.Since(begin); took > alone*3/2 {
			t.Errorf("an activation took %v, alone it takes %v", took, alone)
		}
		if err := work.Wait(); err != nil {
			t.Error(err)
		}
	})
}
