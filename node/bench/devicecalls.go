package bench

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"pnode/kernels"
)

//go:embed torchcalls.py
var torchCallsOnly string

var torchCallsScript = torchPeerScript + torchCallsOnly

// torchCall is the argument of torchcalls.py.
type torchCall struct {
	Device    string `json:"device"`
	Product   []int  `json:"product,omitempty"`   // M, N, K
	Attention []int  `json:"attention,omitempty"` // B, T, H, D
}

// callRequest asks either side for the fastest batch of so many calls.
type callRequest struct {
	Calls     int     `json:"calls"`
	RoundTime float64 `json:"round_time"` // seconds
}

// maxCalls bounds a batch: a card's queue has an end.
const maxCalls = 1000

// calibrate finds how many calls a batch has. The first one finds everything cold.
func (s deviceSize) calibrate(p *peer) (callRequest, error) {
	r := callRequest{Calls: 1}
	for range 2 {
		a, err := p.ask(r)
		if err != nil {
			return r, err
		}
		if a.Seconds <= 0 {
			return r, fmt.Errorf("%s says that a call took %v s", p.hello.Name, a.Seconds)
		}
		r.Calls = 1 + int(min(maxCalls-1, s.batch.Seconds()/a.Seconds))
	}
	r.RoundTime = s.round.Seconds()
	return r, nil
}

// turns are what sides that took turns did.
type turns struct {
	seconds [][]float64 // by side, of a call in each round; none of a side that is not there
	failed  []error     // by side, why it was not measured though it is there
}

// contest lets sides take turns. A side may be nil; one but the first may fail.
func (b *deviceBench) contest(sides ...*peer) (t turns, err error) {
	requests := make([]callRequest, len(sides))
	t = turns{make([][]float64, len(sides)), make([]error, len(sides))}
	for i, p := range sides {
		if p != nil {
			requests[i], t.failed[i] = b.size.calibrate(p)
		}
	}
	for range b.o.Rounds {
		for i, p := range sides {
			if p == nil || t.failed[i] != nil {
				continue
			}
			var a answer
			a, t.failed[i] = p.ask(requests[i])
			t.seconds[i] = append(t.seconds[i], a.Seconds/float64(requests[i].Calls))
		}
	}
	for i := range sides {
		if t.failed[i] != nil {
			t.seconds[i] = nil
		}
	}
	return t, t.failed[0]
}

// first is the first error, nil where there is none.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// compare sets the rates of a row, of calls of so many units: the peer's, the ratio.
func (r *DeviceRow) compare(own, peer []float64, units float64) {
	var ratios []float64
	for i := range min(len(own), len(peer)) {
		ratios = append(ratios, peer[i]/own[i])
	}
	r.Value, r.Ratio = units/median(own), median(ratios)
	if len(peer) > 0 {
		r.PeerValue = units / median(peer)
	}
}

// open leaves a row, or its comparison, open, if there is a reason.
func (r *DeviceRow) open(why error) {
	if why != nil {
		r.Open = strings.ReplaceAll(why.Error(), "\n", "; ")
		r.Lacking = errors.As(why, new(lacking))
	}
}

const teraFLOPs = "TFLOP/s"

func (b *deviceBench) productCells() (cells []cell) {
	for _, s := range b.size.products {
		what := fmt.Sprintf("bf16 product %dx%dx%d", s[0], s[1], s[2])
		cells = append(cells, cell{
			rows: []DeviceRow{
				{Row: rowProducts, What: what + ", own kernel", Unit: teraFLOPs, Peer: cuBLASLt},
				{Row: rowProducts, What: what + ", cuBLASLt", Unit: teraFLOPs, Peer: "PyTorch"},
			},
			goals:   []goal{ratioAtLeast(0.70), ratioAtLeast(0.95)},
			measure: func(ctx context.Context, rows []DeviceRow) error { return b.product(ctx, rows, s) },
		})
	}
	return cells
}

// product measures the package's own kernels, cuBLASLt and PyTorch in the same rounds.
func (b *deviceBench) product(ctx context.Context, rows []DeviceRow, s [3]int) (err error) {
	own, err := b.own(ctx, deviceTask{Kind: productTask, Own: true, Product: s})
	if err != nil {
		return err
	}
	defer closing(own, &err)
	library, noLibrary := b.library(ctx, s)
	defer dismiss(library)
	torch, noTorch := b.torch(ctx, torchCallsScript, torchCall{Device: b.torchName, Product: s[:]})
	defer dismiss(torch)
	took, err := b.contest(own, library, torch)
	if err != nil {
		return err
	}
	units := 2 * float64(s[0]) * float64(s[1]) * float64(s[2]) / 1e12
	noLibrary, noTorch = first(noLibrary, took.failed[1]), first(noTorch, took.failed[2])
	rows[0].compare(took.seconds[0], took.seconds[1], units)
	rows[0].open(noLibrary)
	if noLibrary == nil {
		rows[1].compare(took.seconds[1], took.seconds[2], units)
		rows[1].open(noTorch)
	} else {
		rows[1].open(noLibrary)
		if noTorch == nil {
			rows[0].Peer = "PyTorch"
			rows[0].compare(took.seconds[0], took.seconds[2], units)
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

// library is the side whose products are cuBLASLt's.
func (b *deviceBench) library(ctx context.Context, s [3]int) (*peer, error) {
	if !strings.HasPrefix(b.device.Name, "cuda:") {
		return nil, lacking{errors.New("no cuBLASLt: it is for NVIDIA's driver")}
	}
	p, err := b.own(ctx, deviceTask{Kind: productTask, Product: s})
	if err != nil {
		return nil, err
	}
	if by := p.hello.Kernel; by != cuBLASLt {
		return nil, errors.Join(lacking{fmt.Errorf("no cuBLASLt: products are by %s", by)}, p.close())
	}
	return p, nil
}

func (b *deviceBench) attentionCells() (cells []cell) {
	for _, s := range b.size.attention {
		cells = append(cells, cell{
			rows: []DeviceRow{{
				Row: rowAttention, Unit: teraFLOPs, Peer: "PyTorch flash",
				What: fmt.Sprintf("bf16 attention and gradients, T %d, D %d", s.T, s.D),
			}},
			goals:   []goal{ratioAtLeast(0.60)},
			measure: func(ctx context.Context, rows []DeviceRow) error { return b.attention(ctx, &rows[0], s) },
		})
	}
	return cells
}

// attention measures both passes together.
func (b *deviceBench) attention(ctx context.Context, row *DeviceRow, s kernels.AttentionShape) (err error) {
	own, err := b.own(ctx, deviceTask{Kind: attentionTask, Attention: s})
	if err != nil {
		return err
	}
	defer closing(own, &err)
	torch, noTorch := b.torch(ctx, torchCallsScript, torchCall{Device: b.torchName, Attention: []int{s.B, s.T, s.H, s.D}})
	defer dismiss(torch)
	took, err := b.contest(own, torch)
	if err != nil {
		return err
	}
	row.compare(took.seconds[0], took.seconds[1], float64(attentionFLOPs(s))/1e12)
	row.open(first(noTorch, took.failed[1]))
	return nil
}

// attentionFLOPs are those of both passes of causal attention by the op table.
func attentionFLOPs(s kernels.AttentionShape) (n int64) {
	none := kernels.View{}
	for _, c := range []kernels.Call{
		kernels.AttentionForward(none, none, none, none, s), kernels.AttentionBackward(none, none, none, none, none, none, none, s),
	} {
		n += kernels.Info(c.Op).FLOPs(c)
	}
	return n
}

// serveCalls answers callRequests.
func serveCalls(calls *ownCalls, r callRequest) (a answer, err error) {
	if r.Calls < 1 || r.Calls > maxCalls {
		return a, fmt.Errorf("%d calls, want 1 to %d", r.Calls, maxCalls)
	}
	a.Seconds, err = calls.run(r.Calls, time.Duration(r.RoundTime*float64(time.Second)))
	return a, err
}
