package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"pnode/kernels/cpu"
	"pnode/pipeline"
)

// StepModel is what a training step is measured on.
type StepModel struct {
	Name     string `json:"name"`
	Vocab    int    `json:"vocab"`
	Context  int    `json:"context"`
	Blocks   int    `json:"blocks"`
	Heads    int    `json:"heads"`
	Channels int    `json:"channels"`
	Batch    int    `json:"batch"`
	Threads  int    `json:"threads"`
}

func (m StepModel) tokens() int { return m.Batch * m.Context }

// StepWorker is this program's side of a step measurement, a process of its own like the
// peer's: it trains the model that the JSON text describes with the pipeline's worker, all
// stages in one, and answers the requests of in on out.
func StepWorker(ctx context.Context, described string, in io.Reader, out io.Writer) error {
	var m StepModel
	if err := json.Unmarshal([]byte(described), &m); err != nil {
		return fmt.Errorf("bench step: model %q: %w", described, err)
	}
	device, err := cpu.New(cpu.Options{Threads: m.Threads})
	if err != nil {
		return err
	}
	defer device.Close()
	timed := &timedDevice{Device: device, spent: map[string]time.Duration{}}
	s := newStepServer(in, out, cpuMeter{device, timed})
	own := hello{Name: "pnode", Kernel: device.Variant(), Dropped: device.Dropped()}
	return s.serve(ctx, training{StepModel: m, device: timed, micros: 1, lr: 1e-4, data: randomTokens{m}}.alone(), own)
}

// meter sees what the steps of a request do beside taking time.
type meter interface {
	reset(stepRequest)
	read(*answer) error
}

// cpuMeter is that of steps on the processor.
type cpuMeter struct {
	cpu   *cpu.Device
	timed *timedDevice
}

func (m cpuMeter) reset(stepRequest) { m.timed.reset() }

func (m cpuMeter) read(a *answer) (err error) {
	a.PeakBytes, a.FLOPs, a.Classes = peakBytes(), m.timed.flops, map[string]float64{}
	for class, spent := range m.timed.spent {
		a.Classes[class] = spent.Seconds()
	}
	a.Arithmetic, err = arithmeticRate(m.cpu)
	return err
}

// stepServer lets the worker run the steps that are asked for, and stops it between them
// in its report of a step.
type stepServer struct {
	requests *bufio.Scanner
	answers  *json.Encoder
	meter    meter
	end      context.CancelFunc
	err      error

	left   int // steps of this request
	losses []float64
	begin  time.Time
}

func newStepServer(in io.Reader, out io.Writer, m meter) *stepServer {
	return &stepServer{requests: bufio.NewScanner(in), answers: json.NewEncoder(out), meter: m}
}

// serve trains as it is asked to, until nobody asks any more.
func (s *stepServer) serve(ctx context.Context, c pipeline.Config, own hello) error {
	ctx, s.end = context.WithCancel(ctx)
	defer s.end()
	c.OnLoaded, c.OnStep = s.next, s.stepDone
	w, err := pipeline.New(c)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := s.answers.Encode(own); err != nil {
		return err
	}
	if err := w.Run(ctx, ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return s.err
}

// next waits for a request; without one the worker ends.
func (s *stepServer) next() {
	var request stepRequest
	if !s.requests.Scan() {
		s.err = s.requests.Err()
		s.end()
		return
	}
	if s.err = json.Unmarshal(s.requests.Bytes(), &request); s.err != nil {
		s.end()
		return
	}
	s.meter.reset(request)
	s.left, s.losses, s.begin = request.Steps, nil, time.Now()
}

func (s *stepServer) stepDone(r pipeline.StepResult) {
	s.losses = append(s.losses, r.Loss)
	if s.left--; s.left > 0 {
		return
	}
	a := answer{Seconds: time.Since(s.begin).Seconds(), Loss: r.Loss}
	if len(s.losses) <= maxLosses {
		a.Losses = s.losses
	}
	if s.err = s.meter.read(&a); s.err == nil {
		s.err = s.answers.Encode(a)
	}
	if s.err != nil {
		s.end()
		return
	}
	s.next()
}

// peakBytes is the most memory that this process ever had resident, 0 where the system
// does not tell in /proc.
func peakBytes() int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kilobytes, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		return 0
	}
	return kilobytes << 10
}
