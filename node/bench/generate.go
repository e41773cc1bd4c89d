package bench

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"pnode/checkpoint/huggingface"
	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/kernels/devices"
	"pnode/node/bench/decoding"
	"pnode/pipeline/model"
)

//go:embed transformersgenerate.py
var transformersOnly string

var transformersScript = torchPeerScript + transformersOnly

const (
	transformersName = "transformers"
	getTransformers  = "it needs a Python with PyTorch and transformers (PyPI: pip install torch transformers), see --python"
)

// transformersTask is the argument of transformersgenerate.py.
type transformersTask struct {
	decoding.Task
	Threads int    `json:"threads"`
	DType   string `json:"dtype"`
	Compile bool   `json:"compile,omitempty"`
}

// generateContext is how many positions the models know.
const generateContext = 1024

// GenerateOptions say what to measure.
type GenerateOptions struct {
	Sides
	Threads        []int    // default 1 and every core
	Models         []string // of StepModels, default all
	Precisions     []string // of decoding.PrecisionNames, default all
	Batches        []int    // texts at a time, default 1
	Prompt, Tokens int      // of a text
	Binary         string   // this program
}

func (o *GenerateOptions) fill() (err error) {
	o.Models, o.Precisions, o.Batches = orElse(o.Models, StepModels()...), orElse(o.Precisions, decoding.PrecisionNames()...), orElse(o.Batches, 1)
	if err := cmp.Or(
		o.Sides.fill(), checkNames("model", StepModels(), o.Models...), checkNames("precision", decoding.PrecisionNames(), o.Precisions...),
		checkRange("batch", 1, 64, o.Batches...), checkRange("tokens", 2, generateContext/2, o.Tokens), checkRange("prompt", 1, generateContext/2, o.Prompt),
	); err != nil {
		return err
	}
	o.Threads, err = threadCounts(o.Threads)
	return err
}

// GenerateReport is the result of Generate.
type GenerateReport struct {
	Beside
	Prompt int            `json:"prompt"`
	Tokens int            `json:"tokens"`
	Cases  []GenerateCase `json:"cases"`
}

// HasRows reports whether there is something to show, whatever ended the measurement.
func (r GenerateReport) HasRows() bool { return len(r.Cases) > 0 }

// GenerateCase is one model, precision, number of texts at a time and number of threads.
type GenerateCase struct {
	Model     string `json:"model"`
	Precision string `json:"precision"`
	Batch     int    `json:"batch"`
	Threads   int    `json:"threads"`
	// StepBytes is what this program reads to add a token to each text, ReadRate the most at which so much was read in a round.
	StepBytes int64          `json:"step_bytes"`
	ReadRate  float64        `json:"read_gb_s"`
	Sides     []GenerateSide `json:"sides"` // this program's first
	Best      *Comparison    `json:"best,omitempty"`
}

// limit returns the tokens a second of a program that does nothing but read.
func (c GenerateCase) limit() float64 {
	if c.StepBytes == 0 {
		return 0
	}
	return float64(c.Batch) * c.ReadRate * 1e9 / float64(c.StepBytes)
}

// GenerateSide says what one side did of a case, or why it did not.
type GenerateSide struct {
	Name string `json:"name"`
	// TokensPerS, of the tokens after the first, and PromptPerS, of those of the prompts, are medians. Ratio and PromptRatio are the medians over
	// the rounds of this program's rate to the side's.
	TokensPerS  float64 `json:"tokens_per_s"`
	Ratio       float64 `json:"ratio,omitempty"`
	PromptPerS  float64 `json:"prompt_tokens_per_s"`
	PromptRatio float64 `json:"prompt_ratio,omitempty"`
	PeakBytes   int64   `json:"peak_bytes,omitempty"`
	// Same is how many tokens of a text are this program's, in the round with the fewest.
	Same int    `json:"same"`
	Open string `json:"open,omitempty"`
}

// Generate measures how fast texts are continued, beside Hugging Face's transformers with the same weights, eager and compiled.
func Generate(ctx context.Context, o GenerateOptions) (r GenerateReport, err error) {
	if err := o.fill(); err != nil {
		return r, fmt.Errorf("bench generate: %w: %w", ErrOptions, err)
	}
	r = GenerateReport{Beside: Beside{CPU: (*cpu.Device)(nil).Model(), Rounds: o.Rounds}, Prompt: o.Prompt, Tokens: o.Tokens}
	folder, err := os.MkdirTemp("", "pnode-generate-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	for _, m := range stepModels {
		if !slices.Contains(o.Models, m.Name) {
			continue
		}
		o.Progress(m.Name + ", writing random weights")
		t := decoding.Task{Folder: filepath.Join(folder, m.Name), Prompt: o.Prompt, Tokens: o.Tokens}
		c := m.sized(generateContext, 0).config()
		if err := huggingface.Write(t.Folder, huggingface.Export{Config: c, Layer: func(layer int, dst []float32) error {
			c.InitLayer(layer, 1, dst)
			return ctx.Err()
		}}); err != nil {
			return r, fmt.Errorf("bench generate: %w", err)
		}
		if err := r.model(ctx, o, m.Name, t); err != nil {
			return r, err
		}
	}
	return r, nil
}

// model measures all cases of a model, whose weights are in the task's folder.
func (r *GenerateReport) model(ctx context.Context, o GenerateOptions, name string, t decoding.Task) error {
	for _, threads := range o.Threads {
		for _, t.Batch = range o.Batches {
			for _, t.Storage = range decoding.Precisions {
				if !slices.Contains(o.Precisions, t.Storage.String()) {
					continue
				}
				c := GenerateCase{Model: name, Precision: t.Storage.String(), Batch: t.Batch, Threads: threads}
				text := fmt.Sprintf("%s, threads %d, batch %d, %s", name, threads, t.Batch, c.Precision)
				o.Progress(text)
				if err := r.measure(ctx, o, t, &c); err != nil {
					return fmt.Errorf("bench generate: %s: %w", text, err)
				}
				r.Cases = append(r.Cases, c)
			}
		}
	}
	return nil
}

// measure starts all sides of a case and lets them take turns.
func (r *GenerateReport) measure(ctx context.Context, o GenerateOptions, t decoding.Task, c *GenerateCase) (err error) {
	own, err := startPeer(ctx, nil, task{Device: devices.CPU, Kind: generateTask, Generate: t, Model: StepModel{Threads: c.Threads}}, o.Binary, "bench", "--worker")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, own.close()) }()
	r.Kernel, r.Dropped = own.hello.Kernel, own.hello.Dropped
	sides := []*peer{own}
	c.Sides = []GenerateSide{{Name: "pnode"}}
	for _, of := range peersOf(t, *c) {
		s := GenerateSide{Name: of.name}
		other, err := startPeer(ctx, nil, of.task, o.Python, "-c", transformersScript)
		if err != nil {
			s.Open = err.Error()
		} else {
			defer other.close()
			r.meet(other)
		}
		sides, c.Sides = append(sides, other), append(c.Sides, s)
	}
	return c.takeTurns(o.Rounds, t, sides)
}

// peerOf is one way in which transformers do a case.
type peerOf struct {
	name string
	task transformersTask
}

// peersOf returns the ways: eager and compiled, in the case's precision, and beside int8, which they lack, in both others.
func peersOf(t decoding.Task, c GenerateCase) (all []peerOf) {
	add := func(dtype, in string) {
		all = append(
			all, peerOf{transformersName + " eager" + in, transformersTask{t, c.Threads, dtype, false}},
			peerOf{transformersName + " compiled" + in, transformersTask{t, c.Threads, dtype, true}},
		)
	}
	if t.Storage != decoding.Precision(model.StorageInt8) {
		add(c.Precision, "")
		return all
	}
	for _, s := range stepPrecisions {
		add(s.String(), ", "+s.String())
	}
	return all
}

// takeTurns measures the sides, which are in the order of c.Sides; nil is one that there is not. All generate as many texts to warm up, and
// as many in a round: what takes the fastest of them stepRound or more.
func (c *GenerateCase) takeTurns(rounds int, t decoding.Task, sides []*peer) error {
	least, warm := stepRound.Seconds(), make([]error, len(sides))
	for i, side := range sides {
		var last answer
		for n := 0; n < warmUps && side != nil && warm[i] == nil; n++ {
			last, warm[i] = side.asks(generateRequest{1, n})()
		}
		if side != nil && warm[i] == nil {
			least = min(least, max(last.Seconds, 1e-3))
		}
	}
	texts := 1 + int(stepRound.Seconds()/least)
	asked := make([]side, len(sides))
	for i, p := range sides {
		if seed := warmUps; p != nil && warm[i] == nil {
			asked[i] = func() (answer, error) {
				request := generateRequest{texts, seed}
				seed += texts
				return p.asks(request)()
			}
		}
	}
	took := takeTurns(rounds, asked...)
	var all []Comparison
	for i := range c.Sides {
		s := &c.Sides[i]
		if err := cmp.Or(warm[i], took[i].err); err != nil {
			s.Open = err.Error()
		} else if sides[i] != nil {
			s.take(took[0], took[i], t, texts)
		}
		if i > 0 {
			s.Ratio, s.PromptRatio = took[0].ratio(took[i]), prompts(took[0]).ratio(prompts(took[i]))
			all = append(all, Comparison{s.Name, s.Ratio})
		}
	}
	c.Best = fastest(all)
	for _, a := range took[0].answers {
		c.StepBytes, c.ReadRate = a.StepBytes, max(c.ReadRate, a.ReadRate)
	}
	return cmp.Or(warm[0], took[0].err)
}

// take computes the figures of a side from its answers and this program's.
func (s *GenerateSide) take(own, took result, t decoding.Task, texts int) {
	s.TokensPerS, s.PromptPerS = took.rate(float64(texts*t.Batch*(t.Tokens-1))), prompts(took).rate(float64(texts*t.Batch*t.Prompt))
	s.Same = t.Tokens
	for i, a := range took.answers {
		s.PeakBytes = max(s.PeakBytes, a.PeakBytes)
		if i < len(own.answers) {
			s.Same = min(s.Same, alikeUpTo(a.Tokens, own.answers[i].Tokens))
		}
	}
}

// prompts is a result whose times are those of the prompts.
func prompts(r result) (of result) {
	for _, a := range r.answers {
		of.answers = append(of.answers, answer{Seconds: max(a.PromptSeconds, 1e-9)})
	}
	return of
}

// alikeUpTo returns how many tokens two texts have in common before they differ.
func alikeUpTo(a, b []int32) (n int) {
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// generateRequest asks for so many batches of texts, after prompts of the seeds from one on.
type generateRequest struct {
	Texts int `json:"texts"`
	Seed  int `json:"seed"`
}

// ownTexts is this program's side.
type ownTexts struct {
	decoder *decoding.Decoder
	device  kernels.Device
	peak    int64 // of memory after the first texts: reading for the limit takes as much again
}

// run answers a request.
func (g *ownTexts) run(ctx context.Context, r generateRequest) (a answer, err error) {
	for n := range r.Texts {
		one, err := g.decoder.Run(ctx, r.Seed+n)
		if err != nil {
			return a, err
		}
		a.Seconds += one.Rest.Seconds()
		a.PromptSeconds += one.Prompt.Seconds()
		if n == 0 {
			a.Tokens = one.First
		}
	}
	if g.peak == 0 {
		g.peak = peakBytes(g.device)
	}
	a.PeakBytes = g.peak
	a.StepBytes, a.ReadRate, err = g.decoder.ReadRate(roundTime)
	return a, err
}

// Text returns the report as a table for people.
func (r GenerateReport) Text() string {
	var w strings.Builder
	w.WriteString(r.text())
	fmt.Fprintf(&w, "Texts of %d tokens after prompts of %d, by what is likeliest, with random weights that all sides read; medians of %d rounds in which the\n"+
		"sides of a precision take turns, after %d batches of texts each to warm up. A ratio is pnode's rate to the row's. The limit is what\n"+
		"reading memory alone would make: as much as pnode's weights, keys and values of a token, at the fastest of any round.\n"+
		"Same tokens are those of a text before the first that is not pnode's.\n\n", r.Tokens, r.Prompt, r.Rounds, warmUps)
	t := tabwriter.NewWriter(&w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "model\tbatch\tthreads\tprecision\tside\ttokens/s\tratio\tof limit\tprompt tokens/s\tratio\tpeak MiB\tsame tokens\t")
	var notes notes
	for _, c := range r.Cases {
		begin := fmt.Sprintf("%s\t%d\t%d\t%s\t", c.Model, c.Batch, c.Threads, c.Precision)
		for _, s := range c.Sides {
			fmt.Fprintf(t, "%s%s\t%s\n", begin, s.Name, s.figures(c, &notes))
		}
		fmt.Fprintf(t, "%slimit, %.1f MB at %.1f GB/s\t%.1f\t-\t100.0%%\t-\t-\t-\t-\t\n", begin, float64(c.StepBytes)/1e6, c.ReadRate, c.limit())
	}
	_ = t.Flush() // a Builder takes all
	notes.write(&w)
	for _, c := range r.Cases {
		if c.Best != nil {
			fmt.Fprintf(&w, "\n%s, batch %d, threads %d, %s: ratio %.2f to the fastest peer (%s)", c.Model, c.Batch, c.Threads, c.Precision, c.Best.Ratio, c.Best.Peer)
		}
	}
	if len(r.Peers) == 0 {
		fmt.Fprintf(&w, "\nNo transformers to compare with: %s", getTransformers)
	}
	return w.String() + "\n"
}

// figures are a side's columns, or the reference to why there are none.
func (s GenerateSide) figures(c GenerateCase, notes *notes) string {
	if s.Open != "" {
		return "-" + notes.mark(s.Open) + "\t-\t-\t-\t-\t-\t-\t"
	}
	or := func(there bool, format string, x float64) string {
		if !there {
			return "-"
		}
		return fmt.Sprintf(format, x)
	}
	limit := c.limit()
	return fmt.Sprintf(
		"%.1f\t%s\t%s\t%.0f\t%s\t%s\t%d\t", s.TokensPerS, or(s.Ratio > 0, "%.2f", s.Ratio), or(limit > 0, "%.1f%%", 100*s.TokensPerS/max(limit, 1e-9)),
		s.PromptPerS, or(s.PromptRatio > 0, "%.2f", s.PromptRatio), or(s.PeakBytes > 0, "%.0f", float64(s.PeakBytes>>20)), s.Same,
	)
}
