package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"pnode/kernels/devices"
)

// deviceBench measures one device.
type deviceBench struct {
	o      DeviceOptions
	size   deviceSize
	device devices.Finding
	left   *eta

	// What is known once PyTorch was met: what it calls the device, or why it has none; the
	// environment of this program's sides.
	torchName string
	noTorch   error
	env       []string
	// batch is the micro-batch of training steps, 0 before it was found; fastest the rate of the
	// fastest products, in FLOP/s.
	batch   int
	fastest float64
}

// cell is rows that are measured together. measure fills all of them, or gives an error.
type cell struct {
	rows    []DeviceRow
	goals   []goal // of the rows
	measure func(ctx context.Context, rows []DeviceRow) error
}

// goal is what a row is to reach; the zero value is none.
type goal struct {
	text string
	met  func(DeviceRow) bool
	// always has it hold for all devices and sizes.
	always bool
}

func ratioAtLeast(x float64) goal {
	return goal{text: fmt.Sprintf("ratio >= %.2f", x), met: func(r DeviceRow) bool { return r.Ratio >= x }}
}

func atMost(x float64, unit string) goal {
	return goal{text: fmt.Sprintf("<= %g%s", x, unit), met: func(r DeviceRow) bool { return r.Value <= x }}
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

// DeviceRows are the names that DeviceOptions.Only can hold.
func DeviceRows() []string {
	return []string{rowProducts, rowAttention, rowStep, rowCompiled, rowLarge, rowLaunch, rowCopies, rowRepeat, rowLosses}
}

// cells are what is asked for, in the order of DeviceRows.
func (b *deviceBench) cells() (wanted []cell) {
	all := slices.Concat(b.productCells(), b.attentionCells(), b.stepCells(), b.launchCells(), b.copiesCells(), b.repeatCells(), b.lossCells())
	for _, c := range all {
		if slices.Contains(b.o.Only, c.rows[0].Row) {
			wanted = append(wanted, c)
		}
	}
	return wanted
}

// measure fills all rows of the device.
func (b *deviceBench) measure(ctx context.Context) DeviceResult {
	f := b.device
	r := DeviceResult{Name: f.Name, Model: f.Model, Driver: strings.Join(nonEmpty(f.Platform, f.Driver), " ")}
	b.meet(ctx, &r)
	for _, c := range b.cells() {
		b.o.Progress(f.Name + ": " + c.rows[0].What + b.left.String())
		r.Rows = append(r.Rows, b.fill(ctx, c)...)
		b.left.done++
	}
	return r
}

// errInterrupted is why rows are open that were never begun.
var errInterrupted = errors.New("interrupted before it was measured")

// fill measures a cell within the limit, and judges its rows.
func (b *deviceBench) fill(ctx context.Context, c cell) []DeviceRow {
	limited, cancel := context.WithTimeoutCause(ctx, b.o.Limit, fmt.Errorf("it took longer than %v", b.o.Limit))
	defer cancel()
	err := ctx.Err()
	if err == nil {
		err = c.measure(limited, c.rows)
	}
	switch {
	case ctx.Err() != nil:
		err = errInterrupted
	case limited.Err() != nil: // what a side says then is that it was ended
		err = context.Cause(limited)
	}
	for i := range c.rows {
		r := &c.rows[i]
		r.Target = c.goals[i].text
		if err != nil {
			r.open(err)
		}
		if r.Open == "" && r.Target != "" && (c.goals[i].always || b.judges()) {
			met := c.goals[i].met(*r)
			r.Met = &met
		}
	}
	return c.rows
}

// judges tells whether targets of speed are for this device and these sizes.
func (b *deviceBench) judges() bool { return b.size.judged && !b.device.Processor }

// howToGetTorch follows the reason why there is none.
const howToGetTorch = "it needs a Python with PyTorch for the card (pip install torch), see --python"

// meet finds out what PyTorch there is for the device, within the limit of a row.
func (b *deviceBench) meet(ctx context.Context, r *DeviceResult) {
	limited, cancel := context.WithTimeoutCause(ctx, b.o.Limit, fmt.Errorf("it said nothing for %v", b.o.Limit))
	defer cancel()
	if err := b.introduce(limited, r); err != nil {
		b.noTorch = lacking{err}
		r.Peer, r.NoPeer = "", err.Error()
	}
}

func (b *deviceBench) introduce(ctx context.Context, r *DeviceResult) error {
	kind, index, _ := strings.Cut(b.device.Name, ":")
	switch kind {
	case "cuda": // both count as the driver does
		b.torchName = "cuda:" + index
	case devices.CPU:
		b.torchName = devices.CPU
	default:
		return errors.New("PyTorch has no OpenCL devices")
	}
	torch, err := b.torch(ctx, torchCallsScript, torchCall{})
	if err != nil && ctx.Err() != nil { // what it says then is that it was ended
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("no PyTorch to compare with: %w; %s", err, howToGetTorch)
	}
	defer torch.close()
	r.Peer = torch.hello.Name
	if kind == "cuda" && torch.hello.Kernel != b.device.Model {
		return fmt.Errorf("PyTorch's %s is another card: %s", b.torchName, torch.hello.Kernel)
	}
	if kind == "cuda" && b.device.Products != cuBLASLt && len(torch.hello.Libraries) > 0 {
		r.Libraries = torch.hello.Libraries
		paths := append(slices.Clone(r.Libraries), nonEmpty(os.Getenv(libraryPath))...)
		b.env = []string{libraryPath + "=" + strings.Join(paths, ":")}
	}
	return nil
}

// libraryPath is where glibc's loader looks for libraries first.
const libraryPath = "LD_LIBRARY_PATH"

// cuBLASLt is what devices call the library that multiplies.
const cuBLASLt = "cuBLASLt"

func nonEmpty(texts ...string) []string {
	return slices.DeleteFunc(texts, func(text string) bool { return text == "" })
}

// own starts this program's side on a device.
func (b *deviceBench) own(ctx context.Context, t deviceTask) (*peer, error) {
	on := b.device
	if t.Device == devices.CPU {
		on = devices.Finding{Name: devices.CPU, Shared: true}
	}
	var err error
	t.Device, t.Plain = on.Name, on.Plain
	if t.MemoryBytes, err = memoryFor(on, t.BesideTorch); err != nil {
		return nil, err
	}
	described, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	return startPeer(ctx, b.env, b.o.Binary, "bench", "devices", "--worker", string(described))
}

// torch starts PyTorch's side; the error is that there is none, if so.
func (b *deviceBench) torch(ctx context.Context, script string, what any) (*peer, error) {
	if b.noTorch != nil {
		return nil, b.noTorch
	}
	described, err := json.Marshal(what)
	if err != nil {
		return nil, err
	}
	return startPython(ctx, b.o.Python, script, string(described))
}

// closing ends this program's side, whose error counts where there is no other.
func closing(p *peer, err *error) {
	if closed := p.close(); *err == nil {
		*err = closed
	}
}

// dismiss ends a peer, if there is one: how it ends says nothing.
func dismiss(p *peer) {
	if p != nil {
		_ = p.close()
	}
}
