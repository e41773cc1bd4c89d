package dataset

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"pnode/planner/plan"
)

// synthetic is a stream without a store: the chunk named n holds tokens that say where they
// are. It counts what is loaded and what the readers can still hold.
type synthetic struct {
	spec  plan.DataSpec
	loads atomic.Int64
}

func newSynthetic(tokens int64) *synthetic {
	s := &synthetic{spec: specOf(tokens, 4, 50)}
	s.spec.Tokens.Vocab = 1 << 30
	for i := range s.spec.Chunks {
		binary.LittleEndian.PutUint64(s.spec.Chunks[i][:], uint64(i))
	}
	return s
}

func (s *synthetic) Chunk(_ context.Context, h plan.Hash) ([]byte, error) {
	s.loads.Add(1)
	begin := int64(binary.LittleEndian.Uint64(h[:])) * ChunkBytes
	b := make([]byte, min(ChunkBytes, s.spec.SizeBytes-begin))
	for i := 0; i < len(b); i += 4 {
		binary.LittleEndian.PutUint32(b[i:], uint32(begin/4)+uint32(i/4))
	}
	return b, nil
}

// TestMemoryIsBounded reads 50 Mi tokens (200 MiB) from several goroutines: all of an epoch,
// each chunk about once for its samples and once for the one that reaches into it, with never
// more chunks in the cache than it may hold.
func TestMemoryIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 200 MiB")
	}
	src := newSynthetic(50 << 20)
	const rows, length = 16, 2048
	d, err := Open(src, src.spec, Window{Seed: 2, Context: length, StepRows: rows, Vocab: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	resident := 0
	load := d.chunks.load
	d.chunks.load = func(ctx context.Context, i int64) ([]byte, error) {
		d.chunks.mu.Lock()
		resident = max(resident, len(d.chunks.entries))
		d.chunks.mu.Unlock()
		return load(ctx, i)
	}
	steps := plan.Step(d.EpochSamples() / rows)
	for step := plan.Step(1); step <= steps; step++ {
		var group errgroup.Group
		for m := range plan.Micro(4) {
			group.Go(func() error {
				tokens, targets, err := d.Micro(context.Background(), step, m, rows/4)
				for i := range tokens {
					if targets[i] != tokens[i]+1 || i%length > 0 && tokens[i] != tokens[i-1]+1 {
						return errors.New("tokens are not where they should be")
					}
				}
				return err
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
	}
	chunks := int64(len(src.spec.Chunks))
	if resident > cacheChunks || int64(resident) >= chunks/2 {
		t.Errorf("%d of %d chunks in memory, %d are meant", resident, chunks, cacheChunks)
	}
	if n := src.loads.Load(); n > 3*chunks {
		t.Errorf("an epoch loaded %d chunks of a stream of %d", n, chunks)
	}
	t.Logf("%d chunks: %d loads, %d resident", chunks, src.loads.Load(), resident)
}

func TestCacheLoadsOnceForAll(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	var loads atomic.Int32
	c := newChunkCache(2, func(context.Context, int64) ([]byte, error) {
		loads.Add(1)
		close(begun) // panics the second time
		<-goOn
		return []byte("chunk"), nil
	})
	var group errgroup.Group
	for range 8 {
		group.Go(func() error {
			b, err := c.get(context.Background(), 7)
			if string(b) != "chunk" {
				return errors.New("other bytes")
			}
			return err
		})
	}
	<-begun
	close(goOn)
	if err := group.Wait(); err != nil || loads.Load() != 1 {
		t.Errorf("%d loads, %v", loads.Load(), err)
	}
}

func TestCacheForgetsFailures(t *testing.T) {
	fail := errors.New("not now")
	c := newChunkCache(2, func(context.Context, int64) ([]byte, error) { return nil, fail })
	if _, err := c.get(context.Background(), 1); !errors.Is(err, fail) {
		t.Fatal(err)
	}
	c.load = func(context.Context, int64) ([]byte, error) { return []byte("x"), nil }
	if b, err := c.get(context.Background(), 1); err != nil || string(b) != "x" {
		t.Errorf("after a failure: %q, %v", b, err)
	}
}

// TestCacheOutlivesACancelledLoad: the goroutine that loads is cancelled, the one that waits
// for it is not and loads itself.
func TestCacheOutlivesACancelledLoad(t *testing.T) {
	begun := make(chan struct{})
	var once sync.Once
	c := newChunkCache(2, func(ctx context.Context, _ int64) ([]byte, error) {
		first := false
		once.Do(func() { first = true; close(begun) })
		if first {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return []byte("x"), nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	var group errgroup.Group
	group.Go(func() error {
		if _, err := c.get(ctx, 1); !errors.Is(err, context.Canceled) {
			return errors.New("the cancelled load gave no error")
		}
		return nil
	})
	<-begun
	group.Go(func() error {
		_, err := c.get(context.Background(), 1)
		return err
	})
	gone, stop := context.WithCancel(context.Background())
	stop()
	if _, err := c.get(gone, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting with a context that has ended: %v", err)
	}
	cancel()
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

func TestCacheKeepsTheLatest(t *testing.T) {
	loads := map[int64]int{}
	c := newChunkCache(3, func(_ context.Context, i int64) ([]byte, error) { loads[i]++; return []byte{byte(i)}, nil })
	for _, i := range []int64{1, 2, 3, 1, 4, 1, 3, 2, 1} { // 4 drives 2 out, then 2 drives 4 out
		if b, err := c.get(context.Background(), i); err != nil || b[0] != byte(i) {
			t.Fatalf("chunk %d: %v, %v", i, b, err)
		}
	}
	for i, want := range map[int64]int{1: 1, 2: 2, 3: 1, 4: 1} {
		if loads[i] != want {
			t.Errorf("chunk %d loaded %d times, want %d", i, loads[i], want)
		}
	}
}

func benchmarkMicro(b *testing.B, tokens int64) {
	src := newSynthetic(tokens)
	const rows, length = 8, 1024
	d, err := Open(src, src.spec, Window{Seed: rand.Uint64(), Context: length, StepRows: rows, Vocab: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	step := plan.Step(0)
	for b.Loop() {
		step++
		if _, _, err := d.Micro(context.Background(), step, 0, rows); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*rows*length/b.Elapsed().Seconds(), "tokens/s")
	b.ReportMetric(float64(src.loads.Load())/float64(b.N), "loads/op")
}

// BenchmarkMicroResident reads a stream that the cache holds, BenchmarkMicroStreaming one of
// 4 GiB.
func BenchmarkMicroResident(b *testing.B)  { benchmarkMicro(b, 4<<20) }
func BenchmarkMicroStreaming(b *testing.B) { benchmarkMicro(b, 1<<30) }
