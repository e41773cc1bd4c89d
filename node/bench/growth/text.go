package growth

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"

	"pnode/planner/plan"
)

// Text returns the report as tables for people, one an axis.
func (r Report) Text() string {
	var w strings.Builder
	fmt.Fprintf(&w, "%s, %s, medians of %s of %d steps. bound: what an ideal takes for the step; seen/bound: how many times as long it took.\n",
		r.CPU, plan.Count(r.Cores, "core"), plan.Count(r.Rounds, "round"), roundSteps)
	for _, name := range Axes() {
		if rows := r.of(Axis(name)); len(rows) > 0 {
			w.WriteString("\n" + about(Axis(name)) + "\n")
			w.WriteString(table(Axis(name), rows))
		}
	}
	if r.Partial != "" {
		fmt.Fprintf(&w, "\nPARTIAL: ended before %s.\n", r.Partial)
	}
	return w.String()
}

// of returns the rows of an axis.
func (r Report) of(a Axis) (rows []Row) {
	for _, row := range r.Rows {
		if row.Axis == a {
			rows = append(rows, row)
		}
	}
	return rows
}

// table returns the rows of an axis, and by how much the largest one is more than the smallest.
func table(a Axis, rows []Row) string {
	var w strings.Builder
	t := tabwriter.NewWriter(&w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "%s\tstep\tbound\tseen/bound\ttokens/s\tmemory\t", cmp.Or(unit(a), "replicas"))
	if a.Processes() {
		fmt.Fprint(t, "CPU a node\tleader's\tcontrol a node\tmost of one\tdata a node\tplan\tstart\t")
	}
	fmt.Fprintln(t)
	for _, r := range rows {
		fmt.Fprintf(t, "%d\t%.1f ms\t%.1f ms\t%.2f\t%.0f\t%.0f MB\t", r.Size, r.StepMS, r.BoundMS, r.Ratio, r.TokensPerS, float64(r.MemoryBytes)/1e6)
		if c := r.Control; c != nil {
			fmt.Fprintf(t, "%.1f ms/step\t%.1f ms/step\t%.1f writes/s, %.2f kB/s\t%.2f kB/s\t%.1f kB/step\t%.0f ms\t%.1f s\t",
				c.CPUMS, c.LeaderCPUMS, c.WritesPerS, c.BytesPerS/1e3, c.MostBytesPerS/1e3, c.DataBytes/1e3, c.PlanMS, c.StartS)
		}
		fmt.Fprintln(t)
	}
	_ = t.Flush() // a Builder takes all
	if first, last := rows[0], rows[len(rows)-1]; len(rows) > 1 {
		fmt.Fprintf(&w, "From %d to %d the step takes %.2f times as long, the bound %.2f: %.2f times what it must.\n",
			first.Size, last.Size, last.StepMS/first.StepMS, last.BoundMS/first.BoundMS, last.Ratio/first.Ratio)
	}
	return w.String()
}
