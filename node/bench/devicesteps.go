package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"pnode/pipeline/model"
)

// torchStep is the argument of torchstep.py on a device.
type torchStep struct {
	StepModel
	Device  string `json:"device"`
	DType   string `json:"dtype"`
	Compile bool   `json:"compile,omitempty"`
}

const tokensPerSecond = "tokens/s"

func (b *deviceBench) stepCells() []cell {
	step := func(row, peer string, g goal, compile bool) cell {
		return cell{
			rows:  []DeviceRow{{Row: row, What: b.stepName(b.size.step), Unit: tokensPerSecond, Peer: peer}},
			goals: []goal{g},
			measure: func(ctx context.Context, rows []DeviceRow) error {
				return b.steps(ctx, &rows[0], compile)
			},
		}
	}
	return []cell{
		step(rowStep, "PyTorch eager", ratioAtLeast(1), false),
		step(rowCompiled, "PyTorch compiled", goal{}, true),
		{
			rows:  []DeviceRow{{Row: rowLarge, What: b.stepName(b.size.large), Unit: tokensPerSecond, Peer: "at its peak rate"}},
			goals: []goal{{}},
			measure: func(ctx context.Context, rows []DeviceRow) error {
				return b.large(ctx, &rows[0])
			},
		},
	}
}

func (b *deviceBench) stepName(m StepModel) string {
	return fmt.Sprintf("training step of %s in bf16, T %d", m.Name, m.Context)
}

// fitting tries micro-batches until there is memory for one, halving from the model's on. It gives
// the one that was tried last.
func fitting(m StepModel, try func(StepModel) error) (StepModel, error) {
	for {
		err := try(m)
		if err == nil || m.Batch <= 1 || !noRoom(err) {
			return m, err
		}
		m.Batch /= 2
	}
}

// noRoom tells whether an error, which may come from another program, is for want of memory.
func noRoom(err error) bool {
	return strings.Contains(err.Error(), "out of memory") || strings.Contains(err.Error(), "out of device memory")
}

// steps measures training steps beside PyTorch, with the largest micro-batch for which both have
// memory while the other one keeps its own.
func (b *deviceBench) steps(ctx context.Context, row *DeviceRow, compile bool) error {
	if compile && b.noTorch != nil {
		return b.noTorch // the figure of this program is in the row before
	}
	var result StepResult
	m, err := fitting(b.size.step, func(m StepModel) (err error) {
		result, err = b.turns(ctx, m, compile, row)
		return err
	})
	if err != nil {
		return err
	}
	b.batch = m.Batch
	row.Value, row.PeerValue, row.Ratio = result.TokensPerS, result.PeerTokensPerS, result.Ratio
	row.Note = fmt.Sprintf("micro-batch %d; peak memory %.2f GiB", m.Batch, gib(result.PeakBytes))
	if result.PeerPeakBytes > 0 { // which a system may not tell
		row.Note += fmt.Sprintf(", PyTorch's %.2f GiB", gib(result.PeerPeakBytes))
	}
	if peak, of := b.peak(); peak > 0 {
		row.Note += fmt.Sprintf("; MFU %.1f%% of %s", 100*result.TokensPerS*m.tokenFLOPs()/peak, of)
	}
	return nil
}

func gib(bytes int64) float64 { return float64(bytes) / (1 << 30) }

// turns starts both sides of a step and lets them take turns. That PyTorch fails, but for memory,
// leaves the comparison open.
func (b *deviceBench) turns(ctx context.Context, m StepModel, compile bool, row *DeviceRow) (result StepResult, err error) {
	own, err := b.own(ctx, deviceTask{Kind: stepTask, Model: m, Storage: model.StorageBF16, BesideTorch: b.noTorch == nil})
	if err != nil {
		return result, err
	}
	defer closing(own, &err)
	torch, noTorch := b.torch(ctx, torchScript, torchStep{m, b.torchName, "bf16", compile})
	defer dismiss(torch)
	if torch != nil {
		_, noTorch = torch.ask(stepRequest{Steps: 1}) // which compiles
	}
	if noTorch != nil && m.Batch > 1 && noRoom(noTorch) {
		return result, noTorch
	}
	row.Open, row.Lacking = "", false
	row.open(noTorch)
	if noTorch != nil {
		return takeTurns(m, own, nil, b.o.Rounds)
	}
	return takeTurns(m, own, torch, b.o.Rounds)
}

// large measures steps of a model that has no peer here, beside the peak of the device.
func (b *deviceBench) large(ctx context.Context, row *DeviceRow) error {
	var result StepResult
	m, err := fitting(b.size.large, func(m StepModel) (err error) {
		own, err := b.own(ctx, deviceTask{Kind: stepTask, Model: m, Storage: model.StorageBF16})
		if err != nil {
			return err
		}
		defer closing(own, &err)
		result, err = takeTurns(m, own, nil, b.o.Rounds)
		return err
	})
	if err != nil {
		return err
	}
	row.Value = result.TokensPerS
	row.Note = fmt.Sprintf("micro-batch %d; peak memory %.2f GiB", m.Batch, gib(result.PeakBytes))
	peak, of := b.peak()
	if peak == 0 {
		row.open(errors.New("no peak: the card is not in the list of data sheets and no product was measured"))
		return nil
	}
	row.PeerValue, row.Ratio = peak/m.tokenFLOPs(), row.Value*m.tokenFLOPs()/peak
	row.Note += "; the ratio is the MFU, of " + of
	return nil
}

// peak is the rate in FLOP/s that utilization is a share of, and what it is: the data sheet's, or
// else that of the fastest product which was measured before.
func (b *deviceBench) peak() (flops float64, of string) {
	if peak, known := knownPeak(b.device.Model); known {
		return peak, fmt.Sprintf("the %.0f TFLOP/s of the data sheet", peak/1e12)
	}
	return b.fastest, fmt.Sprintf("the %.3g TFLOP/s of the fastest product here", b.fastest/1e12)
}

// tokenFLOPs is what a model computes for a token of a training step (Chowdhery et al. 2022,
// "PaLM", appendix B): 6 operations for each parameter that is multiplied, which all are but the
// embeddings', the tied head's counted once; and for attention 12 L C for each position that a token
// attends, of which there are (T+1)/2 in the mean. What is recomputed does not count.
func (m StepModel) tokenFLOPs() float64 {
	cfg := m.config()
	params := 0
	for l := 1; l < cfg.Layers(); l++ {
		params += cfg.LayerLen(l)
	}
	return 6*float64(params) + 12*float64(m.Blocks)*float64(m.Channels)*float64(m.Context+1)/2
}
