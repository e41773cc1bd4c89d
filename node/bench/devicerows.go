package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"pnode/kernels"
	"pnode/kernels/devices"
	"pnode/pipeline/model"
)

// repeated returns the side that repeats a peer's calls in batches; its answers hold the seconds of
// one call. Without a peer it is nil.
func (b *deviceBench) repeated(p *peer) side {
	if p == nil {
		return nil
	}
	r := callRequest{Calls: 1}
	for range 2 { // the first call finds everything cold
		a, err := p.ask(r)
		if err == nil && a.Seconds <= 0 {
			err = fmt.Errorf("%s says that a call took %v s", p.hello.Name, a.Seconds)
		}
		if err != nil {
			return func() (answer, error) { return a, err }
		}
		r.Calls = 1 + int(min(maxCalls-1, b.size.batch.Seconds()/a.Seconds))
	}
	r.RoundTime = b.size.round.Seconds()
	return func() (answer, error) {
		a, err := p.ask(r)
		a.Seconds /= float64(r.Calls)
		return a, err
	}
}

// compare sets the rates of a row, of answers of so many units each.
func (r *DeviceRow) compare(own, peer result, units float64) {
	r.Value, r.PeerValue, r.Ratio = own.rate(units), peer.rate(units), own.ratio(peer)
}

const teraFLOPs = "TFLOP/s"

func (b *deviceBench) productCells() (cells []cell) {
	for _, s := range b.size.products {
		what := fmt.Sprintf("bf16 product %dx%dx%d", s[0], s[1], s[2])
		cells = append(cells, cell{
			rows: []DeviceRow{
				{Row: rowProducts, What: what + ", own kernel", Unit: teraFLOPs, Peer: cuBLASLt, goal: ratioAtLeast(0.70)},
				{Row: rowProducts, What: what + ", cuBLASLt", Unit: teraFLOPs, Peer: "PyTorch", goal: ratioAtLeast(0.95)},
			},
			measure: func(ctx context.Context, rows []DeviceRow) error { return b.product(ctx, rows, s) },
		})
	}
	return cells
}

// product measures the package's own kernels, cuBLASLt and PyTorch in the same rounds.
func (b *deviceBench) product(ctx context.Context, rows []DeviceRow, s [3]int) (err error) {
	own, err := b.own(ctx, task{Kind: productTask, Own: true, Product: s}, false)
	if err != nil {
		return err
	}
	defer closing(own, &err)
	library, noLibrary := b.library(ctx, s)
	defer library.close()
	torch, noTorch := b.torch(ctx, torchCallsScript, torchCall{Device: b.torchName, Product: s[:]})
	defer torch.close()
	took := takeTurns(b.o.Rounds, b.repeated(own), b.repeated(library), b.repeated(torch))
	if took[0].err != nil {
		return took[0].err
	}
	units := 2 * float64(s[0]) * float64(s[1]) * float64(s[2]) / 1e12
	noLibrary, noTorch = cmp.Or(noLibrary, took[1].err), cmp.Or(noTorch, took[2].err)
	rows[0].compare(took[0], took[1], units)
	rows[0].open(noLibrary)
	if noLibrary == nil {
		rows[1].compare(took[1], took[2], units)
		rows[1].open(noTorch)
	} else {
		rows[1].open(noLibrary)
		if noTorch == nil {
			rows[0].Peer = "PyTorch"
			rows[0].compare(took[0], took[2], units)
			rows[0].Open += "; the ratio is to PyTorch"
		}
	}
	for i := range rows {
		b.fastest = max(b.fastest, rows[i].Value*1e12)
		if limit, known := knownPeak(b.device.Model); known && rows[i].Value > 0 {
			rows[i].Note = fmt.Sprintf("%.0f%% of the %.0f TFLOP/s of the data sheet", 100e12*rows[i].Value/limit, limit/1e12)
		}
	}
	return nil
}

// library starts the side whose products are cuBLASLt's.
func (b *deviceBench) library(ctx context.Context, s [3]int) (*peer, error) {
	if !strings.HasPrefix(b.device.Name, "cuda:") {
		return nil, lacking{errors.New("no cuBLASLt: it is for NVIDIA's driver")}
	}
	p, err := b.own(ctx, task{Kind: productTask, Product: s}, false)
	if err == nil && p.hello.Kernel != cuBLASLt {
		err = errors.Join(lacking{fmt.Errorf("no cuBLASLt: products are by %s", p.hello.Kernel)}, p.close())
		return nil, err
	}
	return p, err
}

func (b *deviceBench) attentionCells() (cells []cell) {
	for _, s := range b.size.attention {
		cells = append(cells, cell{
			rows: []DeviceRow{{
				Row: rowAttention, Unit: teraFLOPs, Peer: "PyTorch flash", goal: ratioAtLeast(0.60),
				What: fmt.Sprintf("bf16 attention and gradients, T %d, D %d", s.T, s.D),
			}},
			measure: func(ctx context.Context, rows []DeviceRow) error { return b.attention(ctx, &rows[0], s) },
		})
	}
	return cells
}

// attention measures both passes of causal attention together, in FLOPs of the op table.
func (b *deviceBench) attention(ctx context.Context, row *DeviceRow, s kernels.AttentionShape) (err error) {
	own, err := b.own(ctx, task{Kind: attentionTask, Attention: s}, false)
	if err != nil {
		return err
	}
	defer closing(own, &err)
	torch, noTorch := b.torch(ctx, torchCallsScript, torchCall{Device: b.torchName, Attention: []int{s.B, s.T, s.H, s.D}})
	defer torch.close()
	took := takeTurns(b.o.Rounds, b.repeated(own), b.repeated(torch))
	if took[0].err != nil {
		return took[0].err
	}
	none, flops := kernels.View{}, int64(0)
	for _, c := range []kernels.Call{kernels.AttentionForward(none, none, none, none, s), kernels.AttentionBackward(none, none, none, none, none, none, none, s)} {
		flops += kernels.Info(c.Op).FLOPs(c)
	}
	row.compare(took[0], took[1], float64(flops)/1e12)
	row.open(cmp.Or(noTorch, took[1].err))
	return nil
}

func (b *deviceBench) stepCells() []cell {
	step := func(m StepModel, row DeviceRow, measure func(ctx context.Context, row *DeviceRow) error) cell {
		row.What, row.Unit = fmt.Sprintf("training step of %s in bf16, T %d", m.Name, m.Context), "tokens/s"
		return cell{[]DeviceRow{row}, func(ctx context.Context, rows []DeviceRow) error { return measure(ctx, &rows[0]) }}
	}
	return []cell{
		step(b.size.step, DeviceRow{Row: rowStep, Peer: "PyTorch eager", goal: ratioAtLeast(1)}, func(ctx context.Context, row *DeviceRow) error {
			return b.steps(ctx, row, false)
		}),
		step(b.size.step, DeviceRow{Row: rowCompiled, Peer: "PyTorch compiled"}, func(ctx context.Context, row *DeviceRow) error {
			if b.noTorch != nil {
				return b.noTorch // the figure of this program is in the row before
			}
			return b.steps(ctx, row, true)
		}),
		step(b.size.large, DeviceRow{Row: rowLarge, Peer: "at its peak rate"}, b.large),
	}
}

// fitting measures training steps with the largest micro-batch for which there is memory, halving
// it from the model's on.
func fitting[R any](m StepModel, measure func(StepModel) (R, error)) (R, error) {
	for {
		result, err := measure(m)
		if err == nil || m.Batch <= 1 || !noRoom(err) {
			return result, err
		}
		m.Batch /= 2
	}
}

// noRoom reports whether an error, which may come from another program, is for want of memory.
func noRoom(err error) bool {
	return strings.Contains(err.Error(), "out of memory") || strings.Contains(err.Error(), "out of device memory")
}

// steps measures training steps beside PyTorch, with the largest micro-batch for which both have
// memory while the other one keeps its own.
func (b *deviceBench) steps(ctx context.Context, row *DeviceRow, compile bool) error {
	result, err := fitting(b.size.step, func(m StepModel) (stepResult, error) { return b.besideTorch(ctx, m, compile, row) })
	if err != nil {
		return err
	}
	own, torch := result.sides[0], result.sides[1]
	row.Value, row.PeerValue, row.Ratio = own.TokensPerS, torch.TokensPerS, torch.Ratio
	row.Note = result.peakNote()
	if torch.PeakBytes > 0 { // which a system may not tell
		row.Note += fmt.Sprintf(", PyTorch's %.2f GiB", gib(torch.PeakBytes))
	}
	if peak, of := b.peak(); peak > 0 {
		row.Note += fmt.Sprintf("; MFU %.1f%% of %s", 100*own.TokensPerS*result.tokenFLOPs()/peak, of)
	}
	return nil
}

func gib(bytes int64) float64 { return float64(bytes) / (1 << 30) }

func (r stepResult) peakNote() string {
	return fmt.Sprintf("micro-batch %d; peak memory %.2f GiB", r.Batch, gib(r.sides[0].PeakBytes))
}

// besideTorch starts both sides of a step and lets them take turns. That PyTorch fails, but for
// memory, leaves the comparison open.
func (b *deviceBench) besideTorch(ctx context.Context, m StepModel, compile bool, row *DeviceRow) (result stepResult, err error) {
	own, err := b.own(ctx, task{Kind: stepTask, Model: m, Storage: model.StorageBF16}, b.noTorch == nil)
	if err != nil {
		return result, err
	}
	defer closing(own, &err)
	torch, noTorch := b.torch(ctx, torchStepScript, torchStep{m, b.torchName, "bf16", compile})
	defer torch.close()
	if torch != nil {
		_, noTorch = torch.ask(stepRequest{1}) // which compiles
	}
	row.Open, row.Lacking = "", false
	if row.open(noTorch); noTorch == nil {
		result = trainInTurns(m, b.o.Rounds, own, torch)
		return result, cmp.Or(result.took[0].err, result.took[1].err)
	}
	if m.Batch > 1 && noRoom(noTorch) {
		return result, noTorch
	}
	result = trainInTurns(m, b.o.Rounds, own, nil)
	return result, result.took[0].err
}

// large measures steps of a model that has no peer here, beside the peak of the device.
func (b *deviceBench) large(ctx context.Context, row *DeviceRow) error {
	result, err := fitting(b.size.large, func(m StepModel) (result stepResult, err error) {
		own, err := b.own(ctx, task{Kind: stepTask, Model: m, Storage: model.StorageBF16}, false)
		if err != nil {
			return result, err
		}
		defer closing(own, &err)
		result = trainInTurns(m, b.o.Rounds, own)
		return result, result.took[0].err
	})
	if err != nil {
		return err
	}
	row.Value, row.Note = result.sides[0].TokensPerS, result.peakNote()
	peak, of := b.peak()
	if peak == 0 {
		row.open(errors.New("no peak: the card is not in the list of data sheets and no product was measured"))
		return nil
	}
	row.PeerValue, row.Ratio = peak/result.tokenFLOPs(), row.Value*result.tokenFLOPs()/peak
	row.Note += "; the ratio is the MFU, of " + of
	return nil
}

// peak returns the rate in FLOP/s that utilization is a share of, and its source: the data sheet, or
// else the fastest product that was measured before.
func (b *deviceBench) peak() (flops float64, of string) {
	if peak, known := knownPeak(b.device.Model); known {
		return peak, fmt.Sprintf("the %.0f TFLOP/s of the data sheet", peak/1e12)
	}
	return b.fastest, fmt.Sprintf("the %.3g TFLOP/s of the fastest product here", b.fastest/1e12)
}

// tokenFLOPs returns what a model computes for a token of a training step (Chowdhery et al. 2022,
// "PaLM", appendix B). It is 6 operations for each parameter that is multiplied: all but the
// embeddings', the tied head's counted once. Attention adds 12 L C for each position that a token
// attends, (T+1)/2 in the mean. What is recomputed does not count.
func (m StepModel) tokenFLOPs() float64 {
	cfg := m.config()
	params := 0
	for l := 1; l < cfg.Layers(); l++ {
		params += cfg.LayerLen(l)
	}
	return 6*float64(params) + 12*float64(m.Blocks)*float64(m.Channels)*float64(m.Context+1)/2
}

// lossCells returns the rows that train twice and compare the losses: on the device in another
// process, where they are the same to the bit, and then on the processor.
func (b *deviceBench) lossCells() []cell {
	var again, beside []cell
	for _, c := range b.size.repeats {
		what := fmt.Sprintf("%d steps of %s in %v", c.steps, c.Name, c.storage)
		all := goal{fmt.Sprintf("all %d", c.steps), func(r DeviceRow) bool { return int(r.Value) == c.steps }, true}
		again = append(again, cell{
			[]DeviceRow{{Row: rowRepeat, What: what + " again, in another process", Unit: "losses the same to the bit", goal: all}},
			func(ctx context.Context, rows []DeviceRow) error {
				return b.trainTwice(ctx, &rows[0], c, b.device.Name, func(same, one, two float64) float64 {
					if math.Float64bits(one) == math.Float64bits(two) {
						same++
					}
					return same
				})
			},
		})
		if c.tolerance == 0 {
			continue
		}
		within := goal{fmt.Sprintf("<= %g%%", 100*c.tolerance), func(r DeviceRow) bool { return r.Value <= 100*c.tolerance }, true}
		beside = append(beside, cell{
			[]DeviceRow{{Row: rowLosses, What: "losses of " + what + " beside the processor's", Unit: "% apart at most", goal: within}},
			func(ctx context.Context, rows []DeviceRow) error {
				return b.trainTwice(ctx, &rows[0], c, devices.CPU, func(apart, device, processor float64) float64 {
					return max(apart, 100*math.Abs(device-processor)/processor)
				})
			},
		})
	}
	return append(again, beside...)
}

// trainTwice trains on the device and on the other one, each in a process of its own, and adds up
// how the losses differ.
func (b *deviceBench) trainTwice(ctx context.Context, row *DeviceRow, c repeatCase, other string, add func(sum, one, two float64) float64) error {
	one, err := b.losses(ctx, c, b.device.Name)
	if err != nil {
		return err
	}
	two, err := b.losses(ctx, c, other)
	if err != nil {
		return err
	}
	for i := range one {
		row.Value = add(row.Value, one[i], two[i])
	}
	row.Note = fmt.Sprintf("the loss goes from %.4f to %.4f", two[0], two[len(two)-1])
	return nil
}

// losses returns those of a training in a process of its own.
func (b *deviceBench) losses(ctx context.Context, c repeatCase, device string) (losses []float64, err error) {
	own, err := b.own(ctx, task{Device: device, Kind: stepTask, Model: c.StepModel, Storage: c.storage, Learn: true}, false)
	if err != nil {
		return nil, err
	}
	defer closing(own, &err)
	a, err := own.ask(stepRequest{c.steps})
	if err == nil && len(a.Losses) != c.steps {
		err = fmt.Errorf("%d losses, want %d", len(a.Losses), c.steps)
	}
	return a.Losses, err
}
