package bench

import (
	"fmt"
	"io"
	"text/tabwriter"

	"pnode/kernels"
)

// Text writes the report as a table for people.
func (r StepReport) Text(w io.Writer) error {
	fmt.Fprintf(w, "%s, kernels %s", r.CPU, r.Kernel)
	if r.Peer != "" {
		fmt.Fprintf(w, "; peer %s %s", r.Peer, r.PeerKernel)
	}
	for _, reason := range r.Dropped {
		fmt.Fprintf(w, "\n%s", reason)
	}
	fmt.Fprintf(w, "\nTraining steps in f32; medians of %d rounds in which both sides take turns. HFU is what\n"+
		"a step computes over what multiply-adds in registers alone would in its time, at the\n"+
		"fastest that they were in any round.\n\n", r.Rounds)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "model\tsequence\tbatch\tthreads\tpnode tokens/s\tPyTorch\tratio\tpeak MiB\tPyTorch\tHFU\tproducts\tattention\trest\t")
	for _, s := range r.Steps {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%.0f\t", s.Name, s.Context, s.Batch, s.Threads, s.TokensPerS)
		if r.Peer != "" {
			fmt.Fprintf(t, "%.0f\t%.2f\t%d\t%s\t", s.PeerTokensPerS, s.Ratio, s.PeakBytes>>20, mebibytes(s.PeerPeakBytes))
		} else {
			fmt.Fprintf(t, "-\t-\t%d\t-\t", s.PeakBytes>>20)
		}
		products, attention := s.Shares[kernels.ClassMatMul.String()], s.Shares[kernels.ClassAttention.String()]
		fmt.Fprintf(t, "%.1f%%\t%.1f%%\t%.1f%%\t%.1f%%\t\n", 100*s.Utilization, 100*products, 100*attention, 100*s.Rest())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if r.NoPeer != "" {
		_, err := fmt.Fprintf(w, "\nNo PyTorch to compare with: %s\n", r.NoPeer)
		return err
	}
	return nil
}

// mebibytes is how much that is, a dash for what is not known.
func mebibytes(bytes int64) string {
	if bytes == 0 {
		return "-"
	}
	return fmt.Sprint(bytes >> 20)
}
