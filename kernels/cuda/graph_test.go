package cuda

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pnode/kernels"
	"pnode/kernels/gpu"
)

// passes gives a queue the same pass several times, each with another number and, every third
// time, on other memory.
type passes struct {
	*testing.T
	q    kernels.Queue
	x, y kernels.View
}

func (p passes) pass(n int) {
	x := p.x.Slice(n%3/2*100, 100)
	p.q.Do(kernels.Fill(x, 100, float32(n)))
	for range 2 * minIssues {
		p.q.Do(kernels.Scale(x, 100, 2))
	}
	p.q.Do(kernels.ColumnSum(p.y.Slice(0, 10), x, 10, 10, 0))
}

// results are the sums of each pass.
func (p passes) results(count int) [][]byte {
	p.Helper()
	var all [][]byte
	for n := range count {
		p.pass(n)
		p.q.Record()
		got := make([]byte, 40)
		p.q.Read(got, p.y.Slice(0, 10))
		all = append(all, got)
	}
	if err := p.q.Sync(); err != nil {
		p.Error(err)
	}
	return all
}

func newPasses(t *testing.T, dev *Device) passes {
	return passes{t, newQueue(t, dev), newBuffer(t, dev, kernels.F32, 200), newBuffer(t, dev, kernels.F32, 10)}
}

// TestGraphs: the card is given the same launches with graphs as without, and has the same results;
// but the driver is called less often.
func TestGraphs(t *testing.T) {
	machine := openclMachine(t, gpu.MatrixUnits)
	const count = 12
	var launches [2][]gpu.Launch
	var results [2][][]byte
	var own [2]int
	for k, plain := range []bool{true, false} {
		f := newFake(t, machine, 1)
		dev := openFake(t, 0)
		dev.driver.plain = plain
		p := newPasses(t, dev)
		results[k] = p.results(count)
		launches[k] = f.launches
		for _, fn := range f.calls {
			if fn == launchKernel {
				own[k]++
			}
		}
		if ran := slices.Contains(f.calls, graphLaunch); ran == plain {
			t.Errorf("plain: %v, and a graph is launched: %v", plain, ran)
		}
		if err := errors.Join(p.q.Close(), dev.Close()); err != nil {
			t.Error(err)
		}
		if len(f.graphs) != 0 {
			t.Errorf("%d graphs are left", len(f.graphs))
		}
	}
	if len(launches[0]) != len(launches[1]) {
		t.Fatalf("%d launches with graphs, %d without", len(launches[1]), len(launches[0]))
	}
	for i, want := range launches[0] {
		if got := launches[1][i]; got.Kernel != want.Kernel || got.Groups != want.Groups || got.Items != want.Items || numbers(got) != numbers(want) {
			t.Fatalf("launch %d is %+v, without graphs %+v", i, got, want)
		}
	}
	if !reflect.DeepEqual(results[0], results[1]) {
		t.Error("other results with graphs")
	}
	if perPass := len(launches[0]) / count; own[0] != len(launches[0]) || own[1] != 4*perPass { // two segments: as they come first, and captured
		t.Errorf("%d launches of the program without graphs and %d with, of %d a pass", own[0], own[1], perPass)
	}
}

// numbers are the parameters of a launch that are no addresses, which differ between two runs.
func numbers(l gpu.Launch) (text string) {
	var b strings.Builder
	for _, p := range l.Params {
		if p.Bytes == 4 {
			b.WriteString(" ")
			b.WriteString(kernels.F32.String())
			b.Write([]byte{byte(p.Bits), byte(p.Bits >> 8), byte(p.Bits >> 16), byte(p.Bits >> 24)})
		}
	}
	return b.String()
}

// TestGraphsAreRefused: without the functions, or where one fails, launches go one by one, and once
// each.
func TestGraphsAreRefused(t *testing.T) {
	f := newFake(t, &plain{}, 1)
	dev := openFake(t, 0)
	p := newPasses(t, dev)
	p.results(1)
	perPass := len(f.launches)
	for _, fn := range []function{
		streamBeginCapture, streamGetCaptureInfo, streamEndCapture, graphInstantiate, graphExecKernelNodeSetParams, graphLaunch, functionCount,
	} {
		if fn == functionCount { // an old driver
			old := *dev.driver.lib
			clear(old[streamBeginCapture:])
			dev.driver.lib = &old
		}
		p.q, f.launches, f.calls = newQueue(t, dev), nil, nil
		f.fail = map[function]result{fn: invalidValue}
		p.results(8)
		f.fail = nil
		if len(f.launches) != 8*perPass || slices.Contains(f.calls, graphLaunch) && fn != graphLaunch && fn != graphExecKernelNodeSetParams {
			t.Errorf("%v fails: %d launches of %d", fn, len(f.launches), 8*perPass)
		}
		if err := p.q.Close(); err != nil {
			t.Error(err)
		}
		if len(f.graphs) != 0 {
			t.Errorf("%v fails: %d graphs are left", fn, len(f.graphs))
		}
	}
}

// TestWrongGraphs: a card whose graphs run with other numbers than they were given does without.
func TestWrongGraphs(t *testing.T) {
	for _, stale := range []bool{false, true} {
		f := newFake(t, openclMachine(t, gpu.MatrixUnits), 1)
		f.stale = stale
		dev := openFake(t, 0)
		if err := dev.testGraphs(); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(f.calls, graphExecKernelNodeSetParams) || dev.driver.plain != stale {
			t.Errorf("stale: %v, without graphs: %v", stale, dev.driver.plain)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestGraphsOfALostCard: what is wrong with the card is an error still.
func TestGraphsOfALostCard(t *testing.T) {
	f := newFake(t, &plain{}, 1)
	dev := openFake(t, 0)
	p := newPasses(t, dev)
	p.results(6)
	f.fail = map[function]result{graphLaunch: illegalAddress, launchKernel: illegalAddress}
	p.pass(0)
	err := p.q.Sync()
	f.fail = nil
	if !errors.Is(err, kernels.ErrLost) || !strings.Contains(err.Error(), "fill: kernels: device lost: cuda: cuLaunchKernel") {
		t.Errorf("a lost card: %v", err)
	}
	_ = p.q.Close() // gives the same error again
}

// TestFreedMemoryTakesGraphsAlong, and their number has a bound.
func TestFreedMemoryTakesGraphsAlong(t *testing.T) {
	f := newFake(t, &plain{}, 1)
	dev := openFake(t, 0)
	other, err := dev.Alloc(kernels.F32, 8)
	if err != nil {
		t.Fatal(err)
	}
	p := newPasses(t, dev)
	p.results(6)
	if len(f.graphs) != 4 { // two, and an instance of each
		t.Errorf("%d graphs, want 4", len(f.graphs))
	}
	other.Free()
	p.results(1)
	if len(f.graphs) != 0 {
		t.Errorf("%d graphs after memory was given back", len(f.graphs))
	}
	long := newBuffer(t, dev, kernels.F32, 3000)
	for at := range 2 * maxGraphIssues / (2 * minIssues) {
		for range 2 {
			for range 2 * minIssues {
				p.q.Do(kernels.Fill(long.Slice(at, 1), 1, 0))
			}
			p.q.Record()
		}
		if at%100 == 0 {
			if err := p.q.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(f.graphs) / 2; n == 0 || n > maxGraphIssues/(2*minIssues) {
		t.Errorf("%d graphs of %d launches, at most %d in all", n, 2*minIssues, maxGraphIssues)
	}
	if err := p.q.Close(); err != nil {
		t.Error(err)
	}
}
