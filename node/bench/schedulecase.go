package bench

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"pnode/planner/plan"

	"pnode/kernels"
	"pnode/kernels/emulate"
	"pnode/kernels/null"
	"pnode/pipeline"
	"pnode/pipeline/link"
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
)

// The model of the measurement: small, because nothing is computed; a message between two
// stages is [1,128,64] in f32.
const (
	scheduleContext  = 128
	scheduleChannels = 64
	messageBytes     = 4 * scheduleContext * scheduleChannels
	// chunksPerStage blocks on each stage, so that schedules which interleave chunks have one
	// block each.
	chunksPerStage = 2
)

// scheduleCase is a model on emulated devices of which each takes the same time for its
// share of a micro-batch.
type scheduleCase struct {
	stages    int
	peers     []plan.PeerID // by device
	micros    int
	stageTime time.Duration
	model     model.Config
	profiles  []emulate.Profile
	times     []schedule.StageTime
}

// fastMemory makes everything but products and attention free of time.
const fastMemory = 1 << 60

func newScheduleCase(stages int, stageTime time.Duration) (*scheduleCase, error) {
	c := &scheduleCase{stages: stages, stageTime: stageTime, model: model.Config{
		Vocab: 64, Context: scheduleContext, Blocks: chunksPerStage * stages, Heads: 2, Channels: scheduleChannels,
	}}
	for _, layers := range c.cut(stages) {
		unit := emulate.Profile{Model: "unit", MatMulFLOPS: 1e9, AttentionFLOPS: 1e9, MemoryBytesPerS: fastMemory, MemoryBytes: 1 << 50}
		forward, backward, err := c.passes(unit, layers)
		if err != nil {
			return nil, err
		}
		rate := int64(float64(unit.MatMulFLOPS) * float64(forward+backward) / float64(stageTime))
		p := emulate.Profile{Model: fmt.Sprintf("%v a micro-batch", stageTime), MatMulFLOPS: rate, AttentionFLOPS: rate, MemoryBytesPerS: fastMemory, MemoryBytes: unit.MemoryBytes}
		if forward, backward, err = c.passes(p, layers); err != nil {
			return nil, err
		}
		c.profiles = append(c.profiles, p)
		c.times = append(c.times, schedule.StageTime{Forward: schedule.Nanos(forward), Input: schedule.Nanos(backward)})
	}
	return c, nil
}

// cut gives each of so many stages its share of the blocks; the first has the embedding too,
// the last the head.
func (c *scheduleCase) cut(stages int) []plan.LayerRange {
	each := c.model.Blocks / stages
	ranges := make([]plan.LayerRange, stages)
	for s := range ranges {
		ranges[s] = plan.LayerRange{First: 1 + s*each, End: 1 + (s+1)*each}
	}
	ranges[0].First = 0
	ranges[stages-1].End = c.model.Layers()
	return ranges
}

// passes are the times of a forward and a backward of a device with some layers that keep
// everything, as its clock counts them.
func (c *scheduleCase) passes(p emulate.Profile, layers plan.LayerRange) (forward, backward time.Duration, err error) {
	return c.leanPasses(p, layers, model.RecomputeNothing)
}

// leanPasses are those of layers of a level of recomputation.
func (c *scheduleCase) leanPasses(p emulate.Profile, layers plan.LayerRange, level model.Recompute) (forward, backward time.Duration, err error) {
	dev, err := emulate.New(null.New(), emulate.Options{Profile: p})
	if err != nil {
		return 0, 0, err
	}
	stack, err := model.NewStack(model.StackConfig{
		Device: dev, Model: c.model, First: layers.First, End: layers.End, MicroBatch: 1, Slots: 1, Moments: 2,
		Recompute: level.Uniform(layers.Len()),
	})
	if err != nil {
		return 0, 0, err
	}
	defer stack.Close()
	q, err := dev.NewQueue()
	if err != nil {
		return 0, 0, err
	}
	stack.Slot(0).Forward(q, model.Noise{})
	forward = dev.BusyTime()
	stack.Slot(0).Backward(q, 1)
	return forward, dev.BusyTime() - forward, nil
}

// costs are those of the pipeline with one stage a device.
func (c *scheduleCase) costs(shape link.Shape, wireBytes int) schedule.Costs {
	hop := schedule.Hop{
		Transfer: schedule.Nanos(int64(wireBytes) * int64(time.Second) / shape.BytesPerS),
		Latency:  schedule.Nanos(shape.Delay),
	}
	return schedule.Costs{
		Stages:     c.times,
		Boundaries: slices.Repeat([]schedule.Boundary{{Activation: hop, Gradient: hop}}, c.stages-1),
	}
}

// plan puts the trial's stages on the peers, one device each.
func (c *scheduleCase) plan(t trial, generation plan.Generation) (plan.Plan, error) {
	spec, err := schedule.ParseSpec(t.spec)
	if err != nil {
		return plan.Plan{}, err
	}
	stages, replicas := c.stages*spec.Chunks(), spec.Replicas()
	warmups := t.warmups
	if t.spec == "gpipe" {
		warmups = slices.Repeat([]int{c.micros - 1}, stages)
	}
	group := schedule.Group{Stages: stages, Warmups: warmups}
	for r := range replicas {
		first, end := c.micros*r/replicas, c.micros*(r+1)/replicas
		group.Shares = append(group.Shares, schedule.Share{First: schedule.Micro(first), Micros: end - first})
	}
	list, err := spec.Build(group)
	if err != nil {
		return plan.Plan{}, err
	}
	p := plan.Plan{Run: benchRun, Generation: generation, Schedule: t.spec}
	for r, share := range group.Shares {
		pipe := plan.Pipeline{FirstMicro: share.First, Micros: share.Micros, Warmups: warmups}
		for s, layers := range c.cut(stages) {
			peer := c.peers[list.Holder(schedule.Replica(r), schedule.Stage(s))]
			place := plan.Placement{Peer: peer, Device: "cpu", Codec: "f32", Layers: layers}
			if t.again != nil {
				place.Recompute, place.Ahead = t.again[s].levels, t.again[s].ahead
			}
			pipe.Stages = append(pipe.Stages, place)
		}
		p.Replicas = append(p.Replicas, pipe)
	}
	return p, nil
}

const benchRun = "bench"

func (c *scheduleCase) run() plan.RunSpec {
	return plan.RunSpec{
		Run: benchRun, Model: c.model,
		Train: plan.TrainSpec{
			Seed: 1, Steps: endless, Micros: c.micros, MicroBatch: 1, LR: 1e-4, MinLR: 1e-4, WarmupSteps: 1,
			Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, ClipNorm: 1, HeldOutEvery: endless, CheckpointEvery: endless,
		},
	}
}

// device emulates that of a stage. Under a cap it has the memory that the capped schedule
// needs and no more.
func (c *scheduleCase) device(stage int, t trial) (*emulate.Device, error) {
	p := c.profiles[stage]
	if t.caps != nil {
		layers := c.cut(c.stages)[stage]
		memory, err := model.StackConfig{
			Model: c.model, First: layers.First, End: layers.End, MicroBatch: 1, Slots: t.caps[stage], Moments: 2,
			Recompute: model.RecomputeNothing.Uniform(layers.Len()),
		}.Memory()
		if err != nil {
			return nil, err
		}
		p.MemoryBytes = memory.Total() + besideStack
	}
	if t.again != nil {
		p.MemoryBytes = t.again[stage].memoryBytes
	}
	return emulate.New(null.New(), emulate.Options{Name: "cpu", Profile: p, Slack: emulate.PacedSlack})
}

// besideStack is what a worker allocates besides its stack: the result of a sum.
const besideStack = 4

// predict simulates a plan: the period and the step.
func (c *scheduleCase) predict(plan plan.Plan, costs schedule.Costs) (period, step time.Duration, err error) {
	list, err := pipeline.Programs(plan)
	if err != nil {
		return 0, 0, err
	}
	if n := len(plan.Replicas[0].Stages); n > c.stages {
		if costs, err = c.chunked(costs, n); err != nil {
			return 0, 0, err
		}
	}
	line, err := schedule.Simulate(list, schedule.Timing{Replicas: slices.Repeat([]schedule.Costs{costs}, len(plan.Replicas))})
	if err != nil {
		return 0, 0, err
	}
	var ends []time.Duration
	for _, spans := range line.Workers {
		for _, s := range spans {
			if s.Action.Stage == 1 && s.Action.Op == schedule.Backward {
				ends = append(ends, time.Duration(s.End))
			}
		}
	}
	return steadyPeriod(ends, plan), time.Duration(line.Makespan), nil
}

// chunked are the costs with the stages of all chunks, each on its device.
func (c *scheduleCase) chunked(costs schedule.Costs, stages int) (schedule.Costs, error) {
	out := schedule.Costs{Boundaries: slices.Repeat(costs.Boundaries[:1], stages-1)}
	for s, layers := range c.cut(stages) {
		forward, backward, err := c.passes(c.profiles[s%c.stages], layers)
		if err != nil {
			return out, err
		}
		out.Stages = append(out.Stages, schedule.StageTime{Forward: schedule.Nanos(forward), Input: schedule.Nanos(backward)})
	}
	return out, nil
}

// steadyPeriod is the time per micro-batch between the times at which each one's gradient
// has left stage 1, in order: once the pipeline is filled, and before its forwards end. It is
// 0 for a schedule that is always either filling or draining.
func steadyPeriod(ends []time.Duration, plan plan.Plan) time.Duration {
	kept, drain := pattern(plan)
	last := len(ends) - 1 - drain
	first := min(kept, last/2)
	if kept == 0 || last <= first {
		return 0
	}
	if n := (last - first) / kept * kept; n > 0 {
		first = last - n
	}
	return (ends[last] - ends[first]) / time.Duration(last-first)
}

// pattern is after how many micro-batches what a pipeline does repeats itself, even where it
// waits, and how many backwards are left when its forwards end.
func pattern(plan plan.Plan) (kept, drain int) {
	pipe := plan.Replicas[0]
	if len(plan.Replicas) > 1 {
		return 0, 0
	}
	if len(pipe.Warmups) > 1 {
		if pipe.Warmups[1] >= pipe.Micros-1 {
			return 0, 0
		}
		return pipe.Warmups[0] + 1, pipe.Warmups[1]
	}
	spec, err := schedule.ParseSpec(plan.Schedule)
	if err != nil {
		return 0, 0
	}
	group := groupOf(spec, len(pipe.Stages)/spec.Chunks())
	if group == 0 || spec.Kind != "interleaved" && spec.Kind != "depth-first" || 3*group > pipe.Micros {
		return 0, 0
	}
	return group, group
}

// refusal is why a schedule cannot run on devices with so little memory.
func refusal(err error) (string, bool) {
	if errors.Is(err, kernels.ErrOutOfMemory) {
		return err.Error(), true
	}
	return "", false
}
