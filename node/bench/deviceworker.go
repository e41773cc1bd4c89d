package bench

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"pnode/kernels"
	"pnode/kernels/devices"
	"pnode/pipeline/model"
)

// Kinds of deviceTasks.
const (
	productTask   = "product"
	attentionTask = "attention"
	stepTask      = "step"
	copiesTask    = "copies"
)

// deviceTask is what this program's side of a measurement does.
type deviceTask struct {
	Device string `json:"device"`
	Kind   string `json:"kind"`
	// Plain has it do without its matrix units, which ended the process of who tried them.
	Plain bool `json:"plain,omitempty"`
	// MemoryBytes is the most that is taken of its memory, 0 for no limit.
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	// BesideTorch tells the starting program that PyTorch does the same meanwhile.
	BesideTorch bool `json:"-"`
	// Own has the package's own kernels multiply where there is another library.
	Own       bool                   `json:"own,omitempty"`
	Product   [3]int                 `json:"product,omitzero"` // M, N, K
	Attention kernels.AttentionShape `json:"attention,omitzero"`
	Model     StepModel              `json:"model,omitzero"`
	Storage   model.Storage          `json:"storage,omitzero"`
	// Learn has steps train on tokens that can be learned.
	Learn  bool       `json:"learn,omitempty"`
	Copies copiesCase `json:"copies,omitzero"`
}

// DeviceWorker is this program's side of a measurement of a device, a process of its own that does
// what the JSON text describes and answers the requests of in on out.
func DeviceWorker(ctx context.Context, described string, in io.Reader, out io.Writer) error {
	var t deviceTask
	err := json.Unmarshal([]byte(described), &t)
	if err == nil {
		err = t.serve(ctx, in, out)
	}
	if err != nil {
		err = fmt.Errorf("bench devices: %s: %w", t.Device, err)
		return errors.Join(err, json.NewEncoder(out).Encode(answer{Error: err.Error()}))
	}
	return nil
}

func (t deviceTask) serve(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	device, err := devices.OpenHere(devices.Finding{Name: t.Device, Plain: t.Plain}, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	limit(device, t.MemoryBytes)
	if t.Own {
		if chooser, ok := device.(interface{ OwnProducts() error }); ok {
			if err := chooser.OwnProducts(); err != nil {
				return err
			}
		}
	}
	own := hello{Name: "pnode", Kernel: "own kernels"}
	if chooser, ok := device.(interface{ Products() string }); ok {
		own.Kernel = cmp.Or(chooser.Products(), own.Kernel)
	}
	switch t.Kind {
	case productTask, attentionTask:
		return t.serveCalls(device, own, in, out)
	case stepTask:
		return t.serveSteps(ctx, device, own, in, out)
	case copiesTask:
		return serveRequests(own, in, out, func(r stepRequest) (answer, error) { return t.overlap(ctx, device, r.Steps) })
	}
	return fmt.Errorf("no task is called %q", t.Kind)
}

// serveRequests says hello and answers a request a line.
func serveRequests[R any](own hello, in io.Reader, out io.Writer, reply func(R) (answer, error)) error {
	answers := json.NewEncoder(out)
	if err := answers.Encode(own); err != nil {
		return err
	}
	requests := bufio.NewScanner(in)
	for requests.Scan() {
		var r R
		if err := json.Unmarshal(requests.Bytes(), &r); err != nil {
			return err
		}
		a, err := reply(r)
		if err != nil {
			return err
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
	return requests.Err()
}

// serveCalls repeats a product, or attention.
func (t deviceTask) serveCalls(device kernels.Device, own hello, in io.Reader, out io.Writer) error {
	make := ownProduct(t.Product)
	if t.Kind == attentionTask {
		make = ownAttention(t.Attention)
	}
	calls, err := make(device)
	if err != nil {
		return err
	}
	defer calls.close()
	return serveRequests(own, in, out, func(r callRequest) (answer, error) { return serveCalls(calls, r) })
}

// ownProduct makes the product of the forward pass of a linear layer, as torchcalls.py does.
func ownProduct(s [3]int) func(kernels.Device) (*ownCalls, error) {
	m, n, k := s[0], s[1], s[2]
	return func(d kernels.Device) (*ownCalls, error) {
		o, err := newOwnCalls(d)
		if err != nil {
			return nil, err
		}
		out, a, b := o.zeros(kernels.BF16, m*n), o.random(kernels.BF16, m*k), o.random(kernels.BF16, n*k)
		return o.repeat(kernels.MatMul(out, a, b, kernels.View{}, m, n, k, kernels.TransB))
	}
}

// ownAttention makes both passes of attention.
func ownAttention(s kernels.AttentionShape) func(kernels.Device) (*ownCalls, error) {
	rows, values := s.B*s.T*s.H, s.B*s.T*s.H*s.D
	packed := s.B * s.T * (s.H + 2*s.K) * s.D
	return func(d kernels.Device) (*ownCalls, error) {
		o, err := newOwnCalls(d)
		if err != nil {
			return nil, err
		}
		none := kernels.View{}
		qkv, dout := o.random(kernels.BF16, packed), o.random(kernels.BF16, values)
		out, lse, delta, dqkv := o.zeros(kernels.BF16, values), o.zeros(kernels.F32, rows), o.zeros(kernels.F32, rows), o.zeros(kernels.BF16, packed)
		return o.repeat(kernels.AttentionForward(out, lse, qkv, none, s), kernels.AttentionBackward(dqkv, delta, dout, qkv, out, lse, none, s))
	}
}

// serveSteps trains.
func (t deviceTask) serveSteps(ctx context.Context, device kernels.Device, own hello, in io.Reader, out io.Writer) error {
	recorded := &recordedDevice{Device: device}
	s := newStepServer(in, out, deviceMeter{recorded})
	train := training{StepModel: t.Model, device: recorded, storage: t.Storage, micros: 1, lr: 1e-4, data: randomTokens{t.Model}}
	if t.Learn {
		train.lr, train.data = 1e-3, learnable{randomTokens{t.Model}}
	}
	return s.serve(ctx, train.alone(), own)
}

// deviceMeter is that of steps on a device.
type deviceMeter struct{ device *recordedDevice }

func (m deviceMeter) reset(r stepRequest) { m.device.record(r.Replays) }

func (m deviceMeter) read(a *answer) (err error) {
	if counts, ok := m.device.Device.(interface{ PeakBytes() int64 }); ok {
		a.PeakBytes = counts.PeakBytes()
	}
	again, err := m.device.replay()
	a.DeviceClock, a.DeviceSeconds, a.HostSeconds = again.clock, again.device, again.host
	return err
}
