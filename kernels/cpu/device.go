package cpu

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/cpuid/v2"

	"pnode/kernels"
	"pnode/kernels/host"
)

// VariantEnv is the environment variable that forces an instruction set, for tests and
// diagnosis: `generic`, on amd64 `avx2`, `avx512` or `avx512bf16`, on arm64 `neon` or `neonbf16`.
const VariantEnv = "PNODE_CPU"

// Options of a device; the zero value takes the whole machine.
type Options struct {
	// Threads is the number of workers; 0 means one for each physical core that the
	// process may use.
	Threads int
	// Kind is the Device.Kind to be; empty for what VariantEnv says, or else the best one.
	Kind string
}

// Device is the processor as a kernels.Device.
type Device struct {
	v       *variant
	dropped []string
	threads int
	kernels.Budget

	mu   sync.Mutex // guards pool: one call runs at a time
	pool *pool      // nil once closed
}

var (
	errClosed = errors.New("cpu: device is closed")
	// ErrKind is wrapped where this processor cannot be of the kind that Options ask for.
	ErrKind = errors.New("cpu: this processor cannot compute as")
)

// New starts the workers. It fails when Threads is negative or PNODE_CPU names an
// instruction set that does not exist, that this processor lacks or that computes wrong.
// Without PNODE_CPU it takes the best one that computes right.
func New(o Options) (*Device, error) {
	if o.Threads < 0 {
		return nil, fmt.Errorf("cpu: threads is %d: want 0 (one per core) or more", o.Threads)
	}
	v, dropped, err := o.choose(candidates())
	if err != nil {
		return nil, err
	}
	if o.Threads == 0 {
		cores := runtime.NumCPU() / max(1, cpuid.CPU.ThreadsPerCore)
		o.Threads = max(1, min(runtime.GOMAXPROCS(0), cores))
	}
	d := startDevice(v, o.Threads)
	d.dropped = dropped
	return d, nil
}

func (o Options) choose(list []candidate) (v *variant, dropped []string, err error) {
	if o.Kind == "" {
		return choose(list, os.Getenv(VariantEnv))
	}
	v, err = ofKind(list, o.Kind)
	return v, nil, err
}

func startDevice(v *variant, threads int) *Device {
	return &Device{v: v, threads: threads, pool: newPool(threads)}
}

// Name is `cpu`.
func (d *Device) Name() string { return "cpu" }

// Model is the processor's name, or the architecture where it has none.
func (d *Device) Model() string {
	if name := cpuid.CPU.BrandName; name != "" {
		return name
	}
	return runtime.GOARCH
}

// Variant is the instruction set in use, a value of VariantEnv.
func (d *Device) Variant() string { return d.v.name }

// Kind is the architecture and the instruction set: `amd64/avx512`. Plain Go rounds otherwise on another architecture.
func (d *Device) Kind() string { return d.v.kind() }

// withPairs ends the name of a variant that differs from the one without it in products of BF16 alone.
const withPairs = "bf16"

// KindInFloats returns the kind of processor without instructions for BF16 that gives the same bits in float32.
func KindInFloats(kind string) string {
	if floats := strings.TrimSuffix(kind, withPairs); floats != "" && !strings.HasSuffix(floats, "/") {
		return floats
	}
	return kind
}

// MultipliesHalves reports whether the instruction set in use has products of pairs of BF16 numbers. Halves are widened
// otherwise.
func (d *Device) MultipliesHalves(t kernels.DType) bool {
	return t == kernels.BF16 && d.v.pairs.multiply != nil
}

// Dropped says of each better instruction set of this processor why it is not used: which
// operation its self-test found wrong.
func (d *Device) Dropped() []string { return d.dropped }

// Threads is the number of workers.
func (d *Device) Threads() int { return d.threads }

// Alloc gives a zeroed buffer.
func (d *Device) Alloc(dtype kernels.DType, count int) (kernels.Buffer, error) {
	if count < 0 || count > math.MaxInt/dtype.SizeBytes() {
		return nil, fmt.Errorf("%w: cpu: alloc of %d elements", kernels.ErrBadCall, count)
	}
	floats := (count*dtype.SizeBytes() + 3) / 4
	if err := d.Take(4 * int64(floats)); err != nil {
		return nil, fmt.Errorf("cpu: %w", err)
	}
	mem, err := host.Map(floats)
	if err != nil {
		d.Give(4 * int64(floats))
		return nil, err
	}
	return &buffer{dev: d, dtype: dtype, count: count, mem: mem}, nil
}

// Supports checks the operands of c against the table and that they are live buffers of
// this device.
func (d *Device) Supports(c kernels.Call) error {
	if err := c.Check(); err != nil {
		return fmt.Errorf("cpu: %w", err)
	}
	for _, v := range c.Args {
		if !v.Present() {
			continue
		}
		if err := d.owns(v); err != nil {
			return fmt.Errorf("%w: %v", err, c)
		}
		if dtype := v.Buf.DType(); dtype.Half() && !slices.Contains(halfOps, c.Op) {
			return fmt.Errorf("%w: cpu: %v on %v", kernels.ErrUnsupported, c, dtype)
		}
	}
	return nil
}

// halfOps are the operations that work on halves where the contract allows them.
var halfOps = []kernels.Op{
	kernels.OpMatMul, kernels.OpEmbedForward, kernels.OpCast, kernels.OpAdamW, kernels.OpAttentionForward, kernels.OpAttentionBackward,
	kernels.OpAttentionForwardPart, kernels.OpAttentionBackwardPart,
}

func (d *Device) owns(v kernels.View) error {
	b, ok := v.Buf.(*buffer)
	if ok {
		b.used()
	}
	switch {
	case !ok || b.dev != d:
		return fmt.Errorf("%w: cpu: operand of another device", kernels.ErrBadCall)
	case b.freed:
		return fmt.Errorf("%w: cpu: operand was freed", kernels.ErrBadCall)
	}
	return nil
}

// NewQueue gives a queue; any number may be used at the same time, their calls take
// turns on the workers.
func (d *Device) NewQueue() (kernels.Queue, error) { return &queue{dev: d}, nil }

// Close ends the workers and waits for them. Buffers stay valid until they are freed.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pool != nil {
		d.pool.close()
		d.pool = nil
	}
	return nil
}
