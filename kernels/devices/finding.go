package devices

import (
	"fmt"
	"slices"
)

// Finding describes a device.
type Finding struct {
	// Name is unique on the machine: `cpu`, `opencl:0`.
	Name string `json:"name"`
	// Model is what people call it; Vendor, Platform, Driver and Version are the driver's words.
	Model    string `json:"model,omitempty"`
	Vendor   string `json:"vendor,omitempty"`
	Platform string `json:"platform,omitempty"`
	Driver   string `json:"driver,omitempty"`
	Version  string `json:"version,omitempty"`
	// PCI is the address on the bus, such as 0000:03:00.0, empty where there is none.
	PCI string `json:"pci,omitempty"`
	// Units compute side by side: compute units, multiprocessors, threads.
	Units int `json:"units,omitempty"`
	// MemoryBytes is all memory, AllocBytes the most that one buffer may have of it. Shared
	// reports that it is the host's memory. FreeBytes is what other programs leave of it, 0 where
	// the driver does not tell.
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	FreeBytes   int64 `json:"free_bytes,omitempty"`
	AllocBytes  int64 `json:"alloc_bytes,omitempty"`
	Shared      bool  `json:"shared_memory,omitempty"`
	// Features are what the kernels may use beyond the least.
	Features []string `json:"features,omitempty"`
	// Products says what multiplies matrices of halves, where there is a choice.
	Products string `json:"products,omitempty"`
	// Matrix reports that there are matrix units to try, which the device can do without. Plain tells
	// that it has to: trying them ended the process.
	Matrix bool `json:"matrix_units,omitempty"`
	Plain  bool `json:"plain,omitempty"`
	// Processor reports that the driver computes on the processor's cores.
	Processor bool `json:"processor,omitempty"`
	// Same names the device that is the same card, with another driver.
	Same string `json:"same,omitempty"`
	// Passed reports that the device computed what the reference computes, and Rates how fast.
	Passed bool  `json:"self_test_passed"`
	Rates  Rates `json:"rates,omitzero"`
	// Problem says why the device cannot be used; empty where nothing speaks against it.
	Problem string `json:"problem,omitempty"`
}

func (f Finding) String() string {
	if f.Model == "" {
		return f.Name
	}
	return fmt.Sprintf("%s (%s)", f.Name, f.Model)
}

// Missing is a driver that this machine lacks, or that does not work.
type Missing struct {
	Backend string `json:"backend"`
	Why     string `json:"why"`
	// Crashed reports that it ended the process that looked at it.
	Crashed bool `json:"crashed,omitempty"`
}

// Report is the result of a probe.
type Report struct {
	Devices []Finding `json:"devices"`
	Missing []Missing `json:"missing,omitempty"`
}

// wanted is which devices are to be looked at or used: these by name, or without names those
// that are there for it.
type wanted []string

// takes reports whether a device is wanted, as far as its kind goes.
func (w wanted) takes(f Finding) bool {
	if len(w) == 0 {
		return !f.Processor && f.Same == ""
	}
	return w.names(f.Name)
}

func (w wanted) names(name string) bool { return slices.Contains(w, name) }

// driversPart of a card's memory is left to its driver: a 16th.
const driversPart = 16

// MemoryFor returns how much a program may take of a device's memory: of a card's own all that others leave
// but a part that its driver needs, of the host's so many bytes.
func (f Finding) MemoryFor(hostBytes int64) int64 {
	free := hostBytes
	if !f.Shared {
		free = f.MemoryBytes
		if f.FreeBytes > 0 {
			free = min(free, f.FreeBytes)
		}
		free -= f.MemoryBytes / driversPart
	}
	return max(free, 0)
}
