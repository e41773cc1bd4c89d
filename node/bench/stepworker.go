package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"pnode/kernels/cpu"
	"pnode/pipeline"
	"pnode/pipeline/model"
	"pnode/pipeline/wire"
	"pnode/planner"
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &stepServer{
		requests: bufio.NewScanner(in), answers: json.NewEncoder(out), end: cancel,
		cpu: device, device: &timedDevice{Device: device, spent: map[string]time.Duration{}},
	}
	w, err := pipeline.New(s.config(m))
	if err != nil {
		return err
	}
	defer w.Close()
	if err := s.answers.Encode(hello{Name: "pnode", Kernel: device.Variant(), Dropped: device.Dropped()}); err != nil {
		return err
	}
	if err := w.Run(ctx, ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return s.err
}

// stepServer lets the worker run the steps that are asked for, and stops it between them
// in its report of a step.
type stepServer struct {
	requests *bufio.Scanner
	answers  *json.Encoder
	cpu      *cpu.Device
	device   *timedDevice
	end      context.CancelFunc
	err      error

	left  int // steps of this request
	begin time.Time
}

// endless is more steps than anybody asks for.
const endless = 1 << 30

func (s *stepServer) config(m StepModel) pipeline.Config {
	run := planner.RunSpec{
		Run:   "bench",
		Model: model.Config{Vocab: m.Vocab, Context: m.Context, Blocks: m.Blocks, Heads: m.Heads, Channels: m.Channels},
		Train: planner.TrainSpec{
			Seed: 1, Steps: endless, Micros: 1, MicroBatch: m.Batch, LR: 1e-4, MinLR: 1e-4, WarmupSteps: 1,
			Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, ClipNorm: 1, HeldOutEvery: endless, CheckpointEvery: endless,
		},
	}
	const self planner.PeerID = "bench"
	stage := planner.Placement{Peer: self, Device: "cpu", Codec: "f32", Layers: planner.LayerRange{End: run.Model.Layers()}}
	return pipeline.Config{
		Seat: stage.Seat(), Run: run, Device: s.device, Data: randomTokens{m}, Exchange: noExchange{}, Keeper: noKeeper{},
		Plan: planner.Plan{
			Run: run.Run, Generation: 1, Schedule: "1f1b",
			Replicas: []planner.Pipeline{{Micros: 1, Stages: []planner.Placement{stage}, Warmups: []int{0}}},
		},
		Stop: func() bool { return false }, OnLoaded: s.next, OnStep: s.stepDone, Log: slog.New(slog.DiscardHandler),
	}
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
	s.device.reset()
	s.left, s.begin = request.Steps, time.Now()
}

func (s *stepServer) stepDone(r pipeline.StepResult) {
	if s.left--; s.left > 0 {
		return
	}
	a := answer{Seconds: time.Since(s.begin).Seconds(), Loss: r.Loss, PeakBytes: peakBytes(), FLOPs: s.device.flops, Classes: map[string]float64{}}
	for class, spent := range s.device.spent {
		a.Classes[class] = spent.Seconds()
	}
	if a.Arithmetic, s.err = arithmeticRate(s.cpu); s.err == nil {
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

// randomTokens is data that needs no reading.
type randomTokens struct{ StepModel }

func (d randomTokens) Micro(_ context.Context, step planner.Step, _ planner.Micro, batch int) (tokens, targets []int32, err error) {
	rng := rand.New(rand.NewPCG(uint64(step), 1))
	for range batch {
		next := rng.Int32N(int32(d.Vocab))
		for range d.Context {
			tokens = append(tokens, next)
			next = rng.Int32N(int32(d.Vocab))
			targets = append(targets, next)
		}
	}
	return tokens, targets, nil
}

func (d randomTokens) HeldOut(ctx context.Context, index, batch int) (tokens, targets []int32, err error) {
	return d.Micro(ctx, planner.Step(index), 0, batch)
}

func (randomTokens) HeldOutMicros(int, int) int { return 1 }

// DocumentStarts says that each row is one document.
func (randomTokens) DocumentStarts(tokens []int32) []int32 { return make([]int32, len(tokens)) }

// errAlone is what a worker without neighbours and without a store never meets.
var errAlone = errors.New("bench: the worker is alone")

type noKeeper struct{}

func (noKeeper) Save(context.Context, pipeline.State) error { return errAlone }
func (noKeeper) Load(context.Context, int, io.Writer) error { return errAlone }

type noExchange struct{}

func (noExchange) Send(context.Context, planner.PeerID, wire.Frame) error { return errAlone }

func (noExchange) Receive(context.Context, planner.PeerID, wire.Tag) ([]byte, error) {
	return nil, errAlone
}
