package bench

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"pnode/kernels"
	"pnode/kernels/cpu"
)

// KernelOptions say what to measure.
type KernelOptions struct {
	Sides
	Threads []int  // default 1 and every core
	Library string // OpenBLAS; default the newest one
}

// threadCounts checks the numbers of threads, by default 1 and every core, and sorts them.
func threadCounts(given []int) ([]int, error) {
	given = orElse(given, 1, runtime.GOMAXPROCS(0))
	return slices.Compact(slices.Sorted(slices.Values(given))), checkRange("threads", 1, runtime.NumCPU(), given...)
}

// KernelReport is the result of Kernels.
type KernelReport struct {
	Beside
	Limits   []Limits       `json:"limits"`
	Products []Product      `json:"products"`
	Summary  []ThreadResult `json:"summary,omitempty"` // needs a peer
}

// HasRows reports whether there is something to show, whatever ended the measurement.
func (r KernelReport) HasRows() bool { return len(r.Products) > 0 }

// Limits are rates that no kernel of this machine can pass, medians over the rounds.
type Limits struct {
	Threads int `json:"threads"`
	// Arithmetic and PairArithmetic are the rates of multiply-adds in registers alone, in GFLOP/s: of
	// floats, and of what products of bf16 are made of, pairs or else floats.
	Arithmetic     float64 `json:"gflops"`
	PairArithmetic float64 `json:"bf16_gflops"`
	// Copy is the traffic of a copy of 64 MiB, read plus written, in GB/s.
	Copy float64 `json:"copy_gb_s"`
}

// of returns the rate of multiply-adds of a type.
func (l Limits) of(dtype kernels.DType) float64 {
	if dtype == kernels.BF16 {
		return l.PairArithmetic
	}
	return l.Arithmetic
}

// Product is one matrix product of one number of threads, whose operands and result are of DType.
// Rates are medians in GFLOP/s.
type Product struct {
	DType   string `json:"dtype"`
	Form    string `json:"form"` // NN, NT, TN: T for an operand stored transposed
	M       int    `json:"m"`
	N       int    `json:"n"`
	K       int    `json:"k"`
	Threads int    `json:"threads"`
	// Limit is the rate of multiply-adds in registers alone.
	Limit float64     `json:"limit_gflops"`
	Rate  float64     `json:"gflops"`
	Peers []PeerRate  `json:"peers,omitempty"`
	Best  *Comparison `json:"best,omitempty"` // with the peer that is the fastest at it
}

// PeerRate says what a peer did of a product, or why it did not.
type PeerRate struct {
	Comparison
	Rate float64 `json:"gflops"`
	Open string  `json:"open,omitempty"`
}

// Comparison is the median over the rounds of this program's rate to a peer's.
type Comparison struct {
	Peer  string  `json:"peer"`
	Ratio float64 `json:"ratio"`
}

// fastest returns the comparison with the lowest ratio, nil without any.
func fastest(all []Comparison) *Comparison {
	all = slices.DeleteFunc(all, func(c Comparison) bool { return c.Ratio == 0 })
	if len(all) == 0 {
		return nil
	}
	least := slices.MinFunc(all, func(a, b Comparison) int { return cmp.Compare(a.Ratio, b.Ratio) })
	return &least
}

// ThreadResult sums up the products of one type and number of threads, each beside the peer that is the
// fastest at it.
type ThreadResult struct {
	DType       string  `json:"dtype"`
	Threads     int     `json:"threads"`
	MedianRatio float64 `json:"median_ratio"`
	LeastRatio  float64 `json:"least_ratio"`
}

// shapes are M, N, K of the products that are measured, each as NN, NT (forward pass of a
// linear layer) and TN (gradient of its weight).
var shapes = [][3]int{
	{512, 512, 512}, {1024, 3072, 768}, {1024, 768, 3072}, {4096, 384, 384}, {4096, 1536, 384}, {1000, 777, 333},
}

var forms = []struct {
	name  string
	flags kernels.Flags
}{{"NN", 0}, {"NT", kernels.TransB}, {"TN", kernels.TransA}}

// precisions are the types of the products that are measured. In float32 those of the form TN are added
// to what is there, as gradients are; no peer adds products of bf16 to floats.
var precisions = []struct {
	name  string
	dtype kernels.DType
	adds  bool
}{{"f32", kernels.F32, true}, {"bf16", kernels.BF16, false}}

const (
	openBLAS    = "OpenBLAS"
	pyTorch     = "PyTorch"
	getOpenBLAS = "it needs Python 3 and OpenBLAS (Debian: apt-get install python3 libopenblas0-pthread; PyPI: pip install numpy), see also --python and --library"
	getPyTorch  = "it needs a Python with PyTorch (Debian: apt-get install python3-torch; PyPI: pip install torch), see --python"
)

// multiplier is a peer that computes products, of the types for which it has functions.
type multiplier struct {
	*peer
	name   string
	dtypes []string
}

// kernelBench measures products on one device of this program beside those of its peers.
type kernelBench struct {
	o     KernelOptions
	peers []multiplier
	dev   *cpu.Device
}

// Kernels measures matrix products beside the newest OpenBLAS and PyTorch's libraries, where there are any.
func Kernels(ctx context.Context, o KernelOptions) (KernelReport, error) {
	counts, wrong := threadCounts(o.Threads)
	r := KernelReport{Beside: Beside{Rounds: o.Rounds}}
	if err := cmp.Or(o.fill(), wrong); err != nil {
		return r, fmt.Errorf("bench kernels: %w: %w", ErrOptions, err)
	}
	b := kernelBench{o: o}
	defer b.close()
	o.Progress("looking for other programs")
	r.Peers = b.start(ctx)
	for _, threads := range counts {
		if err := b.measure(ctx, &r, threads); err != nil {
			return r, fmt.Errorf("bench kernels: %w", err)
		}
	}
	return r, nil
}

// start starts the peers that there are, and says what they are, or what is missing.
func (b *kernelBench) start(ctx context.Context) []Program {
	both := []Program{{Name: openBLAS}, {Name: pyTorch}}
	blas, from, others, err := startOpenBLAS(ctx, b.o.Python, b.o.Library)
	if err != nil {
		both[0].Missing = fmt.Sprintf("%v; %s", err, getOpenBLAS)
	} else {
		both[0] = blas.program()
		b.peers = append(b.peers, multiplier{blas, openBLAS, []string{"f32"}})
	}
	both[0].From, both[0].Others = from, others
	torch, err := startPeer(ctx, nil, torchCall{Device: "cpu"}, b.o.Python, "-c", torchCallsScript)
	if err != nil {
		both[1].Missing = fmt.Sprintf("%v; %s", err, getPyTorch)
	} else {
		both[1] = torch.program()
		b.peers = append(b.peers, multiplier{torch, pyTorch, []string{"f32", "bf16"}})
	}
	return both
}

func (b *kernelBench) close() {
	for _, p := range b.peers {
		_ = p.close() // what it measured has come
	}
}

// measure adds the limits and all products of a number of threads.
func (b *kernelBench) measure(ctx context.Context, r *KernelReport, threads int) (err error) {
	if b.dev, err = cpu.New(cpu.Options{Threads: threads}); err != nil {
		return err
	}
	defer b.dev.Close()
	r.CPU, r.Kernel, r.Dropped = b.dev.Model(), b.dev.Variant(), b.dev.Dropped()
	b.o.Progress(fmt.Sprintf("limits, threads %d", threads))
	limits, err := measureLimits(b.dev, b.o.Rounds)
	if err != nil {
		return err
	}
	r.Limits = append(r.Limits, limits)
	for _, precision := range precisions {
		var ratios []float64
		for _, s := range shapes {
			for _, f := range forms {
				if err := ctx.Err(); err != nil {
					return err
				}
				p := Product{DType: precision.name, Form: f.name, M: s[0], N: s[1], K: s[2], Threads: threads, Limit: limits.of(precision.dtype)}
				flags := f.flags
				if precision.adds && flags&kernels.TransA != 0 {
					flags |= kernels.Accumulate
				}
				b.o.Progress(fmt.Sprintf("%s %s %d x %d x %d, threads %d", p.DType, p.Form, p.M, p.N, p.K, threads))
				if err := b.product(&p, precision.dtype, flags); err != nil {
					return err
				}
				if p.Best != nil {
					ratios = append(ratios, p.Best.Ratio)
				}
				r.Products = append(r.Products, p)
			}
		}
		if len(ratios) > 0 {
			r.Summary = append(r.Summary, ThreadResult{DType: precision.name, Threads: threads, MedianRatio: median(ratios), LeastRatio: slices.Min(ratios)})
		}
	}
	return nil
}

const (
	limitRounds = 1_000_000 // of multiply-adds a thread: some milliseconds
	copyFloats  = 16 << 20
)

func measureLimits(dev *cpu.Device, rounds int) (l Limits, err error) {
	copying, err := newOwnCalls(dev, func(o *ownCalls) []kernels.Call {
		return []kernels.Call{kernels.Copy(o.random(kernels.F32, copyFloats), o.random(kernels.F32, copyFloats), copyFloats)}
	})
	if err != nil {
		return l, err
	}
	defer copying.close()
	var floats, pairs []float64
	multiplyAdds := func(dtype kernels.DType, rates *[]float64) side {
		return func() (answer, error) {
			rate, err := arithmeticRate(dev, dtype)
			*rates = append(*rates, rate)
			return answer{}, err
		}
	}
	took := takeTurns(rounds, multiplyAdds(kernels.F32, &floats), multiplyAdds(kernels.BF16, &pairs), func() (answer, error) {
		return copying.run(callRequest{1, roundTime.Seconds()})
	})
	moved := kernels.Info(kernels.OpCopy).Bytes(copying.calls[0])
	l = Limits{Threads: dev.Threads(), Arithmetic: median(floats), PairArithmetic: median(pairs), Copy: took[2].rate(float64(moved) / 1e9)}
	return l, cmp.Or(took[0].err, took[1].err, took[2].err)
}

// arithmeticRate returns the rate of the fastest batch of multiply-adds of a round, in GFLOP/s.
func arithmeticRate(dev *cpu.Device, dtype kernels.DType) (gflops float64, err error) {
	for round := time.Now(); time.Since(round) < roundTime; {
		begin := time.Now()
		flops, err := dev.Arithmetic(dtype, limitRounds)
		if err != nil {
			return 0, err
		}
		gflops = max(gflops, float64(flops)/time.Since(begin).Seconds()/1e9)
	}
	return gflops, nil
}

// batchFLOPs is the work of a batch for each thread: some 15 ms.
var batchFLOPs = 1.5e9

// settle is how long a peer's threads may spin after an answer: OpenBLAS's wait for 2^26
// cycles before they sleep.
const settle = 60 * time.Millisecond

// productRequest is a request to openblas.py and torchcalls.py.
type productRequest struct {
	callRequest
	DType      string `json:"dtype"`
	M          int    `json:"m"`
	N          int    `json:"n"`
	K          int    `json:"k"`
	TransA     bool   `json:"trans_a"`
	TransB     bool   `json:"trans_b"`
	Accumulate bool   `json:"accumulate"`
	Threads    int    `json:"threads"`
}

// product runs the rounds of one product. A peer that fails is left out, with the reason.
func (b *kernelBench) product(p *Product, dtype kernels.DType, flags kernels.Flags) error {
	own, err := newOwnCalls(b.dev, product(dtype, p.M, p.N, p.K, flags))
	if err != nil {
		return err
	}
	defer own.close()
	flops := 2 * float64(p.M) * float64(p.N) * float64(p.K)
	request := callRequest{min(maxCalls, max(1, int(batchFLOPs*float64(p.Threads)/flops))), roundTime.Seconds()}
	asked := productRequest{
		callRequest: request, DType: p.DType, M: p.M, N: p.N, K: p.K, Threads: p.Threads,
		TransA: flags&kernels.TransA != 0, TransB: flags&kernels.TransB != 0, Accumulate: flags&kernels.Accumulate != 0,
	}
	sides := []side{b.settled(p.Threads, func() (answer, error) { return own.run(request) })}
	for _, peer := range b.peers {
		if slices.Contains(peer.dtypes, p.DType) {
			p.Peers = append(p.Peers, PeerRate{Comparison: Comparison{Peer: peer.name}})
			sides = append(sides, b.settled(p.Threads, peer.asks(asked)))
		}
	}
	took := takeTurns(b.o.Rounds, sides...)
	units := flops * float64(request.Calls) / 1e9
	p.Rate = took[0].rate(units)
	var all []Comparison
	for i := range p.Peers {
		peer, other := &p.Peers[i], took[i+1]
		if peer.Rate, peer.Ratio = other.rate(units), took[0].ratio(other); other.err != nil {
			peer.Open = other.err.Error()
		}
		all = append(all, peer.Comparison)
	}
	p.Best = fastest(all)
	return took[0].err
}

// settled lets threads of the side before go to sleep, where they would take a core from this one's.
func (b *kernelBench) settled(threads int, s side) side {
	if threads == 1 || len(b.peers) == 0 {
		return s
	}
	return func() (answer, error) {
		time.Sleep(settle)
		return s()
	}
}
