package bench

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"pnode/pipeline/link"
)

// ScheduleOptions say what to measure; the zero value takes a small grid.
type ScheduleOptions struct {
	// Full takes the whole grid: 4 and 8 stages, five bandwidths, four latencies.
	Full bool
	// Stages, Mbits and Latencies (one way) replace those of the grid.
	Stages    []int
	Mbits     []int
	Latencies []time.Duration
	// StageTime is what one stage takes for a micro-batch; default 40 ms.
	StageTime time.Duration
	// Progress is told what is measured now; nil for nobody.
	Progress func(string)
}

func (o *ScheduleOptions) fill() error {
	small := ScheduleOptions{Stages: []int{4}, Mbits: []int{100}, Latencies: []time.Duration{10 * time.Millisecond, 40 * time.Millisecond}}
	if o.Full {
		small.Stages, small.Mbits = []int{4, 8}, []int{10, 50, 100, 500, 1000}
		small.Latencies = []time.Duration{time.Millisecond, 10 * time.Millisecond, 40 * time.Millisecond, 150 * time.Millisecond}
	}
	if len(o.Stages) == 0 {
		o.Stages = small.Stages
	}
	if len(o.Mbits) == 0 {
		o.Mbits = small.Mbits
	}
	if len(o.Latencies) == 0 {
		o.Latencies = small.Latencies
	}
	o.StageTime = cmp.Or(o.StageTime, 40*time.Millisecond)
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	for _, n := range o.Stages {
		if n < 2 || n > 16 {
			return fmt.Errorf("--stages is %d: take 2 to 16", n)
		}
	}
	for _, n := range o.Mbits {
		if n < 1 || n > 100_000 {
			return fmt.Errorf("--mbit is %d: take 1 to 100000", n)
		}
	}
	for _, d := range o.Latencies {
		if d < 0 || d > time.Second {
			return fmt.Errorf("--latency is %v: take 0s to 1s", d)
		}
	}
	if o.StageTime < time.Millisecond || o.StageTime > time.Second {
		return fmt.Errorf("--stage-time is %v: take 1ms to 1s", o.StageTime)
	}
	return nil
}

// ScheduleReport is the result of Schedules.
type ScheduleReport struct {
	StageMS      float64        `json:"stage_ms"`
	MessageBytes int            `json:"message_bytes"`
	Cells        []ScheduleCell `json:"cells"`
	// MeanError is the mean over all runs of how far the simulated step is from the
	// measured one, relative to that.
	MeanError float64 `json:"mean_error"`
	// WorstRatio is that of the elastic schedule without a memory cap over all cells.
	WorstRatio float64 `json:"worst_ratio"`
}

// ScheduleCell is one number of stages and one kind of link.
type ScheduleCell struct {
	Stages    int     `json:"stages"`
	Mbit      int     `json:"mbit"`
	LatencyMS float64 `json:"latency_ms"`
	Micros    int     `json:"micros"`
	// BoundMS is the period that nothing can beat: the slowest stage or transfer.
	BoundMS float64 `json:"bound_ms"`
	// WireBytes is what a message took on the line, all packets of the link counted.
	WireBytes int           `json:"wire_bytes"`
	Runs      []ScheduleRun `json:"runs"`
}

// ScheduleRun is one schedule in a cell.
type ScheduleRun struct {
	Name string `json:"name"`
	// Cap is how many activations a stage may keep: "1f1b", "2x" or "none".
	Cap string `json:"cap"`
	// Spec and Warmups say what was run (schedule.Spec).
	Spec    string `json:"spec"`
	Warmups []int  `json:"warmups,omitempty"`
	// Refused says why the schedule does not run; then there are no figures.
	Refused string `json:"refused,omitempty"`
	// PeriodMS is a micro-batch's time once the pipeline is under way, 0 for schedules that
	// never are; StepMS is all micro-batches with filling and draining.
	PeriodMS          float64 `json:"period_ms"`
	PredictedPeriodMS float64 `json:"predicted_period_ms"`
	StepMS            float64 `json:"step_ms"`
	PredictedStepMS   float64 `json:"predicted_step_ms"`
	// Ratio is the measured period over the bound, Error that of the predicted step.
	Ratio float64 `json:"ratio"`
	Error float64 `json:"error"`
	// Slower is the step over that of the elastic choice without a cap.
	Slower float64 `json:"slower"`
}

// Schedules measures schedules on emulated devices and links, with the workers of real
// runs and real QUIC, and simulates each.
func Schedules(ctx context.Context, o ScheduleOptions) (ScheduleReport, error) {
	var r ScheduleReport
	if err := o.fill(); err != nil {
		return r, fmt.Errorf("bench schedules: %w: %w", ErrOptions, err)
	}
	r.StageMS, r.MessageBytes = milliseconds(o.StageTime), messageBytes
	if err := r.measureCells(ctx, o); err != nil {
		return r, fmt.Errorf("bench schedules: %w", err)
	}
	r.summarise()
	return r, nil
}

func (r *ScheduleReport) measureCells(ctx context.Context, o ScheduleOptions) error {
	cells := o.cells()
	eta := &eta{begin: time.Now(), cells: len(cells)}
	for _, one := range cells {
		stages, mbit, latency := one.Stages[0], one.Mbits[0], one.Latencies[0]
		name := fmt.Sprintf("%d stages, %d Mbit/s, %v", stages, mbit, latency)
		o.Progress(name + eta.String())
		shape := link.Shape{BytesPerS: int64(mbit) * 1e6 / 8, Delay: latency}
		cell, err := measureCell(ctx, stages, o.StageTime, shape)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		cell.Mbit = mbit
		r.Cells = append(r.Cells, cell)
		eta.done++
	}
	return nil
}

// cells are the options of each cell alone.
func (o ScheduleOptions) cells() (all []ScheduleOptions) {
	for _, stages := range o.Stages {
		for _, mbit := range o.Mbits {
			for _, latency := range o.Latencies {
				one := o
				one.Stages, one.Mbits, one.Latencies = []int{stages}, []int{mbit}, []time.Duration{latency}
				all = append(all, one)
			}
		}
	}
	return all
}

// eta tells how long the rest takes, to go by the cells so far.
type eta struct {
	begin       time.Time
	done, cells int
}

func (e *eta) String() string {
	s := fmt.Sprintf(" (%d of %d", e.done+1, e.cells)
	if e.done > 0 {
		left := time.Since(e.begin) / time.Duration(e.done) * time.Duration(e.cells-e.done)
		s += fmt.Sprintf(", about %v left", left.Round(time.Second))
	}
	return s + ")"
}

func (r *ScheduleReport) summarise() {
	r.MeanError, r.WorstRatio = 0, 0
	runs := 0
	for _, c := range r.Cells {
		for _, run := range c.Runs {
			if run.Refused != "" {
				continue
			}
			runs++
			r.MeanError += max(run.Error, -run.Error)
			if run.Name == elasticName && run.Cap == noCap {
				r.WorstRatio = max(r.WorstRatio, run.Ratio)
			}
		}
	}
	if runs > 0 {
		r.MeanError /= float64(runs)
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Names of the schedules and of the caps.
const (
	elasticName = "elastic"
	groupsName  = "elastic groups"
	noCap       = "none"
)

// capOf is a number of activations that each stage may keep.
type capOf struct {
	name string
	caps []int // nil: no limit
}

// capsOf are the caps, the widest first.
func capsOf(stages int) []capOf {
	times := func(k int) []int {
		caps := make([]int, stages)
		for r := range caps {
			caps[r] = k * (stages - r)
		}
		return caps
	}
	return []capOf{{noCap, nil}, {"2x", times(2)}, {"1f1b", times(1)}}
}

// measureCell runs all schedules on one kind of link.
func measureCell(ctx context.Context, stages int, stageTime time.Duration, shape link.Shape) (cell ScheduleCell, err error) {
	c, err := newScheduleCase(stages, stageTime)
	if err != nil {
		return cell, err
	}
	rig, err := newScheduleRig(stages, shape)
	if err != nil {
		return cell, err
	}
	defer rig.close()
	c.peers = rig.peers
	free, err := c.elastic(shape, messageBytes, nil)
	if err != nil {
		return cell, err
	}
	c.micros = micros(stages, free)
	wire, err := rig.warm(ctx, c, free)
	if err != nil {
		return cell, err
	}
	costs := c.costs(shape, wire)
	cell = ScheduleCell{
		Stages: stages, LatencyMS: milliseconds(shape.Delay), Micros: c.micros, WireBytes: wire,
		BoundMS: milliseconds(time.Duration(costs.Floor())),
	}
	trials, err := c.trials(shape, wire)
	if err != nil {
		return cell, err
	}
	for _, t := range trials {
		run, err := rig.measure(ctx, c, t, costs)
		if err != nil {
			return cell, fmt.Errorf("%s, cap %s: %w", t.name, t.cap, err)
		}
		run.Ratio = run.PeriodMS / cell.BoundMS
		cell.Runs = append(cell.Runs, run)
	}
	cell.compare()
	return cell, nil
}

// compare relates all steps to that of the elastic choice: groups where they were chosen.
func (c *ScheduleCell) compare() {
	chosen := 0.0
	for _, run := range c.Runs {
		if run.Cap == noCap && (run.Name == elasticName || run.Name == groupsName) {
			chosen = run.StepMS
		}
	}
	for i := range c.Runs {
		c.Runs[i].Slower = c.Runs[i].StepMS / chosen
	}
}

// micros is enough for a pipeline with these warm-ups to be under way for a while.
func micros(stages int, warmups []int) int {
	n := max(6*stages, 2*(slices.Max(warmups)+1)+3*stages)
	return (n + stages - 1) / stages * stages // interleaved schedules want whole groups
}
