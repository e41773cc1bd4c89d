package sensors

import (
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds on what is read. A file of /sys holds one line.
const (
	maxFileBytes = 64
	maxEntries   = 256
	// An energy counter that was read longer ago may have begun anew more than once.
	maxEnergyAge = time.Minute
)

// counted holds what an energy counter said, and when.
type counted struct {
	microjoules int64
	at          time.Time
}

// system reads files of /sys at a time, and compares energy counters with those of the look before.
type system struct {
	files          fs.FS
	before, energy map[string]counted
	now            time.Time
}

// place matches an address on the bus: it becomes a part of a path.
var place = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// card returns temperature and power of the card at a place, as its driver's hwmon has them: of amdgpu, i915, xe, nouveau.
func (s *system) card(pci string) (c, watts *float64) {
	if !place.MatchString(pci) {
		return nil, nil
	}
	base := "bus/pci/devices/" + pci + "/hwmon"
	for _, name := range s.list(base) {
		dir := path.Join(base, name)
		if c == nil {
			c = s.temperature(dir, "edge", "pkg", "")
		}
		for _, file := range []string{"power1_average", "power1_input"} {
			if value, ok := s.number(path.Join(dir, file)); ok && watts == nil {
				watts = power(value)
			}
		}
		if watts == nil {
			watts = s.drawn(path.Join(dir, "energy1_input"), 0)
		}
	}
	return c, watts
}

// chips are the drivers of processors' sensors, with the labels of the whole package's, the best first; "" is none.
var chips = map[string][]string{
	"coretemp": {"Package id"}, "k10temp": {"Tdie", "Tctl"}, "zenpower": {"Tdie", "Tctl"}, "cpu_thermal": {""}, "soc_thermal": {""}, "scpi_sensors": {""},
}

// processor returns the temperature of the processor's warmest package, and the power of all packages.
func (s *system) processor() (c, watts *float64) {
	warmest := func(value *float64) {
		if value != nil && (c == nil || *value > *c) {
			c = value
		}
	}
	for _, name := range s.list("class/hwmon") {
		dir := path.Join("class/hwmon", name)
		if labels, ok := chips[s.line(path.Join(dir, "name"))]; ok {
			warmest(s.temperature(dir, labels...))
		}
	}
	if c == nil {
		for _, name := range s.list("class/thermal") {
			dir := path.Join("class/thermal", name)
			if kind := s.line(path.Join(dir, "type")); kind == "x86_pkg_temp" || strings.HasPrefix(kind, "cpu") {
				if value, ok := s.number(path.Join(dir, "temp")); ok {
					warmest(celsius(value))
				}
			}
		}
	}
	return c, s.packages()
}

// packageZone matches the names of packages' counters. Many laptops of Intel have intel-rapl-mmio:0, too: the same package by another way.
var packageZone = regexp.MustCompile(`^intel-rapl:[0-9]+$`)

// packages returns the power of all of the processor's packages by RAPL, nil where one of them is not told.
func (s *system) packages() *float64 {
	sum, all := 0.0, true
	for _, name := range s.list("class/powercap") {
		dir := path.Join("class/powercap", name)
		if !packageZone.MatchString(name) || !strings.HasPrefix(s.line(path.Join(dir, "name")), "package") { // a part of one, or the whole board
			continue
		}
		most, _ := s.number(path.Join(dir, "max_energy_range_uj")) // 0, of a counter that says nothing
		watts := s.drawn(path.Join(dir, "energy_uj"), most)
		if watts == nil {
			all = false // the others still count for the next look
			continue
		}
		sum += *watts
	}
	if !all {
		return nil
	}
	return power(int64(sum * 1e6))
}

// temperature returns that of the first label that a chip has. The empty one is a sensor without a label.
func (s *system) temperature(dir string, labels ...string) *float64 {
	for _, label := range labels {
		for i := 1; i <= 9; i++ {
			file := path.Join(dir, "temp"+strconv.Itoa(i))
			has := s.line(file + "_label")
			if label == "" && has != "" || label != "" && !strings.HasPrefix(has, label) {
				continue
			}
			if value, ok := s.number(file + "_input"); ok {
				if c := celsius(value); c != nil {
					return c
				}
			}
		}
	}
	return nil
}

// drawn returns the power since the look before by a counter of energy, which begins anew after most; 0 is never.
func (s *system) drawn(file string, most int64) *float64 {
	value, ok := s.number(file)
	if !ok || value < 0 {
		return nil
	}
	s.energy[file] = counted{value, s.now}
	before, known := s.before[file]
	elapsed := s.now.Sub(before.at)
	if !known || elapsed <= 0 || elapsed > maxEnergyAge {
		return nil
	}
	used := value - before.microjoules
	if used < 0 {
		used += most
	}
	if used < 0 {
		return nil
	}
	return power(int64(float64(used) / elapsed.Seconds()))
}

// list returns the names in a folder, in order; none where it cannot be read.
func (s *system) list(dir string) (names []string) {
	if s.files == nil {
		return nil
	}
	entries, _ := fs.ReadDir(s.files, dir) // not there on many systems
	for _, e := range entries[:min(len(entries), maxEntries)] {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names
}

// line returns the text of a file without its end; empty where it cannot be read.
func (s *system) line(file string) string {
	if s.files == nil {
		return ""
	}
	f, err := s.files.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFileBytes))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// number returns the whole number in a file.
func (s *system) number(file string) (int64, bool) {
	n, err := strconv.ParseInt(s.line(file), 10, 64)
	return n, err == nil
}
