package bench

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// Text returns the report as tables for people.
func (r KernelReport) Text() string {
	var w strings.Builder
	w.WriteString(r.text())
	fmt.Fprintf(&w, "Medians of %d rounds in which all sides take turns; a round counts its fastest batch. Ratios are beside\n"+
		"the peer that is the fastest at a product; limits are what multiply-adds in registers alone reach.\n\n", r.Rounds)
	t := tabwriter.NewWriter(&w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "threads\tmultiply-adds GFLOP/s\tof bf16\tcopy GB/s\t")
	for _, l := range r.Limits {
		fmt.Fprintf(t, "%d\t%.1f\t%.1f\t%.1f\t\n", l.Threads, l.Arithmetic, l.PairArithmetic, l.Copy)
	}
	_ = t.Flush() // a Builder takes all
	var notes notes
	for _, precision := range precisions {
		r.products(&w, precision.name, &notes)
	}
	notes.write(&w)
	for _, s := range r.Summary {
		fmt.Fprintf(&w, "\n%s, threads %d: ratio %.2f in the median over the shapes, %.2f at least", s.DType, s.Threads, s.MedianRatio, s.LeastRatio)
	}
	return w.String() + "\n"
}

// products writes the table of a type, with a column for each peer that has products of it.
func (r KernelReport) products(w *strings.Builder, dtype string, notes *notes) {
	var names []string
	for _, p := range r.Products {
		for _, peer := range p.Peers {
			if p.DType == dtype && !slices.Contains(names, peer.Peer) {
				names = append(names, peer.Peer)
			}
		}
	}
	fmt.Fprintf(w, "\n%s matrix products, GFLOP/s\n", dtype)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, strings.Join(append(append([]string{"form", "M", "N", "K", "threads", "limit", "pnode"}, names...), "ratio", ""), "\t"))
	for _, p := range r.Products {
		if p.DType != dtype {
			continue
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%.1f\t%.1f\t", p.Form, p.M, p.N, p.K, p.Threads, p.Limit, p.Rate)
		for _, peer := range p.Peers {
			if peer.Open != "" {
				fmt.Fprintf(t, "-%s\t", notes.mark(peer.Open))
			} else {
				fmt.Fprintf(t, "%.1f\t", peer.Rate)
			}
		}
		ratio := "-"
		if p.Best != nil {
			ratio = fmt.Sprintf("%.2f", p.Best.Ratio)
		}
		fmt.Fprintf(t, "%s\t\n", ratio)
	}
	_ = t.Flush()
}

// notes are texts that a table refers to by number, each there once.
type notes []string

// mark returns the reference to a text, nothing for none.
func (n *notes) mark(text string) string {
	if text == "" {
		return ""
	}
	at := slices.Index(*n, text)
	if at < 0 {
		at = len(*n)
		*n = append(*n, text)
	}
	return fmt.Sprintf(" [%d]", at+1)
}

func (n notes) write(w *strings.Builder) {
	for i, text := range n {
		fmt.Fprintf(w, "[%d] %s\n", i+1, text)
	}
}
