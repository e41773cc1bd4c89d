package bench

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"pnode/kernels"
	"pnode/kernels/cpu"
)

//go:embed openblas.py
var openblasScript string

// KernelOptions say what to measure; the zero value takes the defaults.
type KernelOptions struct {
	Rounds  int    // default 5
	Threads []int  // default 1 and every core
	Python  string // default python3
	Library string // OpenBLAS; default the system's
	// Progress is told what is measured now; nil for nobody.
	Progress func(string)
}

func (o *KernelOptions) fill() error {
	if o.Rounds == 0 {
		o.Rounds = 5
	}
	if o.Rounds < 1 {
		return fmt.Errorf("--rounds is %d: take 1 or more", o.Rounds)
	}
	if o.Python == "" {
		o.Python = "python3"
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	var err error
	o.Threads, err = threadCounts(o.Threads)
	return err
}

// KernelReport is the result of Kernels.
type KernelReport struct {
	CPU     string `json:"cpu"`
	Variant string `json:"variant"` // instruction set of this program's kernels
	// Dropped says which instruction sets of the processor computed wrong.
	Dropped []string `json:"dropped,omitempty"`
	Peer    string   `json:"peer,omitempty"`
	// PeerKernel is the peer's name of the processor whose kernels it ran.
	PeerKernel string `json:"peer_kernel,omitempty"`
	// NoPeer says why there is no peer and how to get one.
	NoPeer   string         `json:"no_peer,omitempty"`
	Rounds   int            `json:"rounds"`
	Limits   []Limits       `json:"limits"`
	Products []Product      `json:"products"`
	Summary  []ThreadResult `json:"summary,omitempty"` // by number of threads; needs the peer
}

// Product is one matrix product of one number of threads. Rates are medians in GFLOP/s;
// Ratio is the median over the rounds of this program's rate to the peer's.
type Product struct {
	Form    string  `json:"form"` // NN, NT, TN: T for an operand stored transposed
	M       int     `json:"m"`
	N       int     `json:"n"`
	K       int     `json:"k"`
	Threads int     `json:"threads"`
	Rate    float64 `json:"gflops"`
	Peer    float64 `json:"peer_gflops,omitempty"`
	Ratio   float64 `json:"ratio,omitempty"`
}

// ThreadResult sums up the products of one number of threads.
type ThreadResult struct {
	Threads     int     `json:"threads"`
	MedianRatio float64 `json:"median_ratio"`
	LeastRatio  float64 `json:"least_ratio"`
}

// shapes are M, N, K of the products that are measured, each as NN, NT (forward pass of a
// linear layer) and TN with accumulation (gradient of its weight).
var shapes = [][3]int{
	{512, 512, 512}, {1024, 3072, 768}, {1024, 768, 3072}, {4096, 384, 384}, {4096, 1536, 384}, {1000, 777, 333},
}

var forms = []struct {
	name  string
	flags kernels.Flags
}{{"NN", 0}, {"NT", kernels.TransB}, {"TN", kernels.TransA | kernels.Accumulate}}

// Kernels measures matrix products, beside OpenBLAS when there is one.
func Kernels(ctx context.Context, o KernelOptions) (KernelReport, error) {
	if err := o.fill(); err != nil {
		return KernelReport{}, fmt.Errorf("bench kernels: %w: %w", ErrOptions, err)
	}
	r := KernelReport{Rounds: o.Rounds}
	blas, err := startPython(ctx, o.Python, openblasScript, o.Library)
	if err != nil {
		r.NoPeer = fmt.Sprintf("%v; it needs Python 3 and OpenBLAS (Debian: apt-get install python3 libopenblas0-pthread), see also --python and --library", err)
	} else {
		defer blas.close()
		r.Peer, r.PeerKernel = blas.hello.Name, blas.hello.Kernel
	}
	for _, threads := range o.Threads {
		if err := r.measure(ctx, o, blas, threads); err != nil {
			return r, fmt.Errorf("bench kernels: %w", err)
		}
	}
	return r, nil
}

// measure adds the limits and all products with a number of threads.
func (r *KernelReport) measure(ctx context.Context, o KernelOptions, blas *peer, threads int) error {
	dev, err := cpu.New(cpu.Options{Threads: threads})
	if err != nil {
		return err
	}
	defer dev.Close()
	r.CPU, r.Variant, r.Dropped = dev.Model(), dev.Variant(), dev.Dropped()
	o.Progress(fmt.Sprintf("limits, threads %d", threads))
	limits, err := measureLimits(dev, o.Rounds)
	if err != nil {
		return err
	}
	r.Limits = append(r.Limits, limits)
	var ratios []float64
	for _, s := range shapes {
		for _, f := range forms {
			if err := ctx.Err(); err != nil {
				return err
			}
			p := Product{Form: f.name, M: s[0], N: s[1], K: s[2], Threads: threads}
			o.Progress(fmt.Sprintf("%s %d x %d x %d, threads %d", p.Form, p.M, p.N, p.K, threads))
			if err := p.measure(dev, blas, f.flags, o.Rounds); err != nil {
				return err
			}
			r.Products = append(r.Products, p)
			ratios = append(ratios, p.Ratio)
		}
	}
	if blas != nil {
		r.Summary = append(r.Summary, ThreadResult{Threads: threads, MedianRatio: median(ratios), LeastRatio: least(ratios)})
	}
	return nil
}

// batchFLOPs is the work of a batch for each thread: some 15 ms.
var batchFLOPs = 1.5e9

// settle is how long a peer's threads may spin after an answer: OpenBLAS's wait for 2^26
// cycles before they sleep.
const settle = 60 * time.Millisecond

// measure runs the rounds of one product.
func (p *Product) measure(dev *cpu.Device, blas *peer, flags kernels.Flags, rounds int) error {
	own, err := newOwnProduct(dev, *p, flags)
	if err != nil {
		return err
	}
	defer own.close()
	flops := 2 * float64(p.M) * float64(p.N) * float64(p.K)
	calls := max(1, int(batchFLOPs*float64(p.Threads)/flops))
	request := blasRequest{
		M: p.M, N: p.N, K: p.K, Threads: p.Threads, Calls: calls, RoundTime: roundTime.Seconds(),
		TransA: flags&kernels.TransA != 0, TransB: flags&kernels.TransB != 0, Accumulate: flags&kernels.Accumulate != 0,
	}
	var rates, peerRates, ratios []float64
	for range rounds {
		seconds, err := own.run(calls, roundTime)
		if err != nil {
			return err
		}
		rates = append(rates, flops*float64(calls)/seconds/1e9)
		if blas == nil {
			continue
		}
		a, err := blas.ask(request)
		if err != nil {
			return err
		}
		peerRates = append(peerRates, flops*float64(calls)/a.Seconds/1e9)
		ratios = append(ratios, a.Seconds/seconds)
		if p.Threads > 1 {
			time.Sleep(settle)
		}
	}
	p.Rate, p.Peer, p.Ratio = median(rates), median(peerRates), median(ratios)
	return nil
}

// blasRequest is a request to openblas.py.
type blasRequest struct {
	M          int  `json:"m"`
	N          int  `json:"n"`
	K          int  `json:"k"`
	TransA     bool `json:"trans_a"`
	TransB     bool `json:"trans_b"`
	Accumulate bool `json:"accumulate"`
	Threads    int  `json:"threads"`
	Calls      int  `json:"calls"`

	RoundTime float64 `json:"round_time"` // seconds
}
