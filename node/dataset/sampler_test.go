package dataset

import (
	"fmt"
	"slices"
	"testing"

	"pnode/planner/plan"
)

// specOf is a spec of n tokens of a width whose chunks are never read.
func specOf(n int64, width, permille int) plan.DataSpec {
	size := n * int64(width)
	spec := plan.DataSpec{
		SizeBytes: size, HeldOutPermille: permille,
		Chunks: make([]plan.Hash, (size+ChunkBytes-1)/ChunkBytes),
	}
	tokens(&spec, width, 256, 0)
	return spec
}

func newSampler(t testing.TB, spec plan.DataSpec, w Window) *Sampler {
	t.Helper()
	w.Vocab = 256
	s, err := NewSampler(spec, w)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEachSampleOnceAnEpoch goes through the ledger of three epochs over corpora of several
// shapes: every epoch has every sample once, their tokens lie end to end, and none reaches
// into the held-out part.
func TestEachSampleOnceAnEpoch(t *testing.T) {
	for _, c := range []struct {
		tokens        int64
		width         int
		permille      int
		context, rows int
	}{
		{10, 1, 0, 4, 1},       // one sample
		{100, 1, 0, 1, 7},      // no target but the next sample's token
		{1000, 1, 50, 9, 16},   // an epoch ends within a step
		{1000, 2, 50, 300, 16}, // several epochs a step
		{1 << 20, 4, 50, 64, 32},
		{30 << 20, 4, 10, 4096, 24},        // 30 chunks: two pools
		{40 << 20, 2, 100, 1000, 8},        // 20 chunks of which 2 are held out
		{20 << 20, 4, 900, 3 << 19, 2},     // samples longer than a chunk: some have none
		{70<<20 + 12345, 2, 7, 511, 10000}, // three pools, the last chunk short
	} {
		name := fmt.Sprintf("%d tokens of %d, context %d, %d rows", c.tokens, c.width, c.context, c.rows)
		s := newSampler(t, specOf(c.tokens, c.width, c.permille), Window{Seed: 11, Context: c.context, StepRows: c.rows})
		n := s.EpochSamples()
		if least := (s.stream.train-1)/int64(c.context) - 1; n < 1 || n < least {
			t.Fatalf("%s: %d samples an epoch, want %d or one more", name, n, least)
		}
		var seen []bool
		var o *order
		epoch, count := int64(-1), n
		for step := plan.Step(1); epoch < 3; step++ {
			samples, err := s.Step(step)
			if err != nil {
				t.Fatal(err)
			}
			for _, sample := range samples {
				if sample.Epoch != epoch {
					if sample.Epoch != epoch+1 || count != n {
						t.Fatalf("%s: epoch %d after %d samples of epoch %d, want %d", name, sample.Epoch, count, epoch, n)
					}
					epoch, count, seen = sample.Epoch, 0, make([]bool, n)
					o = newOrder(s.stream, s.window.Seed, epoch)
				}
				checkSample(t, o, sample, seen)
				count++
			}
		}
	}
}

// checkSample wants a sample of an epoch to be a new one and to lie where it should.
func checkSample(t *testing.T, o *order, sample Sample, seen []bool) {
	t.Helper()
	switch {
	case sample.Index < 0 || sample.Index >= int64(len(seen)) || seen[sample.Index]:
		t.Fatalf("%+v: no such sample, or it came before", sample)
	case sample.Token != o.offset+sample.Index*o.stream.context:
		t.Fatalf("%+v: samples do not lie end to end from %d", sample, o.offset)
	case sample.Token < 0 || sample.Token+o.stream.context+1 > o.stream.train:
		t.Fatalf("%+v reaches out of the %d tokens to train on", sample, o.stream.train)
	}
	seen[sample.Index] = true
}

// TestLedgerDoesNotDependOnTheCut collects the samples of an epoch as replicas and
// micro-batches take them, resumed in the middle: always the same rows.
func TestLedgerDoesNotDependOnTheCut(t *testing.T) {
	const rows = 24
	w := Window{Seed: 5, Context: 16, StepRows: rows}
	spec := specOf(100_000, 1, 50)
	whole := newSampler(t, spec, w)
	last := plan.Step(whole.EpochSamples()/rows + 1)
	var want []Sample
	for step := plan.Step(1); step <= last; step++ {
		samples, err := whole.Step(step)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, samples...)
	}
	for _, cut := range []struct{ replicas, batch int }{{1, 1}, {1, 24}, {2, 4}, {3, 2}, {4, 3}, {6, 4}} {
		var got []Sample
		micros := rows / cut.batch
		for r := cut.replicas - 1; r >= 0; r-- { // replicas do not wait for each other
			s := newSampler(t, spec, w)
			for step := plan.Step(1); step <= last; step++ {
				if step == last/2 {
					s = newSampler(t, spec, w) // as after a restart
				}
				for m := r * micros / cut.replicas; m < (r+1)*micros/cut.replicas; m++ {
					for b := range cut.batch {
						sample, err := s.At(step, m*cut.batch+b)
						if err != nil {
							t.Fatal(err)
						}
						got = append(got, sample)
					}
				}
			}
		}
		slices.SortFunc(got, func(a, b Sample) int { return int(int64(a.Step-b.Step)*rows) + a.Row - b.Row })
		if !slices.Equal(got, want) {
			t.Errorf("%d replicas with micro-batches of %d use other samples", cut.replicas, cut.batch)
		}
	}
}

func TestEpochsAndSeedsDiffer(t *testing.T) {
	spec := specOf(1_000_000, 1, 50)
	first := func(seed uint64, epoch int64) []int64 {
		s := newSampler(t, spec, Window{Seed: seed, Context: 100, StepRows: 1})
		var tokens []int64
		for i := range int64(50) {
			sample, err := s.At(plan.Step(epoch*s.EpochSamples()+i+1), 0)
			if err != nil {
				t.Fatal(err)
			}
			tokens = append(tokens, sample.Token)
		}
		return tokens
	}
	a := first(1, 0)
	for name, b := range map[string][]int64{"another epoch": first(1, 1), "another seed": first(2, 0)} {
		same := 0
		for i := range a {
			if a[i] == b[i] {
				same++
			}
		}
		if same > 5 || a[0]%100 == b[0]%100 {
			t.Errorf("%s: %d of 50 samples at the same place, offsets %d and %d", name, same, a[0]%100, b[0]%100)
		}
	}
	if !slices.Equal(a, first(1, 0)) {
		t.Error("the same seed and epoch give other samples")
	}
}

// TestShuffleReachesEverywhere: the first tenth of an epoch of a corpus of many pools comes
// from all over the pool, and the epochs' first pools from all over the corpus.
func TestShuffleReachesEverywhere(t *testing.T) {
	const chunks = 4 * poolChunks
	s := newSampler(t, specOf(chunks*ChunkBytes/2, 2, 0), Window{Seed: 8, Context: 4096, StepRows: 1})
	var corpus [chunks]bool
	for epoch := range int64(20) {
		pool := map[int64]int{}
		for i := range s.EpochSamples() / 40 { // a tenth of the first of four pools
			sample, err := s.At(plan.Step(epoch*s.EpochSamples()+i+1), 0)
			if err != nil {
				t.Fatal(err)
			}
			chunk := sample.Token / s.stream.chunk
			pool[chunk]++
			corpus[chunk] = true
		}
		if len(pool) != poolChunks {
			t.Errorf("epoch %d begins with samples of %d chunks, want %d", epoch, len(pool), poolChunks)
		}
	}
	if n := len(corpus) - 1; slices.Contains(corpus[:n], false) { // (3/4)^20 a chunk: 0.3%
		missing := 0
		for _, found := range corpus {
			if !found {
				missing++
			}
		}
		if missing > 2 {
			t.Errorf("20 epochs never began in %d of %d chunks", missing, chunks)
		}
	}
}

func BenchmarkSampler(b *testing.B) {
	s := newSampler(b, specOf(16<<30, 4, 50), Window{Seed: 1, Context: 1024, StepRows: 512})
	step := plan.Step(0)
	for b.Loop() {
		step++
		if _, err := s.At(step, 7); err != nil {
			b.Fatal(err)
		}
	}
}
