package generate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/pipeline/model"
)

var small = model.Config{
	Vocab: 61, Context: 16, Blocks: 2, Heads: 4, KVHeads: 2, Channels: 32, MLP: 48,
	Norm: model.RMSNorm, Activation: model.SwiGLU, Positions: model.RoPE, UntiedHead: true,
}

// initial returns the parameters of a model that nothing has trained, made larger so that
// its choices differ.
func initial(c model.Config) func(layer int, params []float32) error {
	return func(layer int, params []float32) error {
		c.InitLayer(layer, 1, params)
		for i := range params {
			params[i] *= 8
		}
		for i, t := range c.LayerTensors(layer) {
			if strings.HasSuffix(t.Name, "lora_B.weight") { // zero at first
				for k := range t.Len() {
					params[t.Off+k] = float32((i+k)%5) / 10
				}
			}
		}
		return nil
	}
}

func newGenerator(t testing.TB, c model.Config, positions int) *Generator {
	t.Helper()
	device, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	return newGeneratorOf(t, Config{Device: device, Model: c, Params: initial(c), Positions: positions})
}

// newGeneratorOf closes the device, too, at the end.
func newGeneratorOf(t testing.TB, c Config) *Generator {
	t.Helper()
	device := c.Device
	g, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(g.Close(), device.Close()); err != nil {
			t.Error(err)
		}
	})
	return g
}

// plain continues a prompt greedily by forward passes over the whole sequence.
func plain(t *testing.T, c model.Config, prompt []int32, tokens int) []int32 {
	t.Helper()
	device, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	s, err := model.NewStack(model.StackConfig{Device: device, Model: c, End: c.Layers(), MicroBatch: 1, Slots: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	q, err := device.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	for l := range c.Layers() {
		if err := kernels.FillFrom(q, s.Params(l), func(dst []float32) error { return initial(c)(l, dst) }); err != nil {
			t.Fatal(err)
		}
	}
	all := slices.Clone(prompt)
	for range tokens {
		window := make([]int32, c.Context)
		copy(window, all)
		s.Slot(0).SetTokens(q, window)
		s.Slot(0).Forward(q, model.Noise{})
		logits := make([]float32, c.Vocab)
		q.Read(kernels.Float32Bytes(logits), s.Slot(0).Logits(q, len(all)-1, 1))
		if err := q.Sync(); err != nil {
			t.Fatal(err)
		}
		all = append(all, mostLikely(logits))
	}
	return all[len(prompt):]
}

func TestGenerateEqualsWholeForwards(t *testing.T) {
	gpt2 := model.Config{Vocab: 61, Context: 16, Blocks: 2, Heads: 4, Channels: 32}
	lora := small
	lora.LoRA = model.LoRA{Rank: 3, Alpha: 2, Targets: "q_proj,up_proj"}
	for name, c := range map[string]model.Config{"gpt2": gpt2, "llama": small, "lora": lora} {
		t.Run(name, func(t *testing.T) {
			prompt := []int32{3, 14, 15, 9}
			want := plain(t, c, prompt, 12)
			var streamed []int32
			got, err := newGenerator(t, c, 0).Generate(t.Context(), Request{Prompt: prompt, Tokens: 12, Each: func(token int32) bool {
				streamed = append(streamed, token)
				return true
			}})
			if err != nil || !slices.Equal(got, want) || !slices.Equal(streamed, want) {
				t.Errorf("%v, streamed %v, want %v (%v)", got, streamed, want, err)
			}
		})
	}
}

// TestGenerateBeyondThePositions writes more than the model sees, and from a prompt that
// is longer.
func TestGenerateBeyondThePositions(t *testing.T) {
	g := newGenerator(t, small, 8)
	for _, prompt := range [][]int32{{1}, make([]int32, 8), make([]int32, 29)} {
		first, err := g.Generate(t.Context(), Request{Prompt: prompt, Tokens: 40, Sampling: Sampling{Temperature: 1, Seed: 9}})
		if err != nil || len(first) != 40 {
			t.Fatalf("%d tokens: %v", len(first), err)
		}
		again, err := g.Generate(t.Context(), Request{Prompt: prompt, Tokens: 40, Sampling: Sampling{Temperature: 1, Seed: 9}})
		if err != nil || !slices.Equal(first, again) {
			t.Errorf("%v, then %v: %v", first, again, err)
		}
	}
}

// TestWindow holds the part that is seen between half of the positions and all of them,
// and its beginning in place for half as many tokens.
func TestWindow(t *testing.T) {
	for _, positions := range []int{1, 2, 7, 8} {
		g := newGenerator(t, small, positions)
		starts := map[int]int{}
		for n := 1; n < 100; n++ {
			w := g.window(n)
			if w < 1 || w > n || w > positions || (n > positions && w < positions/2) {
				t.Errorf("of %d tokens %d are seen with %d positions", n, w, positions)
			}
			starts[n-w]++
		}
		if want := 99/max(1, positions/2) + 1; len(starts) > want {
			t.Errorf("%d positions: %d beginnings of the window, want %d", positions, len(starts), want)
		}
	}
}

func TestGenerateEnds(t *testing.T) {
	g := newGenerator(t, small, 0)
	got, err := g.Generate(t.Context(), Request{Prompt: []int32{1}, Tokens: 10, Each: func(int32) bool { return false }})
	if err != nil || len(got) != 1 {
		t.Errorf("%v after false: %v", got, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.Generate(ended, Request{Prompt: []int32{1}, Tokens: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	for want, prompt := range map[string][]int32{"is empty": nil, "token 1 of the prompt is 61": {0, 61}, "is -1": {-1}} {
		if _, err := g.Generate(t.Context(), Request{Prompt: prompt, Tokens: 1}); !errors.Is(err, ErrBadRequest) || !strings.Contains(err.Error(), want) {
			t.Errorf("prompt %v: %v, want %q", prompt, err, want)
		}
	}
}

func TestNewNeedsItsParameters(t *testing.T) {
	device, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	broken := errors.New("broken")
	if _, err := New(Config{Device: device, Model: small, Params: func(int, []float32) error { return broken }}); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

// BenchmarkGenerate measures tokens a second after a prompt of 64.
func BenchmarkGenerate(b *testing.B) {
	for _, preset := range []string{"nano", "gpt2-124m"} {
		b.Run(preset, func(b *testing.B) {
			c, err := model.Preset(preset)
			if err != nil {
				b.Fatal(err)
			}
			device, err := cpu.New(cpu.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer device.Close()
			g, err := New(Config{Device: device, Model: c, Params: initial(c)})
			if err != nil {
				b.Fatal(err)
			}
			defer g.Close()
			prompt := make([]int32, 64)
			for b.Loop() {
				if _, err := g.Generate(b.Context(), Request{Prompt: prompt, Tokens: 32}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(32*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}
