package bench

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/shirou/gopsutil/v4/mem"

	"pnode/kernels/devices"
	"pnode/planner/plan"
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

// deviceBench measures one device.
type deviceBench struct {
	o      DeviceOptions
	size   deviceSize
	device devices.Finding
	left   *eta

	// PyTorch's name of the device, or why it has none; the environment of this program's sides.
	torchName string
	noTorch   error
	env       []string
	// fastest is the rate of the fastest products so far, in FLOP/s.
	fastest float64
}

// cell holds rows that are measured together. measure fills all of them, or returns an error.
type cell struct {
	rows    []DeviceRow
	measure func(ctx context.Context, rows []DeviceRow) error
}

// goal judges a row; the zero value has none.
type goal struct {
	text   string
	met    func(DeviceRow) bool
	always bool // for all devices and sizes
}

func ratioAtLeast(x float64) goal {
	return goal{text: fmt.Sprintf("ratio >= %.2f", x), met: func(r DeviceRow) bool { return r.Ratio >= x }}
}

// Names of rows.
const (
	rowProducts  = "products"
	rowAttention = "attention"
	rowStep      = "step"
	rowCompiled  = "compiled"
	rowLarge     = "large"
	rowLaunch    = "launch"
	rowCopies    = "copies"
	rowRepeat    = "repeat"
	rowLosses    = "losses"
)

// DeviceRows returns the names that DeviceOptions.Only can hold.
func DeviceRows() []string {
	return []string{rowProducts, rowAttention, rowStep, rowCompiled, rowLarge, rowLaunch, rowCopies, rowRepeat, rowLosses}
}

// cells returns what is asked for, in the order of DeviceRows.
func (b *deviceBench) cells() []cell {
	all := slices.Concat(b.productCells(), b.attentionCells(), b.stepCells(), b.busyCells(), b.lossCells())
	return slices.DeleteFunc(all, func(c cell) bool { return !slices.Contains(b.o.Only, c.rows[0].Row) })
}

// measure fills all rows of the device.
func (b *deviceBench) measure(ctx context.Context) DeviceResult {
	f := b.device
	r := DeviceResult{Name: f.Name, Model: f.Model, Driver: strings.Join(nonEmpty(f.Platform, f.Driver), " ")}
	if err := b.within(ctx, "it said nothing for %v", func(ctx context.Context) error { return b.meet(ctx, &r) }); err != nil {
		b.noTorch = lacking{err}
		r.Peer, r.NoPeer = "", err.Error()
	}
	for _, c := range b.cells() {
		b.o.Progress(f.Name + ": " + c.rows[0].What + b.left.String())
		r.Rows = append(r.Rows, b.fill(ctx, c)...)
		b.left.done++
	}
	return r
}

// within does something within the limit of a row; late says what took too long.
func (b *deviceBench) within(ctx context.Context, late string, do func(context.Context) error) error {
	limited, cancel := context.WithTimeoutCause(ctx, b.o.Limit, fmt.Errorf(late, plan.Duration(b.o.Limit)))
	defer cancel()
	err := do(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil { // what a side says then is that it was ended
		return context.Cause(limited)
	}
	return err
}

// errInterrupted is why rows are open that were never begun.
var errInterrupted = errors.New("interrupted before it was measured")

// fill measures a cell within the limit, and judges its rows.
func (b *deviceBench) fill(ctx context.Context, c cell) []DeviceRow {
	err := errInterrupted
	if ctx.Err() == nil {
		err = b.within(ctx, "it took longer than %s", func(ctx context.Context) error { return c.measure(ctx, c.rows) })
	}
	if ctx.Err() != nil {
		err = errInterrupted
	}
	for i := range c.rows {
		r := &c.rows[i]
		r.Target = r.goal.text
		if err != nil {
			r.open(err)
		}
		// Targets of speed are for cards and some sizes.
		if r.Open == "" && r.Target != "" && (r.goal.always || b.size.judged && !b.device.Processor) {
			met := r.goal.met(*r)
			r.Met = &met
		}
	}
	return c.rows
}

// meet finds out what PyTorch there is for the device.
func (b *deviceBench) meet(ctx context.Context, r *DeviceResult) error {
	b.torchName = b.device.Name // both count cards as the driver does
	cuda := strings.HasPrefix(b.torchName, "cuda:")
	if !cuda && b.torchName != devices.CPU {
		return errors.New("PyTorch has no OpenCL devices")
	}
	torch, err := startPeer(ctx, nil, torchCall{}, b.o.Python, "-c", torchCallsScript)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("no PyTorch to compare with: %w; it needs a Python with PyTorch for the card (pip install torch), see --python", err)
	}
	defer torch.close()
	r.Peer = torch.hello.Name
	if cuda && torch.hello.Kernel != b.device.Model {
		return fmt.Errorf("PyTorch's %s is another card: %s", b.torchName, torch.hello.Kernel)
	}
	if cuda && b.device.Products != cuBLASLt && len(torch.hello.Libraries) > 0 {
		r.Libraries = torch.hello.Libraries
		paths := append(slices.Clone(r.Libraries), nonEmpty(os.Getenv(libraryPath))...)
		b.env = []string{libraryPath + "=" + strings.Join(paths, ":")}
	}
	return nil
}

// libraryPath is where glibc's loader looks for libraries first.
const libraryPath = "LD_LIBRARY_PATH"

// cuBLASLt names NVIDIA's library of products, as devices do.
const cuBLASLt = "cuBLASLt"

func nonEmpty(texts ...string) []string {
	return slices.DeleteFunc(texts, func(text string) bool { return text == "" })
}

// own starts this program's side of a task, on the device where the task names none.
func (b *deviceBench) own(ctx context.Context, t task, besideTorch bool) (*peer, error) {
	on := b.device
	if t.Device == devices.CPU {
		on = devices.Finding{Name: devices.CPU, Shared: true}
	}
	t.Device, t.Plain = on.Name, on.Plain
	var err error
	if t.MemoryBytes, err = memoryFor(on, besideTorch); err != nil {
		return nil, err
	}
	return startPeer(ctx, b.env, t, b.o.Binary, "bench", "--worker")
}

// torch starts PyTorch's side; the error is that there is none, if so.
func (b *deviceBench) torch(ctx context.Context, script string, what any) (*peer, error) {
	if b.noTorch != nil {
		return nil, b.noTorch
	}
	return startPeer(ctx, nil, what, b.o.Python, "-c", script)
}

// memoryFor returns the most bytes that this program's side takes of a device's memory, as a node
// does: 0 for no limit, where the driver does not say how much there is. Beside PyTorch, which may
// take twice as much for the same step, it is a third of the host's.
func memoryFor(f devices.Finding, besideTorch bool) (int64, error) {
	if !f.Shared && f.MemoryBytes == 0 {
		return 0, nil
	}
	memory, err := mem.VirtualMemory()
	if err != nil {
		return 0, fmt.Errorf("free memory: %w", err)
	}
	host := int64(min(memory.Available, math.MaxInt64))
	if besideTorch {
		host /= 3
	}
	return max(1, f.MemoryFor(host)), nil // 0 would be none
}

// lacking is why a figure is open on a machine that has no such thing, which is no fault of this
// program's: PyTorch, cuBLASLt.
type lacking struct{ error }

func (l lacking) Unwrap() error { return l.error }

// open leaves a row, or its comparison, open, if there is a reason.
func (r *DeviceRow) open(why error) {
	if why != nil {
		r.Open, r.Lacking = strings.ReplaceAll(why.Error(), "\n", "; "), errors.As(why, new(lacking))
	}
}
