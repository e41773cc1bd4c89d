package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pnode/kernels/devices"
)

// DeviceOptions say what to measure; the zero value takes the defaults, but for Binary and Probe.
type DeviceOptions struct {
	Sides
	Devices []string      // default every GPU that a run would use
	Only    []string      // of DeviceRows, default all
	Size    string        // of DeviceSizes, default the first
	Limit   time.Duration // of a row; default 15 minutes
	Binary  string        // this program
	Probe   devices.Probe
}

func (o *DeviceOptions) fill() error {
	o.Limit, o.Size, o.Only = cmp.Or(o.Limit, 15*time.Minute), cmp.Or(o.Size, deviceSizes[0].name), orElse(o.Only, DeviceRows()...)
	if o.Limit < time.Second {
		return fmt.Errorf("--limit is %v: take 1s or more", o.Limit)
	}
	return first(o.Sides.fill(5), checkNames("size", DeviceSizes(), o.Size), checkNames("only", DeviceRows(), o.Only...))
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
