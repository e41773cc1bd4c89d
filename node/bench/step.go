package bench

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/kernels/devices"
	"pnode/pipeline/model"
)

//go:embed torchstep.py
var torchStepOnly string

//go:embed torchpeer.py
var torchPeerScript string

var torchStepScript = torchPeerScript + torchStepOnly

// torchStep is the argument of torchstep.py.
type torchStep struct {
	StepModel
	Device  string `json:"device"`
	DType   string `json:"dtype"`
	Compile bool   `json:"compile,omitempty"`
}

// StepOptions say what to measure.
type StepOptions struct {
	Sides
	Threads    []int    // default 1 and every core
	Models     []string // of StepModels, default all
	Sequences  []int    // default 256 and 1024
	Precisions []string // of StepPrecisions, default all
	Binary     string   // this program
}

// stepModels are the measured models; Context is 0, Batch the tokens of a step.
var stepModels = []StepModel{
	{Name: "10m", Vocab: 65, Blocks: 6, Heads: 6, Channels: 384, Batch: 4096},
	{Name: "gpt2-124m", Vocab: 50257, Blocks: 12, Heads: 12, Channels: 768, Batch: 1024},
}

// StepModels returns the names that StepOptions.Models can hold.
func StepModels() (names []string) {
	for _, m := range stepModels {
		names = append(names, m.Name)
	}
	return names
}

// stepPrecisions are how this program stores what products read. PyTorch's bf16 is that of its
// autocast: parameters in float32 on both sides.
var stepPrecisions = []model.Storage{model.StorageF32, model.StorageBF16}

// StepPrecisions returns the names that StepOptions.Precisions can hold.
func StepPrecisions() (names []string) {
	for _, s := range stepPrecisions {
		names = append(names, s.String())
	}
	return names
}

func (o *StepOptions) fill() (err error) {
	o.Models, o.Sequences, o.Precisions = orElse(o.Models, StepModels()...), orElse(o.Sequences, 256, 1024), orElse(o.Precisions, StepPrecisions()...)
	if err := cmp.Or(
		o.Sides.fill(), checkNames("model", StepModels(), o.Models...), checkRange("sequence", 8, 1024, o.Sequences...), checkNames("precision", StepPrecisions(), o.Precisions...),
	); err != nil {
		return err
	}
	o.Threads, err = threadCounts(o.Threads)
	return err
}

// StepReport is the result of Steps.
type StepReport struct {
	Beside
	Steps []StepCase `json:"steps"`
}

// HasRows reports whether there is something to show, whatever ended the measurement.
func (r StepReport) HasRows() bool { return len(r.Steps) > 0 }

// StepCase is one model, precision and number of threads.
type StepCase struct {
	StepModel
	Precision string `json:"precision"`
	// Limit is how many tokens a second multiply-adds in registers alone would make, of what a step of
	// this program computes: by the most of the rounds, as what slows the processor while it shows its
	// limit in one of them does not raise anybody's share.
	Limit float64    `json:"limit_tokens_per_s"`
	Sides []StepSide `json:"sides"` // this program's first
	// Shares of this program's step by class of calls; what is missing to 1 is outside of calls.
	Shares map[string]float64 `json:"shares"`
	Best   *Comparison        `json:"best,omitempty"` // with the fastest peer
}

// StepSide says what one side did of a case, or why it did not.
type StepSide struct {
	Name string `json:"name"`
	// TokensPerS is a median. Ratio is the median over the rounds of this program's rate to the side's.
	TokensPerS float64 `json:"tokens_per_s"`
	Ratio      float64 `json:"ratio,omitempty"`
	PeakBytes  int64   `json:"peak_bytes,omitempty"`
	Open       string  `json:"open,omitempty"`
}

// ofLimit returns a side's rate as a share of the limit: for this program's side the hardware FLOPs
// utilization of Chowdhery et al. 2022, PaLM, appendix B.
func (c StepCase) ofLimit(s StepSide) float64 {
	if c.Limit == 0 {
		return 0
	}
	return s.TokensPerS / c.Limit
}

// rest returns the share of this program's step outside matrix products and attention.
func (c StepCase) rest() float64 {
	return 1 - c.Shares[kernels.ClassMatMul.String()] - c.Shares[kernels.ClassAttention.String()]
}

// Steps measures training steps (forward, backward, clipping, AdamW), beside PyTorch's of the same
// precision, eager and compiled.
func Steps(ctx context.Context, o StepOptions) (r StepReport, err error) {
	if err := o.fill(); err != nil {
		return r, fmt.Errorf("bench step: %w: %w", ErrOptions, err)
	}
	r.CPU, r.Rounds = (*cpu.Device)(nil).Model(), o.Rounds
	for _, m := range stepModels {
		if !slices.Contains(o.Models, m.Name) {
			continue
		}
		for _, sequence := range o.Sequences {
			for _, threads := range o.Threads {
				for _, storage := range stepPrecisions {
					if !slices.Contains(o.Precisions, storage.String()) {
						continue
					}
					c := m.sized(sequence, max(1, m.Batch/sequence))
					c.Threads = threads
					name := fmt.Sprintf("%s, sequence %d, threads %d, %v", c.Name, sequence, threads, storage)
					o.Progress(name)
					result, err := r.measure(ctx, o, c, storage)
					if err != nil {
						return r, fmt.Errorf("bench step: %s: %w", name, err)
					}
					r.Steps = append(r.Steps, result)
				}
			}
		}
	}
	return r, nil
}

// measure starts all sides of a case and lets them take turns.
func (r *StepReport) measure(ctx context.Context, o StepOptions, m StepModel, storage model.Storage) (c StepCase, err error) {
	own, err := startPeer(ctx, nil, task{Device: devices.CPU, Kind: stepTask, Model: m, Storage: storage, Profile: true}, o.Binary, "bench", "--worker")
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, own.close()) }()
	r.Kernel, r.Dropped = own.hello.Kernel, own.hello.Dropped
	sides, names, missing := []*peer{own}, []string{"pnode"}, []error{nil}
	for _, compile := range []bool{false, true} {
		name := pyTorch + " eager"
		if compile {
			name = pyTorch + " compiled"
		}
		torch, err := startPeer(ctx, nil, torchStep{StepModel: m, DType: storage.String(), Compile: compile}, o.Python, "-c", torchStepScript)
		if err == nil {
			defer torch.close()
			r.meet(torch)
		}
		sides, names, missing = append(sides, torch), append(names, name), append(missing, err)
	}
	result := trainInTurns(m, o.Rounds, sides...)
	c = StepCase{StepModel: m, Precision: storage.String(), Sides: result.sides, Shares: map[string]float64{}}
	var all []Comparison
	for i := range c.Sides {
		s := &c.Sides[i]
		s.Name = names[i]
		if why := cmp.Or(missing[i], result.took[i].err); why != nil {
			s.Open = why.Error()
		}
		all = append(all, Comparison{s.Name, s.Ratio})
	}
	c.Best = fastest(all)
	for _, a := range result.took[0].answers {
		if a.FLOPs > 0 {
			c.Limit = max(c.Limit, a.Arithmetic*1e9*result.tokens/float64(a.FLOPs))
		}
		for class, seconds := range a.Classes {
			c.Shares[class] += seconds / a.Seconds / float64(o.Rounds)
		}
	}
	return c, result.took[0].err
}

// stepRound is how long the steps of a round take at least.
var stepRound = time.Second

// warmUps are how many steps every side makes before the first round: PyTorch's compiler works in the
// first, memory is taken in the first two.
const warmUps = 3

// stepResult holds what sides did in turns.
type stepResult struct {
	StepModel
	tokens float64 // of a round
	took   []result
	sides  []StepSide // without names and reasons
}

// trainInTurns measures training steps of sides, the first of which is this program's. Others may be nil.
// All make as many to warm up, and as many in a round: what takes the fastest of them stepRound or more.
func trainInTurns(m StepModel, rounds int, sides ...*peer) stepResult {
	r := stepResult{StepModel: m}
	warm := make([]error, len(sides))
	least := stepRound.Seconds()
	for i, side := range sides {
		var last answer
		for n := 0; n < warmUps && side != nil && warm[i] == nil; n++ {
			last, warm[i] = side.asks(stepRequest{1})()
		}
		if side != nil && warm[i] == nil {
			least = min(least, max(last.Seconds, 1e-3))
		}
	}
	request := stepRequest{1 + int(stepRound.Seconds()/least)}
	asked := make([]side, len(sides))
	for i, side := range sides {
		if warm[i] == nil {
			asked[i] = side.asks(request)
		}
	}
	r.tokens = float64(m.Batch * m.Context * request.Steps)
	r.took = takeTurns(rounds, asked...)
	for i := range sides {
		took := &r.took[i]
		took.err = cmp.Or(warm[i], took.err)
		s := StepSide{TokensPerS: took.rate(r.tokens)}
		if i > 0 {
			s.Ratio = r.took[0].ratio(*took)
		}
		for _, a := range took.answers {
			s.PeakBytes = max(s.PeakBytes, a.PeakBytes)
		}
		r.sides = append(r.sides, s)
	}
	return r
}
