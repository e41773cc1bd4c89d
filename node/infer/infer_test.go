package infer

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pnode/checkpoint/huggingface"
	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/node/dataset/synthetic"
	"pnode/node/dataset/tokenizer"
	"pnode/node/weights"
	"pnode/pipeline/generate"
	"pnode/pipeline/model"
)

// families are small models of bytes.
var families = map[string]model.Config{
	"gpt2": {Vocab: 256, Context: 24, Blocks: 2, Heads: 2, Channels: 16},
	"llama": {
		Vocab: 256, Context: 24, Blocks: 2, Heads: 4, KVHeads: 2, Channels: 16, MLP: 24, Norm: model.RMSNorm, NormEps: 1e-6,
		Activation: model.SwiGLU, Positions: model.RoPE, NoQKVBias: true, NoOutputBias: true, NoMLPBias: true, UntiedHead: true,
	},
}

// open writes a random model with large parameters, so that its opinions differ, and opens it.
func open(t testing.TB, c model.Config, files map[string][]byte) *weights.Model {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	err := huggingface.Write(dir, huggingface.Export{Config: c, Files: files, Layer: func(layer int, dst []float32) error {
		c.InitLayer(layer, 3, dst)
		for i := range dst {
			dst[i] *= 8
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := weights.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func openBytes(t testing.TB, c model.Config) *weights.Model {
	return open(t, c, tokenizer.Bytes{}.Files())
}

// processor is a device with two threads.
func processor(t testing.TB) kernels.Device {
	t.Helper()
	device, err := cpu.New(cpu.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { device.Close() })
	return device
}

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// loaded is a stack of all layers of m with its parameters; c says the rest.
func loaded(t testing.TB, m *weights.Model, c model.StackConfig) (*model.Stack, kernels.Queue) {
	t.Helper()
	device, err := cpu.New(cpu.Options{Threads: 1})
	must(t, err)
	t.Cleanup(func() { device.Close() })
	c.Device, c.Model, c.End, c.MicroBatch = device, m.Config, m.Config.Layers(), 1
	stack, err := model.NewStack(c)
	must(t, err)
	t.Cleanup(stack.Close)
	queue, err := device.NewQueue()
	must(t, err)
	t.Cleanup(func() { queue.Close() })
	for l := range m.Config.Layers() {
		params := make([]float32, m.Config.LayerLen(l))
		must(t, m.Layer(t.Context(), l, params))
		queue.Write(stack.Params(l), kernels.Float32Bytes(params))
		must(t, queue.Sync())
	}
	return stack, queue
}

// logits of all positions of a text [T,V], by the passes of training.
func logits(t testing.TB, m *weights.Model, text []byte) [][]float32 {
	t.Helper()
	stack, queue := loaded(t, m, model.StackConfig{Slots: 1})
	tokens := make([]int32, m.Config.Context)
	for i, b := range text {
		tokens[i] = int32(b)
	}
	stack.Slot(0).SetTokens(queue, tokens)
	stack.Slot(0).Forward(queue, model.Noise{})
	all := make([][]float32, len(text))
	for i := range all {
		all[i] = make([]float32, m.Config.Vocab)
		queue.Read(kernels.Float32Bytes(all[i]), stack.Slot(0).Logits(queue, i, 1))
		must(t, queue.Sync())
	}
	return all
}

// TestGreedyTextIsTheFullForwardsArgmax: the cache changes nothing.
func TestGreedyTextIsTheFullForwardsArgmax(t *testing.T) {
	for name, c := range families {
		t.Run(name, func(t *testing.T) {
			m, text := openBytes(t, c), []byte("Once")
			var got []byte
			g, err := Generate(t.Context(), m, Prompt{Text: "Once", Tokens: 12, Device: processor(t), Write: func(_ int, b []byte) error {
				got = append(got, b...)
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			for range 12 {
				rows := logits(t, m, text)
				last, best := rows[len(rows)-1], 0
				for i, v := range last {
					if v > last[best] {
						best = i
					}
				}
				text = append(text, byte(best))
			}
			if string(got) != string(text[4:]) || g.Tokens != 12 || g.PromptTokens != 4 || g.Ended != 0 {
				t.Errorf("%+v\n got %q\nwant %q", g, got, text[4:])
			}
		})
	}
}

// TestTextInHalvesIsTheSameForAnyThreads: weights of BF16 give a text that the number of threads does not change.
func TestTextInHalvesIsTheSameForAnyThreads(t *testing.T) {
	for name, c := range families {
		m := openBytes(t, c)
		var first []byte
		for threads := 1; threads <= 3; threads++ {
			device, err := cpu.New(cpu.Options{Threads: threads})
			must(t, err)
			var got []byte
			_, err = Generate(t.Context(), m, Prompt{Text: "Once", Tokens: 20, Device: device, Storage: model.StorageBF16, Sampling: generate.Sampling{Temperature: 1}, Write: func(_ int, b []byte) error {
				got = append(got, b...)
				return nil
			}})
			if must(t, errors.Join(err, device.Close())); threads == 1 {
				first = got
			}
			if len(got) != 20 || string(got) != string(first) {
				t.Errorf("%s: %q with %d threads, %q with one", name, got, threads, first)
			}
		}
	}
}

func TestGenerateEndsWithTheModelsEnd(t *testing.T) {
	c := families["gpt2"]
	files := tokenizer.Bytes{}.Files()
	var first []byte
	collect := func(into *[]byte) func(int, []byte) error {
		return func(_ int, b []byte) error { *into = append(*into, b...); return nil }
	}
	m := open(t, c, files)
	if _, err := Generate(t.Context(), m, Prompt{Text: "a", Tokens: 8, Device: processor(t), Write: collect(&first)}); err != nil {
		t.Fatal(err)
	}
	m.Words.Ends = []int32{int32(first[3])}
	until := strings.IndexByte(string(first), first[3])
	var second []byte
	ended := 0
	g, err := Generate(t.Context(), m, Prompt{Text: "a", Tokens: 8, Device: processor(t), Write: collect(&second), Ended: func(int) error { ended++; return nil }})
	if ended != 1 {
		t.Errorf("the end is told %d times", ended)
	}
	if err != nil || g.Ended != 1 || string(second) != string(first[:until]) {
		t.Errorf("%+v, %v: %q of %q", g, err, second, first)
	}
}

// TestEndsAreTold of each text, once its last token is written, and what Ended says ends all.
func TestEndsAreTold(t *testing.T) {
	m := open(t, families["gpt2"], tokenizer.Bytes{}.Files())
	var tokens [5]int
	var ended []int
	p := Prompt{
		Texts: []string{"a", "b", "c", "d", "e"}, AtOnce: 2, Tokens: 3, Device: processor(t),
		Write: func(text int, _ []byte) error { tokens[text]++; return nil },
		Ended: func(text int) error {
			if tokens[text] != 3 {
				t.Errorf("text %d ends after %d tokens", text, tokens[text])
			}
			ended = append(ended, text)
			return nil
		},
	}
	if _, err := Generate(t.Context(), m, p); err != nil || len(ended) != 5 || len(slices.Compact(slices.Sorted(slices.Values(ended)))) != 5 {
		t.Errorf("%v have ended (%v)", ended, err)
	}
	broken := errors.New("broken")
	p.Ended = func(int) error { return broken }
	if g, err := Generate(t.Context(), m, p); !errors.Is(err, broken) || g.Tokens > 3*p.AtOnce {
		t.Errorf("%v after %d tokens", err, g.Tokens)
	}
}

func TestGenerateRefuses(t *testing.T) {
	wordless, err := weights.Open(t.Context(), "../../checkpoint/huggingface/testdata/gpt2")
	if err != nil {
		t.Fatal(err)
	}
	defer wordless.Close()
	write := func(int, []byte) error { return nil }
	if _, err := Generate(t.Context(), wordless, Prompt{Text: "a", Tokens: 1, Write: write}); !errors.Is(err, weights.ErrNoWords) {
		t.Error(err)
	}
	narrow := families["gpt2"]
	narrow.Vocab = 100
	if _, err := Generate(t.Context(), openBytes(t, narrow), Prompt{Text: "a z", Tokens: 1, Write: write}); !errors.Is(err, ErrTokens) {
		t.Error(err)
	}
	m := openBytes(t, families["gpt2"])
	if _, err := Generate(t.Context(), m, Prompt{Text: "a", Tokens: 1, Sampling: generate.Sampling{TopP: 2}, Write: write}); !errors.Is(err, generate.ErrBadSampling) {
		t.Error(err)
	}
	broken := errors.New("broken pipe")
	if _, err := Generate(t.Context(), m, Prompt{Text: "a", Tokens: 5, Device: processor(t), Write: func(int, []byte) error { return broken }}); !errors.Is(err, broken) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = Generate(ctx, m, Prompt{Text: "a", Tokens: 5, Device: processor(t), Write: func(int, []byte) error { cancel(); return nil }})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestWeightsThatAreNoNumbers: a text out of them would look like one of an untrained model.
func TestWeightsThatAreNoNumbers(t *testing.T) {
	dir, c := filepath.Join(t.TempDir(), "model"), families["llama"]
	must(t, huggingface.Write(dir, huggingface.Export{Config: c, Files: tokenizer.Bytes{}.Files(), Layer: func(layer int, dst []float32) error {
		c.InitLayer(layer, 3, dst)
		if layer == 2 {
			dst[5] = float32(math.NaN())
		}
		return nil
	}}))
	m, err := weights.Open(t.Context(), dir)
	must(t, err)
	defer m.Close()
	const want = "element 5 of tensor layers.1.input_layernorm.weight is NaN"
	p := Prompt{Text: "a", Tokens: 1, Device: processor(t), Write: func(int, []byte) error { return nil }}
	if _, err := Generate(t.Context(), m, p); !errors.Is(err, weights.ErrNotFinite) || !strings.Contains(err.Error(), want) {
		t.Errorf("generate: %v", err)
	}
	if _, err := NewScorer(t.Context(), m, ScoreOptions{Device: processor(t)}); !errors.Is(err, weights.ErrNotFinite) || !strings.Contains(err.Error(), want) {
		t.Errorf("score: %v", err)
	}
}

// nats is the loss of a token in float64.
func nats(row []float32, target byte) float64 {
	most, sum := float64(row[0]), 0.0
	for _, v := range row {
		most = max(most, float64(v))
	}
	for _, v := range row {
		sum += math.Exp(float64(v) - most)
	}
	return most + math.Log(sum) - float64(row[target])
}

// TestScore compares with the logits: windows follow one another and begin anew.
func TestScore(t *testing.T) {
	for name, c := range families {
		for _, window := range []int{0, 10} {
			m := openBytes(t, c)
			text := []byte("It is a truth universally acknowledged, that a single man")
			s, err := NewScorer(t.Context(), m, ScoreOptions{Window: window, Device: processor(t)})
			if err != nil {
				t.Fatal(err)
			}
			calls := 0
			got, err := s.Score(t.Context(), text, func(Score) { calls++ })
			if err := errors.Join(err, s.Close()); err != nil {
				t.Fatal(err)
			}
			if window == 0 {
				window = c.Context
			}
			want := 0.0
			for at := 0; at+1 < len(text); at += window {
				part := text[at:min(at+window+1, len(text))]
				for i, row := range logits(t, m, part[:len(part)-1]) {
					want += nats(row, part[i+1])
				}
			}
			n := int64(len(text) - 1)
			if math.Abs(got.Nats-want) > 1e-4*want || got.Tokens != n || got.Bytes != n || calls != (len(text)-2)/window+1 {
				t.Errorf("%s, window %d: %+v in %d windows, want %v nats", name, window, got, calls, want)
			}
			if p := math.Exp(got.Nats / float64(n)); got.Perplexity() != p || math.Abs(got.BitsPerByte()-got.NatsPerToken()/math.Ln2) > 1e-12 {
				t.Errorf("perplexity %v, want %v", got.Perplexity(), p)
			}
		}
	}
}

func TestScoreBehindAnEndOfText(t *testing.T) {
	m := openBytes(t, families["llama"])
	score := func() Score {
		t.Helper()
		s, err := NewScorer(t.Context(), m, ScoreOptions{Device: processor(t)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		got, err := s.Score(t.Context(), []byte("abcdef"), nil)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	without := score()
	m.Words.Ends = []int32{0}
	if with := score(); without.Tokens != 5 || without.Bytes != 5 || with.Tokens != 6 || with.Bytes != 6 {
		t.Errorf("%+v, behind an end %+v", without, with)
	}
}

func TestScorerRefusesWindows(t *testing.T) {
	m := openBytes(t, families["gpt2"])
	for _, window := range []int{-1, 25} {
		if _, err := NewScorer(t.Context(), m, ScoreOptions{Window: window}); !errors.Is(err, ErrWindow) {
			t.Errorf("window %d: %v", window, err)
		}
	}
}

// TestDigitsOfResultsAreCounted: as right where the most likely token is the right one, window by window, whatever the rest of the text is.
func TestDigitsOfResultsAreCounted(t *testing.T) {
	m := openBytes(t, families["gpt2"])
	text := append([]byte("no sum\n9 + 9 = 17\n"), synthetic.Unseen()[:4000]...)
	window, right, digits := 10, int64(0), int64(0)
	results := synthetic.Results(text)
	for at := 0; at+1 < len(text); at += window {
		part := text[at:min(at+window+1, len(text))]
		for i, row := range logits(t, m, part[:len(part)-1]) {
			if !results[at+i+1] {
				continue
			}
			digits++
			best := 0
			for v := range row {
				if row[v] > row[best] {
					best = v
				}
			}
			if best == int(part[i+1]) {
				right++
			}
		}
	}
	s, err := NewScorer(t.Context(), m, ScoreOptions{Window: window, Device: processor(t)})
	must(t, err)
	got, err := s.Score(t.Context(), text, nil)
	must(t, errors.Join(err, s.Close()))
	if got.Digits != digits || got.Right != right || right == 0 || right == digits {
		t.Errorf("%d of %d digits are right, want %d of %d", got.Right, got.Digits, right, digits)
	}
}

// TestDigitsBehindTheTokensThatBeginAText: each count is that of its own token; a text without results, which may be large, has no counts.
func TestDigitsBehindTheTokensThatBeginAText(t *testing.T) {
	s := Scorer{words: *openBytes(t, families["gpt2"]).Words}
	for _, begin := range [][]int32{nil, {0}, {0, 0}} {
		for text, want := range map[string][]int32{"7 + 8 = 15\n": {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0}, "7 + 8 is 15\n": nil} {
			if want != nil {
				want = append(make([]int32, len(begin)), want...)
			}
			got := s.digits([]byte(text), s.words.Encode(slices.Clone(begin), []byte(text)), len(begin))
			if !slices.Equal(got, want) {
				t.Errorf("%q behind %d tokens: %v, want %v", text, len(begin), got, want)
			}
		}
	}
}
