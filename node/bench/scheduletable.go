package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Text writes the report as a table for people.
func (r ScheduleReport) Text(w io.Writer) error {
	fmt.Fprintf(w, "Emulated devices that take %.0f ms a micro-batch, messages of %d KiB, real workers and real QUIC.\n", r.StageMS, r.MessageBytes>>10)
	fmt.Fprintf(w, "Times in ms; bound: the slowest stage or transfer; step: all micro-batches, with filling and draining.\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "stages\tMbit/s\tlatency\tmicros\tschedule\tcap\tperiod\tbound\tratio\tstep\tsimulated\terror\telastic is\t")
	for _, c := range r.Cells {
		for _, run := range c.Runs {
			fmt.Fprintf(t, "%d\t%d\t%.0f\t%d\t%s\t%s\t", c.Stages, c.Mbit, c.LatencyMS, c.Micros, run.Name, run.Cap)
			if run.Refused != "" {
				fmt.Fprint(t, "-\t-\t-\t-\t-\tdoes not fit\t-\t\n")
				continue
			}
			if run.PeriodMS > 0 {
				fmt.Fprintf(t, "%.1f\t%.1f\t%.3f\t", run.PeriodMS, c.BoundMS, run.Ratio)
			} else {
				fmt.Fprintf(t, "-\t%.1f\t-\t", c.BoundMS)
			}
			fmt.Fprintf(t, "%.0f\t%.0f\t%+.1f%%\t%.2fx\t\n", run.StepMS, run.PredictedStepMS, 100*run.Error, run.Slower)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nElastic without a cap: at most %.3f of the bound. Simulated against measured steps: mean error %.1f%%.\n", r.WorstRatio, 100*r.MeanError)
	return err
}
