package bench

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
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
	// Progress receives what is measured now; nil for nobody.
	Progress func(string)
}

func (o *ScheduleOptions) fill() error {
	const ms = time.Millisecond
	stages, mbits, latencies := []int{4}, []int{100}, []time.Duration{10 * ms, 40 * ms}
	if o.Full {
		stages, mbits, latencies = []int{4, 8}, []int{10, 50, 100, 500, 1000}, []time.Duration{ms, 10 * ms, 40 * ms, 150 * ms}
	}
	o.Stages, o.Mbits, o.Latencies = orElse(o.Stages, stages...), orElse(o.Mbits, mbits...), orElse(o.Latencies, latencies...)
	o.StageTime = cmp.Or(o.StageTime, 40*ms)
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return cmp.Or(checkRange("stages", 2, 16, o.Stages...), checkRange("mbit", 1, 100_000, o.Mbits...),
		checkRange("latency", 0, time.Second, o.Latencies...), checkRange("stage-time", ms, time.Second, o.StageTime))
}

// ScheduleReport is the result of Schedules.
type ScheduleReport struct {
	StageMS      float64        `json:"stage_ms"`
	MessageBytes int            `json:"message_bytes"`
	Cells        []ScheduleCell `json:"cells"`
	// MeanError is the mean over all runs of the simulated passes' distance from the measured ones, as a
	// part of the latter.
	MeanError float64 `json:"mean_error"`
	// WorstRatio is the largest of the elastic schedule without a memory cap over all cells.
	WorstRatio float64 `json:"worst_ratio"`
}

// ScheduleCell is one number of stages and one kind of link.
type ScheduleCell struct {
	Stages    int     `json:"stages"`
	Mbit      int     `json:"mbit"`
	LatencyMS float64 `json:"latency_ms"`
	Micros    int     `json:"micros"`
	// BoundMS is the least period of any schedule: the slowest stage or transfer.
	BoundMS float64 `json:"bound_ms"`
	// WireBytes counts what a message took on the line, all packets of the link included.
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
	// never are; StepMS is a step's passes with filling and draining, without its update.
	PeriodMS          float64 `json:"period_ms"`
	PredictedPeriodMS float64 `json:"predicted_period_ms"`
	StepMS            float64 `json:"step_ms"`
	PredictedStepMS   float64 `json:"predicted_step_ms"`
	// Ratio is the measured period over the bound, Error the predicted step over the measured one less 1.
	Ratio float64 `json:"ratio"`
	Error float64 `json:"error"`
	// Slower is the step over the elastic choice's without a cap.
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
	cells := o.cells()
	eta := &eta{begin: time.Now(), cells: len(cells)}
	for _, one := range cells {
		stages, mbit, latency := one.Stages[0], one.Mbits[0], one.Latencies[0]
		name := fmt.Sprintf("%d stages, %d Mbit/s, %v", stages, mbit, latency)
		o.Progress(name + eta.String())
		cell, err := measureCell(ctx, stages, o.StageTime, link.LinkConditions{BytesPerS: int64(mbit) * 1e6 / 8, Delay: latency})
		if err != nil {
			return r, fmt.Errorf("bench schedules: %s: %w", name, err)
		}
		cell.Mbit = mbit
		r.Cells = append(r.Cells, cell)
		eta.done++
	}
	r.summarise()
	return r, nil
}

// cells returns the options of each cell alone.
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

func (r *ScheduleReport) summarise() {
	r.MeanError, r.WorstRatio = 0, 0
	runs := 0
	for _, c := range r.Cells {
		for _, run := range c.Runs {
			if run.Refused != "" {
				continue
			}
			runs++
			r.MeanError += math.Abs(run.Error)
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

// measureCell runs all schedules on one kind of link.
func measureCell(ctx context.Context, stages int, stageTime time.Duration, shape link.LinkConditions) (cell ScheduleCell, err error) {
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
	chosen := 0.0 // the elastic choice's step: groups, which come after it, where they were chosen
	for _, run := range cell.Runs {
		if run.Cap == noCap && (run.Name == elasticName || run.Name == groupsName) {
			chosen = run.StepMS
		}
	}
	for i := range cell.Runs {
		cell.Runs[i].Slower = cell.Runs[i].StepMS / chosen
	}
	return cell, nil
}

// micros returns enough micro-batches for a pipeline with these warm-ups to be under way for a while.
func micros(stages int, warmups []int) int {
	n := max(6*stages, 2*(slices.Max(warmups)+1)+3*stages)
	return (n + stages - 1) / stages * stages // interleaved schedules want whole groups
}

// Text returns the report as a table for people.
func (r ScheduleReport) Text() string {
	var w strings.Builder
	fmt.Fprintf(&w, "Emulated devices that take %.0f ms a micro-batch, messages of %d KiB, real workers and real QUIC.\n", r.StageMS, r.MessageBytes>>10)
	fmt.Fprintf(&w, "Times in ms; bound: the slowest stage or transfer; passes: from the first forward to the last\n"+
		"backward of a step. The update after them takes each schedule as long, a round trip, and does not count.\n\n")
	t := tabwriter.NewWriter(&w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "stages\tMbit/s\tlatency\tmicros\tschedule\tcap\tperiod\tbound\tratio\tpasses\tsimulated\terror\telastic is\t")
	for _, c := range r.Cells {
		for _, run := range c.Runs {
			fmt.Fprintf(t, "%d\t%d\t%.0f\t%d\t%s\t%s\t", c.Stages, c.Mbit, c.LatencyMS, c.Micros, run.Name, run.Cap)
			if run.Refused != "" {
				fmt.Fprint(t, "-\t-\t-\t-\t-\tdoes not fit\t-\t\n")
				continue
			}
			period, ratio := "-", "-"
			if run.PeriodMS > 0 {
				period, ratio = fmt.Sprintf("%.1f", run.PeriodMS), fmt.Sprintf("%.3f", run.Ratio)
			}
			fmt.Fprintf(t, "%s\t%.1f\t%s\t%.0f\t%.0f\t%+.1f%%\t%.2fx\t\n", period, c.BoundMS, ratio, run.StepMS, run.PredictedStepMS, 100*run.Error, run.Slower)
		}
	}
	_ = t.Flush() // a Builder takes all
	fmt.Fprintf(&w, "\nElastic without a cap: at most %.3f of the bound. Simulated against measured passes: mean error %.1f%%.\n", r.WorstRatio, 100*r.MeanError)
	return w.String()
}
