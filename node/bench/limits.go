package bench

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"pnode/kernels"
	"pnode/kernels/cpu"
)

// Limits are what no kernel of this machine can pass, medians over the rounds.
type Limits struct {
	Threads int `json:"threads"`
	// Arithmetic is the rate of multiply-adds in registers alone, in GFLOP/s.
	Arithmetic float64 `json:"gflops"`
	// Copy is the traffic of a copy of 64 MiB, read plus written, in GB/s.
	Copy float64 `json:"copy_gb_s"`
}

const (
	limitRounds = 1_000_000 // of multiply-adds a worker: some milliseconds
	copyFloats  = 16 << 20
)

func measureLimits(dev *cpu.Device, rounds int) (Limits, error) {
	none := kernels.View{}
	call := kernels.Copy(none, none, copyFloats)
	copying, err := newOwnCall(dev, call, 2)
	if err != nil {
		return Limits{}, err
	}
	defer copying.close()
	var arithmetic, traffic []float64
	for range rounds {
		rate, err := arithmeticRate(dev)
		if err != nil {
			return Limits{}, err
		}
		arithmetic = append(arithmetic, rate)
		seconds, err := copying.run(1, roundTime)
		if err != nil {
			return Limits{}, err
		}
		traffic = append(traffic, float64(kernels.Info(call.Op).Bytes(copying.calls[0]))/seconds/1e9)
	}
	return Limits{Threads: dev.Threads(), Arithmetic: median(arithmetic), Copy: median(traffic)}, nil
}

// arithmeticRate is the fastest batch of multiply-adds of a round.
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

// ErrOptions is wrapped by errors about what was asked for; they name the flag.
var ErrOptions = errors.New("bad options")

// threadCounts checks the numbers of threads, by default 1 and every core.
func threadCounts(want []int) ([]int, error) {
	if len(want) == 0 {
		want = []int{1, runtime.GOMAXPROCS(0)}
	}
	for _, n := range want {
		if n < 1 || n > runtime.NumCPU() {
			return nil, fmt.Errorf("--threads is %d: take 1 to %d, the cores of this machine", n, runtime.NumCPU())
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(want))), nil
}

// median of x, which it sorts; 0 without any.
func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	slices.Sort(x)
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

// least of x, 0 without any.
func least(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	return slices.Min(x)
}

// cpuName is the processor's name.
func cpuName() string {
	var d *cpu.Device
	return d.Model()
}
