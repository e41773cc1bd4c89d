package bench

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/kernels/devices"
	"pnode/node/bench/decoding"
	"pnode/pipeline"
	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// Kinds of tasks, besides rowLaunch and rowCopies.
const (
	productTask   = "product"
	attentionTask = "attention"
	stepTask      = "step"
	generateTask  = "generate"
)

// task is the work of this program's side of a measurement: one thing on one device.
type task struct {
	Device string `json:"device"`
	Kind   string `json:"kind"`
	// Plain forgoes the device's matrix units, which ended the process that tried them.
	Plain bool `json:"plain,omitempty"`
	// MemoryBytes is the most that is taken of its memory, 0 for no limit.
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	// Own has the package's own kernels multiply where there is another library.
	Own       bool                   `json:"own,omitempty"`
	Product   [3]int                 `json:"product,omitzero"` // M, N, K
	Attention kernels.AttentionShape `json:"attention,omitzero"`
	Model     StepModel              `json:"model,omitzero"`
	Storage   model.Storage          `json:"storage,omitzero"`
	// Learn trains on tokens that can be learned.
	Learn bool `json:"learn,omitempty"`
	// Profile has answers say where the time of steps goes; it needs the processor.
	Profile bool `json:"profile,omitempty"`
	// Generate says what to generate.
	Generate decoding.Task `json:"generate,omitzero"`
	// Average is the one thing to do where it is given.
	Average *averageTask `json:"average,omitempty"`
}

// Worker is this program's side of a measurement, a process of its own like the peer's: it does
// what the JSON text describes and answers the requests of in on out.
func Worker(ctx context.Context, described string, in io.Reader, out io.Writer) error {
	var t task
	err := json.Unmarshal([]byte(described), &t)
	switch {
	case err != nil:
	case t.Average != nil:
		err = t.Average.serve(ctx, in, json.NewEncoder(out))
	default:
		err = t.serve(ctx, in, json.NewEncoder(out))
	}
	if err != nil {
		err = fmt.Errorf("bench: %s: %w", t.Device, err)
		return errors.Join(err, json.NewEncoder(out).Encode(answer{Error: err.Error()}))
	}
	return nil
}

// ownKernels names the products of devices that use no library.
const ownKernels = "own kernels"

func (t task) serve(ctx context.Context, in io.Reader, out *json.Encoder) (err error) {
	device, err := devices.OpenHere(devices.Finding{Name: t.Device, Plain: t.Plain}, t.Model.Threads)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	if limited, ok := device.(kernels.Limited); ok {
		limited.LimitMemory(t.MemoryBytes)
	}
	if chooser, ok := device.(interface{ OwnProducts() error }); ok && t.Own {
		if err := chooser.OwnProducts(); err != nil {
			return err
		}
	}
	own := hello{Name: "pnode", Kernel: ownKernels}
	switch d := device.(type) {
	case *cpu.Device:
		own.Kernel, own.Dropped = d.Variant(), d.Dropped()
	case interface{ Products() string }:
		own.Kernel = cmp.Or(d.Products(), ownKernels)
	}
	build := attention(t.Attention)
	switch t.Kind {
	case stepTask:
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		steps, err := t.train(ctx, device)
		if err != nil {
			return err
		}
		defer steps.close()
		return serveRequests(own, in, out, steps.run)
	case productTask:
		build = product(kernels.BF16, t.Product[0], t.Product[1], t.Product[2], kernels.TransB)
	case generateTask:
		d, err := decoding.Open(ctx, device, t.Generate)
		if err != nil {
			return err
		}
		defer d.Close()
		texts := ownTexts{decoder: d, device: device}
		return serveRequests(own, in, out, func(r generateRequest) (answer, error) { return texts.run(ctx, r) })
	case rowLaunch:
		return serveRequests(own, in, out, func(r stepRequest) (answer, error) { return t.launches(ctx, device, r.Steps) })
	case rowCopies:
		return serveRequests(own, in, out, func(r stepRequest) (answer, error) { return t.copies(ctx, device, r.Steps) })
	case attentionTask:
	default:
		return fmt.Errorf("no task is called %q", t.Kind)
	}
	calls, err := newOwnCalls(device, build)
	if err != nil {
		return err
	}
	defer calls.close()
	return serveRequests(own, in, out, calls.run)
}

// serveRequests says hello and answers a request a line.
func serveRequests[R any](own hello, in io.Reader, out *json.Encoder, reply func(R) (answer, error)) error {
	if err := out.Encode(own); err != nil {
		return err
	}
	requests := bufio.NewScanner(in)
	for requests.Scan() {
		var r R
		if err := json.Unmarshal(requests.Bytes(), &r); err != nil {
			return err
		}
		a, err := reply(r)
		if err == nil {
			err = out.Encode(a)
		}
		if err != nil {
			return err
		}
	}
	return requests.Err()
}

// stepRequest asks for training steps.
type stepRequest struct {
	Steps int `json:"steps"`
}

// maxLosses bounds the losses of an answer.
const maxLosses = 1000

// steps lets a worker train as many steps as are asked for.
type steps struct {
	device kernels.Device
	timed  *watchedDevice // nil without a profile
	dtype  kernels.DType  // of what is multiplied
	turn   chan bool      // whether the step is the first of a request
	done   chan pipeline.StepResult
	end    context.CancelFunc
	ended  chan error
}

// train starts a worker with all layers of the model, which waits for its turn before each step.
func (t task) train(ctx context.Context, device kernels.Device) (*steps, error) {
	s := &steps{device: device, turn: make(chan bool), done: make(chan pipeline.StepResult), ended: make(chan error, 1)}
	if s.dtype = kernels.F32; t.Storage == model.StorageBF16 {
		s.dtype = kernels.BF16
	}
	on := device
	if t.Profile {
		s.timed = &watchedDevice{Device: device, spent: map[string]time.Duration{}}
		on = s.timed
	}
	run := newRun(t.Model.config())
	run.Train.MicroBatch, run.Train.Storage = t.Model.Batch, plan.Storage(t.Storage)
	if t.Learn {
		run.Train.LR, run.Train.MinLR = 1e-3, 1e-3
	}
	place := plan.Placement{Peer: benchRun, Device: device.Name(), Codec: "f32", Layers: plan.LayerRange{End: t.Model.config().Layers()}}
	c := unattended(pipeline.Config{
		Worker: place.Worker(), Run: run, Device: on, Exchange: alone{},
		Plan: plan.Plan{Run: benchRun, Generation: 1, Schedule: "1f1b", Replicas: []plan.Pipeline{{Micros: 1, Stages: []plan.Placement{place}, Warmups: []int{0}}}},
		Data: randomTokens{t.Model.Vocab, t.Model.Context, t.Learn},
	})
	ctx, s.end = context.WithCancel(ctx)
	c.OnLoaded = func() {
		select {
		case first := <-s.turn:
			if first && s.timed != nil { // here, where no call is under way
				s.timed.spent, s.timed.flops = map[string]time.Duration{}, 0
			}
		case <-ctx.Done():
		}
	}
	c.OnStep = func(r pipeline.StepResult) {
		select {
		case s.done <- r:
			c.OnLoaded() // waits for the next turn
		case <-ctx.Done():
		}
	}
	w, err := pipeline.New(c)
	if err != nil {
		s.end()
		return nil, err
	}
	go func() {
		defer w.Close()
		s.ended <- w.Run(ctx, ctx)
	}()
	return s, nil
}

// run trains some steps.
func (s *steps) run(r stepRequest) (a answer, err error) {
	begin := time.Now()
	for i := range r.Steps {
		select {
		case s.turn <- i == 0:
		case err := <-s.ended:
			return a, err
		}
		select {
		case done := <-s.done:
			if a.Loss = done.Loss; r.Steps <= maxLosses {
				a.Losses = append(a.Losses, a.Loss)
			}
		case err := <-s.ended:
			return a, err
		}
	}
	a.Seconds, a.PeakBytes = time.Since(begin).Seconds(), peakBytes(s.device)
	if s.timed != nil {
		a.Classes, a.FLOPs = map[string]float64{}, s.timed.flops
		for class, spent := range s.timed.spent {
			a.Classes[class] = spent.Seconds()
		}
		a.Arithmetic, err = arithmeticRate(s.device.(*cpu.Device), s.dtype)
	}
	return a, err
}

// close ends the worker and waits for it.
func (s *steps) close() {
	s.end()
	<-s.ended
}

// peakBytes returns the most memory ever taken, of the device or, where that does not count, of this
// process: 0 where the system does not say in /proc.
func peakBytes(device kernels.Device) int64 {
	if counts, ok := device.(interface{ PeakBytes() int64 }); ok {
		return counts.PeakBytes()
	}
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kilobytes, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0
	}
	return kilobytes << 10
}
