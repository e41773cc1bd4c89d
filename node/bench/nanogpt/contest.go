package nanogpt

import (
	"fmt"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// What the contest fixes.
const (
	Stages         = 8
	StepTokens     = 8 * 64 * 1024
	Context        = 1024
	Channels       = 1024
	ParameterLimit = 203_828_352
	// frameBytes are billed with each message: the count of the bytes in use.
	frameBytes = 8
)

// Sequences is how many a step has.
const Sequences = StepTokens / Context

// Lines is the frozen meter.
func Lines() Meter { return Meter{BitsPerS: 200_000_000, Fixed: 50_000_000} }

// Model returns the contest's first model, as far as this program has its parts, with an MLP of so many hidden channels: rotary positions, RMSNorm and a
// head of its own. It lacks the norm after the embedding and the head's bias, and has GELU in place of a squared ReLU.
func Model(hidden int) model.Config {
	return model.Config{
		Vocab: 50304, Context: Context, Blocks: Stages, Heads: 8, Channels: Channels, MLP: hidden,
		Norm: model.RMSNorm, Positions: model.RoPE, UntiedHead: true,
	}
}

// Entry is a run that the contest has published, with its step on the meter and without it.
type Entry struct {
	Name string `json:"name"`
	// BytesAToken crosses each boundary in each direction.
	BytesAToken int64 `json:"bytes_a_token"`
	// MicroBatch is how many sequences go together.
	MicroBatch int `json:"micro_batch"`
	// Published is the step of the timing run, Unmetered that of the loss run, whose messages do not wait: about the median of its log.
	Published schedule.Nanos `json:"published_nanos"`
	Unmetered schedule.Nanos `json:"unmetered_nanos"`
	// hidden has as many channels as give an MLP the entry's multiplications.
	hidden int
}

// Entries returns the two published ones, of 17 and 18 September 2026. Both run 1F1B on eight H100. The second one's MLP has 11,292 hidden channels and
// an output projection of rank 160: as many multiplications as 6,528 channels have.
func Entries() []Entry {
	return []Entry{
		{"bf16", 2048, 8, 100_475_000_000, 539_000_000, 4 * Channels},
		{"subspace of rank 160", 322, 16, 19_889_000_000, 655_000_000, 11_292 * (1024 + 160) / 2048},
	}
}

// Step returns the entry's step by the meter.
func (e Entry) Step() (schedule.Nanos, error) {
	times, err := e.passes(e.MicroBatch)
	if err != nil {
		return 0, err
	}
	s, err := build(Plain, Sequences/e.MicroBatch)
	if err != nil {
		return 0, err
	}
	return Step(s, times, Lines().Message(e.BytesAToken*int64(e.MicroBatch)*Context+frameBytes))
}

// passes returns what the stages' passes take with micro-batches of so many sequences: their operations at the rate at which the entry's own
// step without waiting messages takes as long as was published.
func (e Entry) passes(microBatch int) ([]schedule.StageTime, error) {
	unit := operations(e.hidden, e.MicroBatch)
	s, err := build(Plain, Sequences/e.MicroBatch)
	if err != nil {
		return nil, err
	}
	all, err := Step(s, unit, 0)
	if err != nil {
		return nil, err
	}
	times := operations(e.hidden, microBatch)
	for i := range times {
		t := &times[i]
		for _, d := range []*schedule.Nanos{&t.Forward, &t.Input, &t.Weight} {
			*d = schedule.Nanos(float64(*d) * float64(e.Unmetered) / float64(all))
		}
	}
	return times, nil
}

// operations returns in place of times the millions of operations of each stage's passes: one block, the first one's with the embedding and
// the last one's with the head.
func operations(hidden, microBatch int) []schedule.StageTime {
	const million = 1_000_000
	stages := make([]schedule.StageTime, Stages)
	for l, c := range Model(hidden).Costs(microBatch, model.StorageBF16) {
		t := &stages[min(max(l-1, 0), Stages-1)]
		t.Forward += schedule.Nanos(c.ForwardFLOPs / million)
		t.Input += schedule.Nanos(c.InputFLOPs / million)
		t.Weight += schedule.Nanos(c.WeightFLOPs / million)
	}
	return stages
}

// Plain is the schedule of the published entries.
const Plain = "1f1b"

// build returns a schedule for so many micro-batches.
func build(spec string, micros int) (schedule.Schedule, error) {
	parsed, err := schedule.ParseSpec(spec)
	if err != nil {
		return schedule.Schedule{}, err
	}
	return parsed.Build(schedule.Group{Stages: Stages, Shares: []schedule.Share{{Micros: micros}}})
}

// Trial is a step of this program on the contest's model.
type Trial struct {
	Codec      string         `json:"codec"`
	Schedule   string         `json:"schedule"`
	MicroBatch int            `json:"micro_batch"`
	Step       schedule.Nanos `json:"step_nanos"`
	// Bound is what no schedule with such messages takes less than.
	Bound schedule.Nanos `json:"bound_nanos"`
	// BytesAToken crosses a boundary in both directions together, in thousandths of a byte.
	MilliBytesAToken int64 `json:"milli_bytes_a_token"`
}

// Schedules returns the names of those that the contest's model can run in: with one stage a worker and one copy of the model. Others cut 8 layers into 16
// stages, or hold them twice.
func Schedules() (names []string) {
	for _, k := range schedule.Kinds() {
		if k.NeedsCosts || k.StagesPerWorker(schedule.Options{}) > 1 || k.Replicas(schedule.Options{}) > 1 || k.Name == searched {
			continue
		}
		names = append(names, k.Name)
	}
	return names
}

// searched is a kind whose orders are found for lines with two directions of their own; what it would find here is not known.
const searched = "zb-elastic"

// Try returns the step of a codec, a schedule and a micro-batch. Passes take what those of the first entry took: how fast this program's are on such
// devices has not been measured.
func Try(codec plan.Codec, spec string, microBatch int) (t Trial, err error) {
	if microBatch < 1 || Sequences%microBatch != 0 {
		return t, fmt.Errorf("nanogpt: micro-batches of %d sequences: want a part of %d", microBatch, Sequences)
	}
	micros := Sequences / microBatch
	s, err := build(spec, micros)
	if err != nil {
		return t, err
	}
	parts := max(s.Segments, 1)
	times, err := Entries()[0].passes(microBatch)
	if err != nil {
		return t, err
	}
	for i := range times {
		times[i] = times[i].Over(parts)
	}
	tensor := codec.Bytes(int64(microBatch)*Context/int64(parts)*Channels, Channels)
	message := Lines().Message(tensor + frameBytes)
	t = Trial{Codec: codec.String(), Schedule: spec, MicroBatch: microBatch, Bound: Bound(Stages, micros*parts, message)}
	t.MilliBytesAToken = 2 * 1000 * tensor * int64(parts) / (int64(microBatch) * Context)
	t.Step, err = Step(s, times, message)
	return t, err
}
