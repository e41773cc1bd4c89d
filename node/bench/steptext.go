package bench

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"pnode/kernels"
)

// Text returns the report as a table for people.
func (r StepReport) Text() string {
	var w strings.Builder
	w.WriteString(r.text())
	fmt.Fprintf(&w, "Training steps; medians of %d rounds in which the sides of a precision take turns, after %d steps\n"+
		"each to warm up. A ratio is pnode's rate to the row's. The limit is what multiply-adds in registers\n"+
		"alone would make of the work of pnode's step, at the fastest that they were in any round.\n\n", r.Rounds, warmUps)
	t := tabwriter.NewWriter(&w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "model\tsequence\tbatch\tthreads\tprecision\tside\ttokens/s\tratio\tof limit\tpeak MiB\tproducts\tattention\trest\t")
	var notes notes
	for _, c := range r.Steps {
		begin := fmt.Sprintf("%s\t%d\t%d\t%d\t%s\t", c.Name, c.Context, c.Batch, c.Threads, c.Precision)
		for i, s := range c.Sides {
			rest := "-\t-\t-\t"
			if i == 0 {
				products, attention := c.Shares[kernels.ClassMatMul.String()], c.Shares[kernels.ClassAttention.String()]
				rest = fmt.Sprintf("%.1f%%\t%.1f%%\t%.1f%%\t", 100*products, 100*attention, 100*c.rest())
			}
			fmt.Fprintf(t, "%s%s\t%s\t%s\n", begin, s.Name, s.figures(c, &notes), rest)
		}
		fmt.Fprintf(t, "%slimit\t%.0f\t-\t100.0%%\t-\t-\t-\t-\t\n", begin, c.Limit)
	}
	_ = t.Flush() // a Builder takes all
	notes.write(&w)
	for _, c := range r.Steps {
		if c.Best != nil {
			fmt.Fprintf(&w, "\n%s, sequence %d, threads %d, %s: ratio %.2f to the fastest peer (%s)", c.Name, c.Context, c.Threads, c.Precision, c.Best.Ratio, c.Best.Peer)
		}
	}
	if len(r.Peers) == 0 {
		fmt.Fprintf(&w, "\nNo PyTorch to compare with: %s", getPyTorch)
	}
	return w.String() + "\n"
}

// figures are a side's columns from the rate to the memory, or the reference to why there are none.
func (s StepSide) figures(c StepCase, notes *notes) string {
	if s.Open != "" {
		return "-" + notes.mark(s.Open) + "\t-\t-\t-"
	}
	ratio, peak := "-", "-"
	if s.Ratio > 0 {
		ratio = fmt.Sprintf("%.2f", s.Ratio)
	}
	if s.PeakBytes > 0 { // which a system may not tell
		peak = fmt.Sprint(s.PeakBytes >> 20)
	}
	return fmt.Sprintf("%.0f\t%s\t%.1f%%\t%s", s.TokensPerS, ratio, 100*c.ofLimit(s), peak)
}
