package growth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"pnode/checkpoint/huggingface"
	"pnode/node/api"
	"pnode/node/config"
	"pnode/node/local"
	"pnode/pipeline/model"
	"pnode/planner"
	"pnode/planner/plan"
)

// What emulated nodes and the lines between them are like.
const (
	emulatedRate   = 800_000_000 // operations a second
	emulatedMemory = 4 << 30
	// emulatedBandwidth is so high that only products and attention take time.
	emulatedBandwidth = 1_000_000_000_000
	lineMbit          = 100
	lineLatency       = 5 * time.Millisecond
	pipelineMicros    = 16 // of a step of a pipeline
	replicaMicros     = 4  // of each replica
	replicaBlocks     = 4
)

var emulatedLine = line{bytesPerS: lineMbit * 1e6 / 8, latencyS: lineLatency.Seconds()}

// fleetCase is a run of a row.
type fleetCase struct {
	axis  Axis
	nodes int
	spec  plan.RunSpec
}

// newFleetCase returns the run of a row: a pipeline has a block on each node, a replica the whole model.
func newFleetCase(a Axis, nodes int) fleetCase {
	c := fleetCase{axis: a, nodes: nodes}
	c.spec.Model = model.Config{Vocab: 256, Context: 64, Blocks: replicaBlocks, Heads: 2, Channels: 64}
	c.spec.Train.MicroBatch, c.spec.Train.Micros = 1, replicaMicros*nodes
	if a == Nodes {
		c.spec.Model.Blocks, c.spec.Train.Micros = nodes, pipelineMicros
	}
	return c
}

// bound returns the least seconds of a step.
func (c fleetCase) bound() float64 {
	one := computing(multiplied(c.spec.Costs(model.StorageF32)), emulatedRate)
	switch c.axis {
	case Nodes:
		return pipelined(pipelineMicros, c.nodes, one/float64(c.nodes), emulatedLine.travel(boundaryBytes(c.spec)))
	case Replicas:
		return everyStep(replicaMicros*one, summed(c.nodes, gradientBytes(c.spec.Model), emulatedLine))
	default: // messages of local steps travel while others are made
		return replicaMicros * one
	}
}

// warmSteps come before those that are measured. Nodes train on until they have answered, whatever that takes; lastSteps are more than that.
const warmSteps, lastSteps = 4, 100_000

func (o Options) fleetSteps() int { return warmSteps + o.Rounds*roundSteps }

// config returns the settings of the run, whose files are in a folder.
func (c fleetCase) config(folder string, steps int) config.Config {
	s := config.Default()
	s.Dir, s.Cluster, s.Init, s.Data = filepath.Join(folder, "run"), filepath.Join(folder, "cluster.yaml"), filepath.Join(folder, "model"), []string{filepath.Join(folder, "text.txt")}
	s.Preset, s.Context, s.Steps, s.Micros, s.MicroBatch = "", 0, steps, c.spec.Train.Micros, 1
	s.Local, s.MinNodes, s.Replicas, s.Stages = c.nodes, c.nodes, config.Count(c.nodes), 1
	s.SumGroups = config.Count(c.nodes)
	if c.axis == Nodes {
		s.Replicas, s.Stages, s.SumGroups = 1, config.Count(c.nodes), 1
	}
	if c.axis == Local {
		s.Sync = fmt.Sprintf("local:h=%d,codec=int8,delay=1", roundSteps)
	}
	s.Schedule, s.Storage = "1f1b", model.StorageF32.String()
	s.WarmupSteps, s.HeldOutEvery, s.CheckpointEvery, s.SampleBytes = 1, 1_000_000, 1_000_000, 0
	return s
}

// write makes the files of the run in a folder.
func (c fleetCase) write(folder string) error {
	cluster := fmt.Sprintf("devices: [{count: %d, model: emulated, matmul: %gMFLOP/s, bandwidth: %gGB/s, memory: %dGiB, compute: none}]\nlink: {bandwidth: %dMbit/s, latency: %dms}\n",
		c.nodes, emulatedRate/1e6, emulatedBandwidth/1e9, emulatedMemory>>30, lineMbit, lineLatency.Milliseconds())
	text := bytes.Repeat([]byte("What a step costs, and how that grows, is what is measured here. "), 2000)
	return errors.Join(
		os.WriteFile(filepath.Join(folder, "cluster.yaml"), []byte(cluster), 0o600), os.WriteFile(filepath.Join(folder, "text.txt"), text, 0o600),
		huggingface.Write(filepath.Join(folder, "model"), huggingface.Export{Config: c.spec.Model, Layer: func(layer int, dst []float32) error {
			c.spec.Model.InitLayer(layer, 1, dst)
			return nil
		}}),
	)
}

// planned returns how long the planner takes for a first plan of such nodes, each of which knows its lines to all others.
func (c fleetCase) planned(ctx context.Context, s config.Config) (float64, error) {
	s.Preset, s.Init, s.Replicas, s.Stages = config.Default().Preset, "", 0, 0 // settings know the layers of presets alone
	spec, err := s.RunSpec(c.spec.Model, plan.DataSpec{}, "growth")
	if err != nil {
		return 0, err
	}
	spec.Train.Replicas, spec.Train.Stages = c.nodes, 1
	if c.axis == Nodes {
		spec.Train.Replicas, spec.Train.Stages = 1, c.nodes
	}
	in := planner.InputOf(spec)
	name := func(i int) plan.PeerID { return plan.PeerID(fmt.Sprintf("node-%02d", i)) }
	for i := range c.nodes {
		m := planner.Member{Peer: name(i), Profile: plan.Profile{Devices: []plan.DeviceProfile{{
			Name: "cpu", Model: "emulated", MatMulFLOPS: emulatedRate, AttentionFLOPS: emulatedRate, MemoryBytesPerS: emulatedBandwidth, MemoryFreeBytes: emulatedMemory,
		}}}}
		for j := range c.nodes {
			if j != i {
				m.Profile.Links = append(m.Profile.Links, plan.LinkProfile{Peer: name(j), BytesPerS: emulatedLine.bytesPerS, RTTNanos: int64(2 * lineLatency)})
			}
		}
		in.Members = append(in.Members, m)
	}
	begin := time.Now()
	_, _, err = planner.Make(ctx, in)
	return time.Since(begin).Seconds(), err
}

// fleet measures a row of real processes.
func (o Options) fleet(ctx context.Context, a Axis, size int, note func(string)) (row Row, err error) {
	c := newFleetCase(a, size)
	folder, err := os.MkdirTemp("", "pnode-growth-")
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	if err := c.write(folder); err != nil {
		return row, err
	}
	settings := c.config(folder, o.fleetSteps()+lastSteps)
	if err := settings.Validate(); err != nil {
		return row, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	w := &watcher{ctx: ctx, stop: stop, dir: settings.Dir, nodes: size, steps: o.fleetSteps(), rounds: o.Rounds, note: note, began: time.Now()}
	nodes, err := local.New(local.Options{Nodes: size, Dir: settings.Dir, Config: settings, Binary: o.Binary, Output: w})
	if err != nil {
		return row, err
	}
	if err := nodes.Run(running); err != nil {
		return row, err
	}
	if row, err = w.row(); err != nil {
		return row, err
	}
	row.Axis, row.Size, row.BoundMS = a, size, 1e3*c.bound()
	row.Ratio = row.StepMS / row.BoundMS
	row.StepTokens = c.spec.Train.Micros * c.spec.Model.Context
	row.TokensPerS = 1e3 * float64(row.StepTokens) / row.StepMS
	seconds, err := c.planned(ctx, settings)
	row.Control.PlanMS = 1e3 * seconds
	return row, err
}

// watcher looks at a run's nodes at the begin and the end of the steps that are measured, and stops it then. It is the run's output.
type watcher struct {
	ctx                  context.Context
	stop                 func() // ends the run
	dir                  string
	nodes, steps, rounds int
	note                 func(string)
	began                time.Time

	mu      sync.Mutex // guards what follows
	at      []time.Time
	startS  float64
	looks   [2]look
	looking sync.WaitGroup
}

// look holds what all nodes told at a time, when so many steps were done.
type look struct {
	step  plan.Step
	at    time.Time
	nodes []scrape
	err   error
}

// Event takes one of the run's events.
func (w *watcher) Event(e api.Event) {
	if e.Kind != api.KindStep {
		return
	}
	w.note(fmt.Sprintf("step %d of %d", min(int(e.Step), w.steps), w.steps))
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if w.at == nil {
		w.startS = now.Sub(w.began).Seconds()
	}
	if e.Step >= warmSteps && int(e.Step-warmSteps)%roundSteps == 0 && len(w.at) <= w.rounds {
		if w.at = append(w.at, now); len(w.at) == 1 {
			w.look(&w.looks[0], e.Step, now, func() {})
		} else if len(w.at) == w.rounds+1 {
			w.look(&w.looks[1], e.Step, now, w.stop)
		}
	} else if w.at == nil {
		w.at = []time.Time{}
	}
}

// look asks all nodes while they go on.
func (w *watcher) look(l *look, step plan.Step, now time.Time, then func()) {
	l.step, l.at = step, now
	w.looking.Go(func() {
		defer then()
		ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
		defer cancel()
		l.nodes, l.err = scrapeAll(ctx, w.dir, w.nodes)
	})
}

// Notice is for people who watch a run; here its folder has a log.
func (*watcher) Notice(line string) {}

var errNoSteps = errors.New("the run ended before its steps were measured")

// row returns what was seen of a run that has ended.
func (w *watcher) row() (row Row, err error) {
	w.looking.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.at) < w.rounds+1 {
		return row, errNoSteps
	}
	if err := errors.Join(w.looks[0].err, w.looks[1].err); err != nil {
		return row, fmt.Errorf("ask the nodes: %w", err)
	}
	var steps []float64
	for i, at := range w.at[1:] {
		steps = append(steps, at.Sub(w.at[i]).Seconds()/roundSteps)
	}
	row.StepMS = 1e3 * median(steps)
	first, last := w.looks[0], w.looks[1]
	row.Control = controlOf(first.nodes, last.nodes, last.at.Sub(first.at).Seconds(), int(last.step-first.step))
	row.Control.StartS = w.startS
	for _, n := range last.nodes {
		row.MemoryBytes = max(row.MemoryBytes, int64(n[memorySeries]))
	}
	return row, nil
}

// about says what the rows of an axis are.
func about(a Axis) string {
	m := computedModel
	size := fmt.Sprintf("%d channels, vocabulary %d, float32", m.Channels, m.Vocab)
	emulated := fmt.Sprintf("real processes, emulated devices of %s that compute nothing, lines of %d Mbit/s, %v one way", plan.Speed(emulatedRate), lineMbit, lineLatency)
	switch a {
	case Tokens:
		return fmt.Sprintf("Micro-batches of a step, a sequence of %d tokens each; computed here: %d blocks of %s", m.Context, m.Blocks, size)
	case Sequence:
		return fmt.Sprintf("Tokens of the one sequence of a step; computed here: %d blocks of %s", m.Blocks, size)
	case Layers:
		return fmt.Sprintf("Blocks; computed here: a sequence of %d tokens, %s", m.Context, size)
	case Nodes:
		return fmt.Sprintf("Nodes as a pipeline with a block on each, %d micro-batches; %s", pipelineMicros, emulated)
	case Replicas:
		return fmt.Sprintf("Replicas that add their gradients in every step, %d micro-batches each, %d blocks; %s", replicaMicros, replicaBlocks, emulated)
	default:
		return fmt.Sprintf("Replicas with local steps, an outer one after each %d; else as above; %s", roundSteps, emulated)
	}
}

// unit says what the sizes of an axis count.
func unit(a Axis) string {
	return strings.ReplaceAll(map[Axis]string{Tokens: "micros", Sequence: "tokens", Layers: "blocks", Nodes: "nodes"}[a], " ", "")
}
