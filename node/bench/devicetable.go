package bench

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// Text returns the report as tables for people.
func (r DeviceReport) Text() string {
	var w strings.Builder
	fmt.Fprintf(&w, "Sizes: %s", r.Size)
	if !r.Judged {
		fmt.Fprintf(&w, ", which are not those of the targets of speed: only losses are judged")
	}
	fmt.Fprintf(&w, ". Medians of %d rounds in which all sides take turns.\n", r.Rounds)
	for _, why := range r.LeftOut {
		fmt.Fprintf(&w, "Left out: %s\n", why)
	}
	for _, d := range r.Devices {
		d.text(&w)
	}
	return w.String()
}

func (d DeviceResult) text(w *strings.Builder) {
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
	var notes []string // each there once
	for _, row := range d.Rows {
		own, peer, ratio := "-", strings.TrimSpace("- "+row.Peer), "-"
		if row.measured() {
			own = figure(row.Value) + " " + row.Unit
		}
		if row.PeerValue != 0 {
			peer = figure(row.PeerValue) + " " + row.Peer
		}
		if row.Ratio != 0 {
			ratio = fmt.Sprintf("%.2f", row.Ratio)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s", row.What, own, peer, ratio, cmp.Or(row.Target, "-"), row.state())
		open := row.Open
		if open != "" {
			open = "open: " + open
		}
		for _, text := range nonEmpty(open, row.Note) {
			at := slices.Index(notes, text)
			if at < 0 {
				at = len(notes)
				notes = append(notes, text)
			}
			fmt.Fprintf(t, " [%d]", at+1)
		}
		fmt.Fprintln(t)
	}
	_ = t.Flush() // a Builder takes all
	for i, n := range notes {
		fmt.Fprintf(w, "[%d] %s\n", i+1, n)
	}
}

// measured reports whether the row has this program's figure, which may be 0.
func (r DeviceRow) measured() bool { return r.Open == "" || r.Value != 0 }

// figure prints four digits, or all before the point.
func figure(x float64) string {
	if x >= 1000 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.4g", x)
}

// state says whether the target is met, or why that is not known.
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

// errStrict says that a report has rows that Strict refuses.
var errStrict = errors.New("not as it has to be")

// Strict returns an error where this program's figure of a row is open, but for want of something that
// the machine lacks, or where losses are not what they have to be. Speed does not matter.
func (r DeviceReport) Strict() error {
	var bad []string
	for _, d := range r.Devices {
		for _, row := range d.Rows {
			switch losses := row.Row == rowRepeat || row.Row == rowLosses; {
			case !row.measured() && !row.Lacking:
				bad = append(bad, fmt.Sprintf("%s: %s: open: %s", d.Name, row.What, row.Open))
			case losses && row.Met != nil && !*row.Met:
				bad = append(bad, fmt.Sprintf("%s: %s: %s %s, the target is %s", d.Name, row.What, figure(row.Value), row.Unit, row.Target))
			}
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return fmt.Errorf("bench devices: %w: %s", errStrict, strings.Join(bad, "; "))
}
