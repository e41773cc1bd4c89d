package config

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Devices names devices with commas; empty is "auto": the GPUs that work, and the processor
// where it is worth it.
type Devices string

// processor is the device whose memory is the node's own.
const processor = "cpu"

// deviceName matches what a device may be called.
var deviceName = regexp.MustCompile(`^(cpu|(cuda|opencl):(0|[1-9][0-9]{0,3}))$`)

// maxDevices is how many a node may have.
const maxDevices = 64

// String returns the names, or "auto".
func (d Devices) String() string { return cmp.Or(string(d), auto) }

// Set reads "auto" or names with commas.
func (d *Devices) Set(text string) error {
	if text == auto {
		*d = ""
		return nil
	}
	names := strings.Split(text, ",")
	for i, n := range names {
		names[i] = strings.TrimSpace(n)
		if !deviceName.MatchString(names[i]) {
			return fmt.Errorf("%q: want auto, or names with commas such as opencl:0,cpu; `pnode doctor` lists them", text)
		}
		if slices.Contains(names[:i], names[i]) {
			return fmt.Errorf("%q: names %s twice: want each device once", text, names[i])
		}
	}
	if len(names) > maxDevices {
		return fmt.Errorf("%d devices: want %d at most", len(names), maxDevices)
	}
	*d = Devices(strings.Join(names, ","))
	return nil
}

// Type names the values for a flag's help.
func (*Devices) Type() string { return "NAMES|auto" }

// Names returns the devices' names, none for "auto".
func (d Devices) Names() []string {
	if d == "" {
		return nil
	}
	return strings.Split(string(d), ",")
}

// Of returns the devices of node index of so many on one machine: each node gets one in turn, and more where there are
// more devices than nodes. Without names it is the processor, which they share.
func (d Devices) Of(index, nodes int) Devices {
	names := d.Names()
	switch {
	case len(names) == 0:
		return "cpu"
	case len(names) <= nodes:
		return Devices(names[index%len(names)])
	}
	var part []string
	for i := index; i < len(names); i += nodes {
		part = append(part, names[i])
	}
	return Devices(strings.Join(part, ","))
}

// Sharers returns how many of so many nodes on one machine get the part of node index.
func (d Devices) Sharers(index, nodes int) (n int) {
	own := d.Of(index, nodes)
	for i := range nodes {
		if d.Of(i, nodes) == own {
			n++
		}
	}
	return n
}
