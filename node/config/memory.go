package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Memory says how much of the devices' memory a run may take: sizes or shares with commas, each for the device that it
// names, or for all devices that no other names. Empty is all that is free. The memory of cpu is the node's own,
// where stages on other devices may keep optimizer state.
type Memory string

// Allowance says how much of a device's memory may be taken; the zero value is all that is free.
type Allowance struct {
	Bytes Bytes // 0 where Share says it
	Share Share
}

// LeastMemory is more than measuring a device takes (50 MB on a large card).
const LeastMemory = 100 * MB

// String returns the text that Set reads.
func (m Memory) String() string { return cmp.Or(string(m), auto) }

// Set reads "auto", or sizes and shares such as 8GiB, 50% or cuda:0=8GiB,cpu=50%.
func (m *Memory) Set(text string) error {
	if text == auto {
		*m = ""
		return nil
	}
	seen := map[string]bool{}
	var entries []string
	for entry := range strings.SplitSeq(text, ",") {
		device, amount := cutDevice(strings.TrimSpace(entry))
		a, ok := parseAllowance(amount)
		switch {
		case !ok || device != "" && !deviceName.MatchString(device):
			return fmt.Errorf("%q: want auto, a size or share such as 8GiB or 50%%, or one for each device such as cuda:0=8GiB,cpu=4GiB (%s or more)", text, LeastMemory)
		case seen[device]:
			return fmt.Errorf("%q: names %s twice: want each device once", text, cmp.Or(device, "the size for all devices"))
		}
		seen[device] = true
		entries = append(entries, a.entry(device))
	}
	*m = Memory(strings.Join(entries, ","))
	return nil
}

// Type names the values for a flag's help.
func (*Memory) Type() string { return "SIZES|auto" }

// cutDevice splits an entry; one without a device is for all.
func cutDevice(entry string) (device, amount string) {
	device, amount, named := strings.Cut(entry, "=")
	if !named {
		return "", entry
	}
	return strings.TrimSpace(device), strings.TrimSpace(amount)
}

// parseAllowance reports whether the text is a share of some memory or a size of LeastMemory or more.
func parseAllowance(text string) (a Allowance, ok bool) {
	if strings.HasSuffix(text, "%") {
		ok = a.Share.Set(text) == nil && a.Share > 0
	} else {
		ok = a.Bytes.Set(text) == nil && a.Bytes >= LeastMemory
	}
	return a, ok
}

// String returns the size or the share.
func (a Allowance) String() string {
	if a.Bytes > 0 {
		return a.Bytes.String()
	}
	return a.Share.String()
}

func (a Allowance) entry(device string) string {
	if device == "" {
		return a.String()
	}
	return device + "=" + a.String()
}

// entries returns the allowances by device; that of the devices that are not named has the empty name.
func (m Memory) entries() map[string]Allowance {
	told := map[string]Allowance{}
	for entry := range strings.SplitSeq(string(m), ",") {
		device, amount := cutDevice(entry)
		if a, ok := parseAllowance(amount); ok { // as Set checked
			told[device] = a
		}
	}
	return told
}

// Of returns the allowance of a device.
func (m Memory) Of(device string) Allowance {
	told := m.entries()
	if a, ok := told[device]; ok {
		return a
	}
	return told[""]
}

// Names returns the devices that have an entry, in order.
func (m Memory) Names() (names []string) {
	for entry := range strings.SplitSeq(string(m), ",") {
		if device, _ := cutDevice(entry); device != "" {
			names = append(names, device)
		}
	}
	return names
}

// wholeShare is all of a memory.
const wholeShare Share = 1_000_000

// Within returns how many of so many bytes may be taken.
func (a Allowance) Within(bytes int64) int64 {
	switch {
	case a.Bytes > 0:
		return min(bytes, int64(a.Bytes))
	case a.Share > 0:
		whole := int64(wholeShare)
		return bytes/whole*int64(a.Share) + bytes%whole*int64(a.Share)/whole
	default:
		return bytes
	}
}

// Part returns the memory of a node that has these devices, each with so many sharers, of so many nodes here: together
// they take no more than one would. All nodes share the host's memory; each has LeastMemory of it at least, also
// where a size for every device leaves less.
func (m Memory) Part(devices Devices, sharers, nodes int) Memory {
	var parts []string
	names := devices.Names()
	if nodes > 1 && !slices.Contains(names, processor) {
		names = append(slices.Clone(names), processor)
	}
	for _, name := range names {
		of := sharers
		if name == processor {
			of = nodes
		}
		a := m.Of(name)
		if a == (Allowance{}) && of == 1 {
			continue
		}
		part := a.part(of)
		if name == processor && part.Bytes > 0 {
			part.Bytes = max(part.Bytes, LeastMemory)
		}
		parts = append(parts, part.entry(name))
	}
	return Memory(strings.Join(parts, ","))
}

// part returns the allowance of each of so many nodes.
func (a Allowance) part(nodes int) Allowance {
	if a.Bytes > 0 {
		return Allowance{Bytes: a.Bytes / Bytes(nodes)}
	}
	return Allowance{Share: max(1, cmp.Or(a.Share, wholeShare)/Share(nodes))}
}

// CheckMemory refuses memory that so many nodes on this machine could not keep to: a size whose
// parts are too small, or one for a device that none of them gets. The error wraps ErrInvalid.
func (c Config) CheckMemory(nodes int) error {
	m, devices := c.Memory, c.Devices
	given := map[string]bool{processor: true}
	if part := m.entries()[processor].part(nodes); part.Bytes > 0 && part.Bytes < LeastMemory {
		return c.invalid("memory", m, fmt.Sprintf("%v or more for %s, or fewer local nodes: %d share the host's memory, each would get %v and takes %v at least",
			LeastMemory*Bytes(nodes), processor, nodes, part, LeastMemory))
	}
	for i := range nodes {
		sharers := devices.Sharers(i, nodes)
		for _, name := range devices.Of(i, nodes).Names() {
			given[name] = true
			if part := m.Of(name).part(sharers); part.Bytes > 0 && part.Bytes < LeastMemory {
				return c.invalid("memory", m, fmt.Sprintf("%v or more for %s, or fewer local nodes: %d share it, each would get %v and takes %v at least",
					LeastMemory*Bytes(sharers), name, sharers, part, LeastMemory))
			}
		}
	}
	for _, name := range m.Names() {
		if !given[name] {
			return c.invalid("memory", m, fmt.Sprintf("nothing about %s, or devices that name it: they are %v, of which no local node gets %s", name, devices, name))
		}
	}
	return nil
}
