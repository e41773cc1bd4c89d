package bench

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"pnode/kernels"
	"pnode/kernels/cpu"
)

//go:embed openblas.py
var openblasScript string

// KernelOptions say what to measure.
type KernelOptions struct {
	Sides
	Threads []int  // default 1 and every core
	Library string // OpenBLAS; default the system's
}

// threadCounts checks the numbers of threads, by default 1 and every core, and sorts them.
func threadCounts(given []int) ([]int, error) {
	given = orElse(given, 1, runtime.GOMAXPROCS(0))
	return slices.Compact(slices.Sorted(slices.Values(given))), checkRange("threads", 1, runtime.NumCPU(), given...)
}

// KernelReport is the result of Kernels.
type KernelReport struct {
	Beside
	Variant  string         `json:"variant"` // instruction set of this program's kernels
	Limits   []Limits       `json:"limits"`
	Products []Product      `json:"products"`
	Summary  []ThreadResult `json:"summary,omitempty"` // by number of threads; needs the peer
}

// Limits are rates that no kernel of this machine can pass, medians over the rounds.
type Limits struct {
	Threads int `json:"threads"`
	// Arithmetic is the rate of multiply-adds in registers alone, in GFLOP/s.
	Arithmetic float64 `json:"gflops"`
	// Copy is the traffic of a copy of 64 MiB, read plus written, in GB/s.
	Copy float64 `json:"copy_gb_s"`
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
	counts, wrong := threadCounts(o.Threads)
	r := KernelReport{Beside: Beside{Rounds: o.Rounds}}
	if err := cmp.Or(o.fill(), wrong); err != nil {
		return r, fmt.Errorf("bench kernels: %w: %w", ErrOptions, err)
	}
	blas, err := startPeer(ctx, nil, o.Library, o.Python, "-c", openblasScript)
	if err != nil {
		r.NoPeer = fmt.Sprintf("%v; it needs Python 3 and OpenBLAS (Debian: apt-get install python3 libopenblas0-pthread), see also --python and --library", err)
	} else {
		defer blas.close()
		r.Peer, r.PeerKernel = blas.hello.Name, blas.hello.Kernel
	}
	for _, threads := range counts {
		if err := r.measure(ctx, o, blas, threads); err != nil {
			return r, fmt.Errorf("bench kernels: %w", err)
		}
	}
	return r, nil
}

// measure adds the limits and all products of a number of threads.
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
		r.Summary = append(r.Summary, ThreadResult{Threads: threads, MedianRatio: median(ratios), LeastRatio: slices.Min(ratios)})
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
	var arithmetic []float64
	took := takeTurns(rounds, func() (answer, error) {
		rate, err := arithmeticRate(dev)
		arithmetic = append(arithmetic, rate)
		return answer{}, err
	}, func() (answer, error) {
		return copying.run(callRequest{1, roundTime.Seconds()})
	})
	moved := kernels.Info(kernels.OpCopy).Bytes(copying.calls[0])
	l = Limits{Threads: dev.Threads(), Arithmetic: median(arithmetic), Copy: took[1].rate(float64(moved) / 1e9)}
	return l, cmp.Or(took[0].err, took[1].err)
}

// arithmeticRate returns the rate of the fastest batch of multiply-adds of a round, in GFLOP/s.
func arithmeticRate(dev *cpu.Device) (gflops float64, err error) {
	for round := time.Now(); time.Since(round) < roundTime; {
		begin := time.Now()
		flops, err := dev.Arithmetic(limitRounds)
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

// blasRequest is a request to openblas.py.
type blasRequest struct {
	callRequest
	M          int  `json:"m"`
	N          int  `json:"n"`
	K          int  `json:"k"`
	TransA     bool `json:"trans_a"`
	TransB     bool `json:"trans_b"`
	Accumulate bool `json:"accumulate"`
	Threads    int  `json:"threads"`
}

// measure runs the rounds of one product.
func (p *Product) measure(dev *cpu.Device, blas *peer, flags kernels.Flags, rounds int) error {
	own, err := newOwnCalls(dev, product(kernels.F32, p.M, p.N, p.K, flags))
	if err != nil {
		return err
	}
	defer own.close()
	flops := 2 * float64(p.M) * float64(p.N) * float64(p.K)
	request := callRequest{min(maxCalls, max(1, int(batchFLOPs*float64(p.Threads)/flops))), roundTime.Seconds()}
	asked := blas.asks(blasRequest{
		callRequest: request, M: p.M, N: p.N, K: p.K, Threads: p.Threads,
		TransA: flags&kernels.TransA != 0, TransB: flags&kernels.TransB != 0, Accumulate: flags&kernels.Accumulate != 0,
	})
	took := takeTurns(rounds, func() (answer, error) {
		if blas != nil && p.Threads > 1 {
			time.Sleep(settle)
		}
		return own.run(request)
	}, asked)
	units := flops * float64(request.Calls) / 1e9
	p.Rate, p.Peer, p.Ratio = took[0].rate(units), took[1].rate(units), took[0].ratio(took[1])
	return cmp.Or(took[0].err, took[1].err)
}

// Text returns the report as tables for people.
func (r KernelReport) Text() string {
	var w strings.Builder
	w.WriteString(r.text(r.Variant))
	fmt.Fprintf(&w, "Medians of %d rounds in which both sides take turns; a round counts its fastest batch.\n\n", r.Rounds)
	t := tabwriter.NewWriter(&w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "threads\tmultiply-adds GFLOP/s\tcopy GB/s\t")
	for _, l := range r.Limits {
		fmt.Fprintf(t, "%d\t%.1f\t%.1f\t\n", l.Threads, l.Arithmetic, l.Copy)
	}
	_ = t.Flush() // a Builder takes all
	fmt.Fprintln(&w, "\nf32 matrix products, GFLOP/s")
	fmt.Fprintln(t, "form\tM\tN\tK\tthreads\tpnode\tOpenBLAS\tratio\t")
	for _, p := range r.Products {
		peer := "-\t-\t"
		if r.Peer != "" {
			peer = fmt.Sprintf("%.1f\t%.2f\t", p.Peer, p.Ratio)
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%.1f\t%s\n", p.Form, p.M, p.N, p.K, p.Threads, p.Rate, peer)
	}
	_ = t.Flush()
	if r.NoPeer != "" {
		fmt.Fprintf(&w, "\nNo OpenBLAS to compare with: %s", r.NoPeer)
	}
	for _, s := range r.Summary {
		fmt.Fprintf(&w, "\nthreads %d: ratio %.2f in the median over the shapes, %.2f at least", s.Threads, s.MedianRatio, s.LeastRatio)
	}
	return w.String() + "\n"
}
