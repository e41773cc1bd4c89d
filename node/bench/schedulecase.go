package bench

import (
	"fmt"
	"slices"
	"time"

	"pnode/planner/plan"

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
		p := emulate.Profile{Model: "unit", MatMulFLOPS: 1e9, AttentionFLOPS: 1e9, MemoryBytesPerS: fastMemory, MemoryBytes: 1 << 50}
		unit, err := c.stageTimes(p, layers)
		if err != nil {
			return nil, err
		}
		p.Model = fmt.Sprintf("%v a micro-batch", stageTime)
		p.MatMulFLOPS = int64(float64(p.MatMulFLOPS) * float64(unit.Forward+unit.Input) / float64(stageTime))
		p.AttentionFLOPS = p.MatMulFLOPS
		took, err := c.stageTimes(p, layers)
		if err != nil {
			return nil, err
		}
		c.profiles, c.times = append(c.profiles, p), append(c.times, took)
	}
	return c, nil
}

// cut returns the layers of each stage: its share of the blocks, on the first the embedding too, on the
// last the head.
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

// passes returns the times of a forward and a backward of a device with some layers of a level of
// recomputation, as its clock counts them.
func (c *scheduleCase) passes(p emulate.Profile, layers plan.LayerRange, level model.Recompute) (forward, backward time.Duration, err error) {
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

// stageTimes returns the times of a device's passes over some layers that keep everything.
func (c *scheduleCase) stageTimes(p emulate.Profile, layers plan.LayerRange) (schedule.StageTime, error) {
	forward, backward, err := c.passes(p, layers, model.RecomputeNothing)
	return schedule.StageTime{Forward: schedule.Nanos(forward), Input: schedule.Nanos(backward)}, err
}

// costs returns those of the pipeline with one stage a device.
func (c *scheduleCase) costs(shape link.LinkConditions, wireBytes int) schedule.Costs {
	hop := schedule.Hop{
		Transfer: schedule.Nanos(int64(wireBytes) * int64(time.Second) / shape.BytesPerS),
		Latency:  schedule.Nanos(shape.Delay),
	}
	return schedule.Costs{
		Stages:     c.times,
		Boundaries: slices.Repeat([]schedule.Boundary{{Activation: hop, Gradient: hop}}, c.stages-1),
	}
}

// plan places the trial's stages on the peers, one device each.
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
			if t.place != nil {
				t.place(s, &place)
			}
			pipe.Stages = append(pipe.Stages, place)
		}
		p.Replicas = append(p.Replicas, pipe)
	}
	return p, nil
}

// capped returns the memory that each device needs for so many activations, and no more.
func (c *scheduleCase) capped(activations []int) (memoryBytes []int64, err error) {
	for stage, layers := range c.cut(c.stages) {
		memory, err := model.StackConfig{
			Model: c.model, First: layers.First, End: layers.End, MicroBatch: 1, Slots: activations[stage], Moments: 2,
			Recompute: model.RecomputeNothing.Uniform(layers.Len()),
		}.Memory()
		if err != nil {
			return nil, err
		}
		memoryBytes = append(memoryBytes, memory.Total()+besideStack)
	}
	return memoryBytes, nil
}

// besideStack counts the bytes that a worker of one replica allocates besides its stack: square sums of a layer.
const besideStack = 8

// predict simulates a plan and returns its pace.
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
	period, step = pace(line, plan)
	return period, step, nil
}

// chunked returns the costs with the stages of all chunks, each on its device.
func (c *scheduleCase) chunked(costs schedule.Costs, stages int) (schedule.Costs, error) {
	out := schedule.Costs{Boundaries: slices.Repeat(costs.Boundaries[:1], stages-1)}
	for s, layers := range c.cut(stages) {
		took, err := c.stageTimes(c.profiles[s%c.stages], layers)
		if err != nil {
			return out, err
		}
		out.Stages = append(out.Stages, took)
	}
	return out, nil
}

// pace returns how long the passes of a step take, and the period: the time per micro-batch between
// the ends of the backwards of stage 1, once the pipeline is filled and before its forwards end. The
// period is 0 for a schedule that is always either filling or draining.
func pace(line schedule.Timeline, plan plan.Plan) (period, step time.Duration) {
	var ends []schedule.Nanos
	for _, spans := range line.Workers {
		for _, s := range spans {
			if s.Action.Op != schedule.Backward {
				continue
			}
			if step = max(step, time.Duration(s.End)); s.Action.Stage == 1 {
				ends = append(ends, s.End)
			}
		}
	}
	kept, drain := pattern(plan)
	last := len(ends) - 1 - drain
	first := min(kept, last/2)
	if kept == 0 || last <= first {
		return 0, step
	}
	if n := (last - first) / kept * kept; n > 0 {
		first = last - n
	}
	slices.Sort(ends)
	return time.Duration(ends[last]-ends[first]) / time.Duration(last-first), step
}

// pattern returns after how many micro-batches a pipeline repeats itself, waits included, and how
// many backwards are left when its forwards end.
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
