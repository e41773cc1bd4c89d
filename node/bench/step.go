package bench

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pnode/kernels"
)

//go:embed torchstep.py
var torchStepScript string

//go:embed torchpeer.py
var torchPeerScript string

var torchScript = torchPeerScript + torchStepScript

// StepOptions say what to measure; the zero value takes the defaults, but for Binary.
type StepOptions struct {
	Rounds    int      // default 3
	Threads   []int    // default 1 and every core
	Models    []string // of StepModels, default all
	Sequences []int    // default 256 and 1024
	Python    string   // that has PyTorch; default python3
	Binary    string   // this program
	Progress  func(string)
}

// stepModels are the measured models; a step has stepTokens of them.
var stepModels = []struct {
	StepModel
	stepTokens int
}{
	{StepModel{Name: "10m", Vocab: 65, Blocks: 6, Heads: 6, Channels: 384}, 4096},
	{StepModel{Name: "gpt2-124m", Vocab: 50257, Blocks: 12, Heads: 12, Channels: 768}, 1024},
}

// StepModels are the names that StepOptions.Models can hold.
func StepModels() []string {
	var names []string
	for _, m := range stepModels {
		names = append(names, m.Name)
	}
	return names
}

func (o *StepOptions) fill() error {
	if o.Rounds == 0 {
		o.Rounds = 3
	}
	if len(o.Models) == 0 {
		o.Models = StepModels()
	}
	if len(o.Sequences) == 0 {
		o.Sequences = []int{256, 1024}
	}
	if o.Python == "" {
		o.Python = "python3"
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Rounds < 1 {
		return fmt.Errorf("--rounds is %d: take 1 or more", o.Rounds)
	}
	for _, name := range o.Models {
		if !slices.Contains(StepModels(), name) {
			return fmt.Errorf("--model is %q: take one of %s", name, strings.Join(StepModels(), ", "))
		}
	}
	for _, t := range o.Sequences {
		if t < 8 || t > 1024 {
			return fmt.Errorf("--sequence is %d: take 8 to 1024", t)
		}
	}
	var err error
	o.Threads, err = threadCounts(o.Threads)
	return err
}

// cases are the models with all sequences and numbers of threads.
func (o StepOptions) cases() []StepModel {
	var all []StepModel
	for _, m := range stepModels {
		if !slices.Contains(o.Models, m.Name) {
			continue
		}
		for _, sequence := range o.Sequences {
			for _, threads := range o.Threads {
				c := m.StepModel
				c.Context, c.Batch, c.Threads = sequence, max(1, m.stepTokens/sequence), threads
				all = append(all, c)
			}
		}
	}
	return all
}

// StepReport is the result of Steps.
type StepReport struct {
	CPU    string `json:"cpu"`
	Kernel string `json:"kernel"`
	// Dropped says which instruction sets of the processor computed wrong.
	Dropped []string `json:"dropped,omitempty"`
	Peer    string   `json:"peer,omitempty"`
	// PeerKernel is the instruction set that the peer names, if it does.
	PeerKernel string `json:"peer_kernel,omitempty"`
	// NoPeer says why there is no peer and how to get one.
	NoPeer string       `json:"no_peer,omitempty"`
	Rounds int          `json:"rounds"`
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

// Rest is the share of the step outside matrix products and attention.
func (r StepResult) Rest() float64 {
	return 1 - r.Shares[kernels.ClassMatMul.String()] - r.Shares[kernels.ClassAttention.String()]
}

// Steps measures training steps (forward, backward, clipping, AdamW, f32), beside PyTorch
// when there is one.
func Steps(ctx context.Context, o StepOptions) (StepReport, error) {
	r := StepReport{}
	if err := o.fill(); err != nil {
		return r, fmt.Errorf("bench step: %w: %w", ErrOptions, err)
	}
	r.CPU, r.Rounds = cpuName(), o.Rounds
	for _, c := range o.cases() {
		o.Progress(fmt.Sprintf("%s, sequence %d, threads %d", c.Name, c.Context, c.Threads))
		result, err := r.measureStep(ctx, o, c)
		if err != nil {
			return r, fmt.Errorf("bench step: %s, sequence %d, threads %d: %w", c.Name, c.Context, c.Threads, err)
		}
		r.Steps = append(r.Steps, result)
	}
	return r, nil
}

// measureStep starts both sides and lets them take turns.
func (r *StepReport) measureStep(ctx context.Context, o StepOptions, c StepModel) (result StepResult, err error) {
	described, err := json.Marshal(c)
	if err != nil {
		return result, err
	}
	own, err := startPeer(ctx, nil, o.Binary, "bench", "step", "--worker", string(described))
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, own.close()) }()
	r.Kernel, r.Dropped = own.hello.Kernel, own.hello.Dropped
	torch, err := startPython(ctx, o.Python, torchScript, string(described))
	if err != nil {
		r.NoPeer = fmt.Sprintf("%v; it needs a Python with PyTorch (Debian: apt-get install python3-torch; PyPI: pip install torch), see --python", err)
	} else {
		defer torch.close()
		r.Peer, r.PeerKernel = torch.hello.Name, torch.hello.Kernel
	}
	return takeTurns(c, own, torch, o.Rounds)
}

// stepRequest asks for training steps.
type stepRequest struct {
	Steps int `json:"steps"`
	// Replays is how often the calls of the last step are made again, with nothing to wait for.
	Replays int `json:"replays,omitempty"`
}

// roundSteps is how many steps take a second or more, to go by the first two.
func roundSteps(second time.Duration) int {
	return 1 + int(time.Second/max(second, time.Millisecond))
}

func takeTurns(c StepModel, own, torch *peer, rounds int) (StepResult, error) {
	result := StepResult{StepModel: c, Shares: map[string]float64{}}
	if _, err := own.ask(stepRequest{Steps: 1}); err != nil { // warms up
		return result, err
	}
	warm, err := own.ask(stepRequest{Steps: 1})
	if err != nil {
		return result, err
	}
	request := stepRequest{Steps: roundSteps(time.Duration(warm.Seconds * float64(time.Second)))}
	if torch != nil {
		if _, err := torch.ask(stepRequest{Steps: 2}); err != nil {
			return result, err
		}
	}
	var rates, peerRates, ratios, computed []float64
	limit := 0.0 // GFLOP/s
	tokens := float64(c.tokens() * request.Steps)
	for range rounds {
		a, err := own.ask(request)
		if err != nil {
			return result, err
		}
		rates, result.PeakBytes = append(rates, tokens/a.Seconds), a.PeakBytes
		computed, limit = append(computed, float64(a.FLOPs)/a.Seconds/1e9), max(limit, a.Arithmetic)
		for class, seconds := range a.Classes {
			result.Shares[class] += seconds / a.Seconds / float64(rounds)
		}
		if torch == nil {
			continue
		}
		b, err := torch.ask(request)
		if err != nil {
			return result, err
		}
		peerRates, result.PeerPeakBytes = append(peerRates, tokens/b.Seconds), b.PeakBytes
		ratios = append(ratios, b.Seconds/a.Seconds)
	}
	result.TokensPerS, result.PeerTokensPerS, result.Ratio = median(rates), median(peerRates), median(ratios)
	if limit > 0 { // an accelerator's worker does not measure it
		result.Utilization = median(computed) / limit
	}
	return result, nil
}
