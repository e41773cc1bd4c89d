package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"pnode/kernels/devices"
)

// DeviceOptions say what to measure.
type DeviceOptions struct {
	Sides
	Devices []string      // default every GPU that a run would use
	Only    []string      // of DeviceRows, default all
	Size    string        // of DeviceSizes
	Limit   time.Duration // of a row
	Binary  string        // this program
	Probe   devices.Probe
}

func (o *DeviceOptions) fill() error {
	o.Only = orElse(o.Only, DeviceRows()...)
	return cmp.Or(o.Sides.fill(), checkRange("limit", time.Second, 24*time.Hour, o.Limit), checkNames("size", DeviceSizes(), o.Size), checkNames("only", DeviceRows(), o.Only...))
}

// DeviceReport is the result of Devices.
type DeviceReport struct {
	Size string `json:"size"`
	// Judged reports whether targets of speed are for these sizes.
	Judged  bool           `json:"judged"`
	Rounds  int            `json:"rounds"`
	Devices []DeviceResult `json:"devices"`
	// LeftOut says why devices that were asked for are not measured.
	LeftOut []string `json:"left_out,omitempty"`
}

// HasRows reports whether there is something to show, whatever ended the measurement.
func (r DeviceReport) HasRows() bool { return len(r.Devices) > 0 }

// DeviceResult is a device with its rows.
type DeviceResult struct {
	Name   string `json:"name"`
	Model  string `json:"model"`
	Driver string `json:"driver"`
	// Peer is PyTorch, NoPeer why there is none and how to get one.
	Peer   string `json:"peer,omitempty"`
	NoPeer string `json:"no_peer,omitempty"`
	// Libraries are folders of PyTorch's in which cuBLASLt is looked for, too.
	Libraries []string    `json:"libraries,omitempty"`
	Rows      []DeviceRow `json:"rows"`
}

// DeviceRow is one figure. Value and PeerValue are medians in Unit, Ratio is the median over the
// rounds of this program's rate to the peer's.
type DeviceRow struct {
	Row       string  `json:"row"` // of DeviceRows
	What      string  `json:"what"`
	Unit      string  `json:"unit,omitempty"`
	Value     float64 `json:"value"`
	Peer      string  `json:"peer,omitempty"`
	PeerValue float64 `json:"peer_value,omitempty"`
	Ratio     float64 `json:"ratio,omitempty"`
	// Target is empty for what has none, Met absent where it was not judged.
	Target string `json:"target,omitempty"`
	Met    *bool  `json:"met,omitempty"`
	// Open says why the row, or its comparison, was not measured. Lacking reports that the machine
	// lacks what it needs. Note says what the figures mean.
	Open    string `json:"open,omitempty"`
	Lacking bool   `json:"lacking,omitempty"`
	Note    string `json:"note,omitempty"`

	goal goal
}

// Devices measures GPUs beside PyTorch and cuBLASLt where these are there. A row that cannot be
// measured is open. An interrupt is an error, which comes with the rows so far and the others open.
func Devices(ctx context.Context, o DeviceOptions) (DeviceReport, error) {
	var r DeviceReport
	if err := o.fill(); err != nil {
		return r, fmt.Errorf("bench devices: %w: %w", ErrOptions, err)
	}
	found, leftOut, err := o.find(ctx)
	if err != nil {
		return r, fmt.Errorf("bench devices: %w", err)
	}
	size := deviceSizes[slices.Index(DeviceSizes(), o.Size)]
	r.Size, r.Judged, r.Rounds, r.LeftOut = o.Size, size.judged, o.Rounds, leftOut
	left := &eta{begin: time.Now()}
	for _, f := range found {
		b := &deviceBench{o: o, size: size, device: f, left: left}
		left.cells = max(left.cells, len(found)*len(b.cells()))
		r.Devices = append(r.Devices, b.measure(ctx))
	}
	if err := ctx.Err(); err != nil {
		return r, fmt.Errorf("bench devices: %w", err)
	}
	return r, nil
}

// errNoGPU says that there is nothing to measure.
var errNoGPU = errors.New("no GPU to measure")

// find looks for the named devices, or for the GPUs that a run would take. It says why others that
// were asked for are left out.
func (o DeviceOptions) find(ctx context.Context) (found []devices.Finding, leftOut []string, err error) {
	o.Progress("looking for devices")
	d, err := devices.Diagnose(ctx, devices.Options{Names: o.Devices, Probe: o.Probe})
	if err != nil {
		return nil, nil, err
	}
	if found, leftOut = o.choose(d); len(found) > 0 {
		return found, leftOut, nil
	}
	if !d.Drivers {
		leftOut = append(leftOut, "this program opens no drivers")
	}
	leftOut = append(append(leftOut, d.Advice...), "`pnode doctor` tells more, --devices takes any that works by its name")
	return nil, nil, fmt.Errorf("%w: %s", errNoGPU, strings.Join(leftOut, "; "))
}

// choose returns what is there of what was asked for; without names the processor was not.
func (o DeviceOptions) choose(d devices.Diagnosis) (found []devices.Finding, leftOut []string) {
	asked := func(name string) bool {
		return slices.ContainsFunc(o.Devices, func(n string) bool { return n == name || strings.HasPrefix(n, name+":") })
	}
	for _, m := range d.Missing {
		if len(o.Devices) == 0 || asked(m.Backend) {
			leftOut = append(leftOut, fmt.Sprintf("no %s devices: %s", m.Backend, m.Why))
		}
	}
	for _, f := range d.Devices {
		switch wanted := asked(f.Name) || len(o.Devices) == 0 && f.Name != devices.CPU; {
		case wanted && f.Used:
			found = append(found, f.Finding)
		case wanted:
			leftOut = append(leftOut, fmt.Sprintf("%v: %s", f.Finding, cmp.Or(f.Problem, f.Why)))
		}
	}
	return found, leftOut
}

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
	var notes notes
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
		fmt.Fprintln(t, notes.mark(open)+notes.mark(row.Note))
	}
	_ = t.Flush() // a Builder takes all
	notes.write(w)
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
