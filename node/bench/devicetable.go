package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Text writes the report as tables for people.
func (r DeviceReport) Text(w io.Writer) error {
	fmt.Fprintf(w, "Sizes: %s", r.Size)
	if !r.Judged {
		fmt.Fprintf(w, ", which are not those of the targets of speed: only losses are judged")
	}
	fmt.Fprintf(w, ". Medians of %d rounds in which all sides take turns.\n", r.Rounds)
	for _, why := range r.LeftOut {
		fmt.Fprintf(w, "Left out: %s\n", why)
	}
	for _, d := range r.Devices {
		if err := d.text(w); err != nil {
			return err
		}
	}
	return nil
}

func (d DeviceResult) text(w io.Writer) error {
	fmt.Fprintf(w, "\n%s: %s", d.Name, strings.Join(nonEmpty(d.Model, d.Driver), ", "))
	if d.Peer != "" {
		fmt.Fprintf(w, "; peer %s", d.Peer)
	}
	for _, folder := range d.Libraries {
		fmt.Fprintf(w, "\ncuBLASLt, which the system does not have, is looked for in PyTorch's %s", folder)
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "what\tpnode\tpeer\tratio\ttarget\tmet\t")
	var notes notes
	for _, row := range d.Rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s%s\n", row.What, row.own(), row.peer(), row.ratio(), dash(row.Target), row.state(), notes.of(row))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i, n := range notes {
		if _, err := fmt.Fprintf(w, "[%d] %s\n", i+1, n); err != nil {
			return err
		}
	}
	return nil
}

// notes are texts below a table, each there once.
type notes []string

// of is the numbers of a row's notes.
func (n *notes) of(r DeviceRow) (numbers string) {
	open := r.Open
	if open != "" {
		open = "open: " + open
	}
	for _, text := range []string{open, r.Note} {
		if text == "" {
			continue
		}
		at := slices.Index(*n, text)
		if at < 0 {
			at = len(*n)
			*n = append(*n, text)
		}
		numbers += fmt.Sprintf(" [%d]", at+1)
	}
	return numbers
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// measured tells whether the row has this program's figure, which may be 0.
func (r DeviceRow) measured() bool { return r.Open == "" || r.Value != 0 }

func (r DeviceRow) own() string {
	if !r.measured() {
		return "-"
	}
	return figure(r.Value) + " " + r.Unit
}

func (r DeviceRow) peer() string {
	if r.PeerValue == 0 {
		return strings.TrimSpace("- " + r.Peer)
	}
	return figure(r.PeerValue) + " " + r.Peer
}

// figure has four digits, or all before the point.
func figure(x float64) string {
	if x >= 1000 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.4g", x)
}

func (r DeviceRow) ratio() string {
	if r.Ratio == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", r.Ratio)
}

// state is whether the target is met, or why that is not known.
func (r DeviceRow) state() string {
	switch {
	case r.Open != "":
		return "open"
	case r.Target == "":
		return "no target"
	case r.Met == nil:
		return "not judged"
	case *r.Met:
		return "yes"
	default:
		return "no"
	}
}
