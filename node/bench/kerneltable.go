package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Text writes the report as tables for people.
func (r KernelReport) Text(w io.Writer) error {
	fmt.Fprintf(w, "%s, kernels %s", r.CPU, r.Variant)
	if r.Peer != "" {
		fmt.Fprintf(w, "; peer %s, kernels %s", r.Peer, r.PeerKernel)
	}
	for _, reason := range r.Dropped {
		fmt.Fprintf(w, "\n%s", reason)
	}
	fmt.Fprintf(w, "\nMedians of %d rounds in which both sides take turns; a round counts its fastest batch.\n\n", r.Rounds)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "threads\tmultiply-adds GFLOP/s\tcopy GB/s\t")
	for _, l := range r.Limits {
		fmt.Fprintf(t, "%d\t%.1f\t%.1f\t\n", l.Threads, l.Arithmetic, l.Copy)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nf32 matrix products, GFLOP/s")
	fmt.Fprintln(t, "form\tM\tN\tK\tthreads\tpnode\tOpenBLAS\tratio\t")
	for _, p := range r.Products {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%.1f\t", p.Form, p.M, p.N, p.K, p.Threads, p.Rate)
		if r.Peer != "" {
			fmt.Fprintf(t, "%.1f\t%.2f\t\n", p.Peer, p.Ratio)
		} else {
			fmt.Fprint(t, "-\t-\t\n")
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return r.closing(w)
}

func (r KernelReport) closing(w io.Writer) error {
	if r.NoPeer != "" {
		_, err := fmt.Fprintf(w, "\nNo OpenBLAS to compare with: %s\n", r.NoPeer)
		return err
	}
	for _, s := range r.Summary {
		if _, err := fmt.Fprintf(w, "\nthreads %d: ratio %.2f in the median over the shapes, %.2f at least", s.Threads, s.MedianRatio, s.LeastRatio); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}
