package bench

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/kernels/devices"
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
	Threads   []int    // default 1 and every core
	Models    []string // of StepModels, default all
	Sequences []int    // default 256 and 1024
	Binary    string   // this program
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

func (o *StepOptions) fill() (err error) {
	o.Models, o.Sequences = orElse(o.Models, StepModels()...), orElse(o.Sequences, 256, 1024)
	if err := cmp.Or(o.Sides.fill(), checkNames("model", StepModels(), o.Models...), checkRange("sequence", 8, 1024, o.Sequences...)); err != nil {
		return err
	}
	o.Threads, err = threadCounts(o.Threads)
	return err
}

// StepReport is the result of Steps.
type StepReport struct {
	Beside
	Kernel string       `json:"kernel"` // instruction set of this program's kernels
	Steps  []StepResult `json:"steps"`
}

// StepResult is one case. Rates are medians in tokens a second, Ratio is the median over
// the rounds of this program's rate to the peer's.
type StepResult struct {
	StepModel
	TokensPerS     float64 `json:"tokens_per_s"`
	PeerTokensPerS float64 `json:"peer_tokens_per_s,omitempty"`
	Ratio          float64 `json:"ratio,omitempty"`
	PeakBytes      int64   `json:"peak_bytes"`
	PeerPeakBytes  int64   `json:"peer_peak_bytes,omitempty"`
	// Utilization is what the step computes over what multiply-adds in registers alone would
	// compute in its time: the hardware FLOPs utilization of Chowdhery et al. 2022, PaLM,
	// appendix B. Median over the rounds of the former over the most of the latter: what slows the
	// processor while it shows its limit in one round does not raise the share.
	Utilization float64 `json:"utilization"`
	// Shares of the step by class of calls; what is missing to 1 is outside of calls.
	Shares map[string]float64 `json:"shares"`
}

// Rest returns the share of the step outside matrix products and attention.
func (r StepResult) Rest() float64 {
	return 1 - r.Shares[kernels.ClassMatMul.String()] - r.Shares[kernels.ClassAttention.String()]
}

// Steps measures training steps (forward, backward, clipping, AdamW, f32), beside PyTorch
// when there is one.
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
				c := m.sized(sequence, max(1, m.Batch/sequence))
				c.Threads = threads
				name := fmt.Sprintf("%s, sequence %d, threads %d", c.Name, sequence, threads)
				o.Progress(name)
				result, err := r.measure(ctx, o, c)
				if err != nil {
					return r, fmt.Errorf("bench step: %s: %w", name, err)
				}
				r.Steps = append(r.Steps, result)
			}
		}
	}
	return r, nil
}

// measure starts both sides and lets them take turns.
func (r *StepReport) measure(ctx context.Context, o StepOptions, m StepModel) (result StepResult, err error) {
	own, err := startPeer(ctx, nil, task{Device: devices.CPU, Kind: stepTask, Model: m, Profile: true}, o.Binary, "bench", "--worker")
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, own.close()) }()
	r.Kernel, r.Dropped = own.hello.Kernel, own.hello.Dropped
	torch, err := startPeer(ctx, nil, torchStep{StepModel: m}, o.Python, "-c", torchStepScript)
	if err != nil {
		r.NoPeer = fmt.Sprintf("%v; it needs a Python with PyTorch (Debian: apt-get install python3-torch; PyPI: pip install torch), see --python", err)
	} else {
		defer torch.close()
		r.Peer, r.PeerKernel = torch.hello.Name, torch.hello.Kernel
	}
	return trainInTurns(m, own, torch, o.Rounds)
}

// stepRound is how long the steps of a round take at least.
var stepRound = time.Second

// trainInTurns measures steps of both sides, as many a round as take stepRound or more. torch may be
// nil.
func trainInTurns(m StepModel, own, torch *peer, rounds int) (StepResult, error) {
	result, request := StepResult{StepModel: m, Shares: map[string]float64{}}, stepRequest{1}
	var second answer
	for range 2 { // the first one warms up
		var err error
		if second, err = own.ask(request); err != nil {
			return result, err
		}
	}
	if torch != nil {
		if _, err := torch.ask(stepRequest{2}); err != nil {
			return result, err
		}
	}
	request.Steps += int(stepRound.Seconds() / max(second.Seconds, 1e-3))
	took := takeTurns(rounds, own.asks(request), torch.asks(request))
	if err := cmp.Or(took[0].err, took[1].err); err != nil {
		return result, err
	}
	tokens := float64(m.Batch * m.Context * request.Steps)
	result.TokensPerS, result.PeerTokensPerS, result.Ratio = took[0].rate(tokens), took[1].rate(tokens), took[0].ratio(took[1])
	var computed []float64
	limit := 0.0 // GFLOP/s, of the processor alone
	for _, a := range took[0].answers {
		result.PeakBytes, limit = a.PeakBytes, max(limit, a.Arithmetic)
		computed = append(computed, float64(a.FLOPs)/a.Seconds/1e9)
		for class, seconds := range a.Classes {
			result.Shares[class] += seconds / a.Seconds / float64(rounds)
		}
	}
	if limit > 0 {
		result.Utilization = median(computed) / limit
	}
	if torch != nil {
		result.PeerPeakBytes = took[1].answers[rounds-1].PeakBytes
	}
	return result, nil
}

// Text returns the report as a table for people.
func (r StepReport) Text() string {
	var w strings.Builder
	w.WriteString(r.text(r.Kernel))
	fmt.Fprintf(&w, "Training steps in f32; medians of %d rounds in which both sides take turns. HFU is what\n"+
		"a step computes over what multiply-adds in registers alone would in its time, at the\n"+
		"fastest that they were in any round.\n\n", r.Rounds)
	t := tabwriter.NewWriter(&w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "model\tsequence\tbatch\tthreads\tpnode tokens/s\tPyTorch\tratio\tpeak MiB\tPyTorch\tHFU\tproducts\tattention\trest\t")
	for _, s := range r.Steps {
		rate, ratio, peak := "-", "-", "-"
		if r.Peer != "" {
			rate, ratio = fmt.Sprintf("%.0f", s.PeerTokensPerS), fmt.Sprintf("%.2f", s.Ratio)
		}
		if s.PeerPeakBytes > 0 { // which a system may not tell
			peak = fmt.Sprint(s.PeerPeakBytes >> 20)
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%.0f\t%s\t%s\t%d\t%s\t", s.Name, s.Context, s.Batch, s.Threads, s.TokensPerS, rate, ratio, s.PeakBytes>>20, peak)
		products, attention := s.Shares[kernels.ClassMatMul.String()], s.Shares[kernels.ClassAttention.String()]
		fmt.Fprintf(t, "%.1f%%\t%.1f%%\t%.1f%%\t%.1f%%\t\n", 100*s.Utilization, 100*products, 100*attention, 100*s.Rest())
	}
	_ = t.Flush() // a Builder takes all
	if r.NoPeer != "" {
		fmt.Fprintf(&w, "\nNo PyTorch to compare with: %s\n", r.NoPeer)
	}
	return w.String()
}
