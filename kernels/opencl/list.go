package opencl

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"pnode/kernels/gpu"
)

// Info is a device that was found.
type Info struct {
	Index                                   int // of opencl:Index
	Platform, Name, Vendor, Driver, Version string
	// CPU reports that the device is a processor: package cpu is many times as fast on it.
	CPU          bool
	ComputeUnits int
	// Unified reports that the device's memory is the host's.
	Unified bool
	// PCI is the device's address on the bus, such as 0000:03:00.0; empty where it has none or
	// the driver does not tell.
	PCI        string
	Extensions []string
	// Subgroups are the sizes that sub-groups may have, where the driver tells (Intel's).
	Subgroups []int
	// GroupItems is the most work-items of a work-group.
	GroupItems int
	// LocalBytes is the local memory of a work-group; AllocBytes the largest buffer.
	LocalBytes, MemoryBytes, AllocBytes uint64
	// Unit is the kind of matrix units that Open tries; NoUnit makes it leave them alone.
	Unit gpu.Unit
	// Unusable says why the device cannot be opened; empty for one that can.
	Unusable string

	lib          *library
	platform, id uintptr
}

// Parameters of clGetPlatformInfo and clGetDeviceInfo.
const (
	platformName = 0x0902

	deviceType              = 0x1000
	deviceMaxComputeUnits   = 0x1002
	deviceMaxWorkGroupSize  = 0x1004
	deviceMaxMemAllocSize   = 0x1010
	deviceGlobalMemSize     = 0x101F
	deviceLocalMemSize      = 0x1023
	deviceEndianLittle      = 0x1026
	deviceAvailable         = 0x1027
	deviceCompilerAvailable = 0x1028
	deviceName              = 0x102B
	deviceVendor            = 0x102C
	driverVersion           = 0x102D
	deviceVersion           = 0x102F
	deviceExtensions        = 0x1030
	deviceUnifiedMemory     = 0x1035
)

// Bits of deviceType.
const (
	typeCPU         = 1 << 1
	typeGPU         = 1 << 2
	typeAccelerator = 1 << 3
)

// List finds the devices of all platforms, processors included, in the order in which OpenCL
// gives them. The error wraps ErrNoLibrary where there is no OpenCL; a platform without devices
// is none. One whose devices cannot be listed is an error beside the devices of the others.
func List() (list []Info, err error) {
	lib, err := load()
	if err != nil {
		return nil, err
	}
	guardSignals(func() { list, err = lib.list() })
	return list, err
}

func (l *library) list() (list []Info, err error) {
	var platforms handleList
	s := l.call(getPlatformIDs, maxHandles, uintptr(unsafe.Pointer(&platforms.handles)), uintptr(unsafe.Pointer(&platforms.count)))
	if s == platformNotFound {
		return nil, nil
	} else if s != success {
		return nil, s.err(getPlatformIDs)
	}
	var failures []error
	for _, platform := range platforms.found() {
		var devices handleList
		s := l.call(getDeviceIDs, platform, typeCPU|typeGPU|typeAccelerator, maxHandles,
			uintptr(unsafe.Pointer(&devices.handles)), uintptr(unsafe.Pointer(&devices.count)))
		if s == deviceNotFound {
			continue
		} else if s != success {
			failures = append(failures, fmt.Errorf("%s: %w", l.text(getPlatformInfo, platform, platformName), s.err(getDeviceIDs)))
		}
		for _, id := range devices.found() {
			info := l.describe(platform, id)
			info.Index = len(list)
			list = append(list, info)
		}
	}
	return list, errors.Join(failures...)
}

// maxHandles bounds what one platform may list.
const maxHandles = 256

// handleList is filled by clGetPlatformIDs and clGetDeviceIDs.
type handleList struct {
	handles [maxHandles]uintptr
	count   uint32
}

func (h *handleList) found() []uintptr { return h.handles[:min(h.count, maxHandles)] }

func (l *library) describe(platform, id uintptr) Info {
	text := func(parameter uintptr) string { return l.text(getDeviceInfo, id, parameter) }
	number := func(parameter uintptr) (value uint64) { // of up to 8 bytes, 0 where the driver does not tell
		if !l.property(id, parameter, unsafe.Pointer(&value), unsafe.Sizeof(value)) {
			return 0
		}
		return value
	}
	info := Info{
		Platform: l.text(getPlatformInfo, platform, platformName),
		Name:     text(deviceName), Vendor: text(deviceVendor), Driver: text(driverVersion), Version: text(deviceVersion),
		CPU:          number(deviceType)&typeCPU != 0,
		ComputeUnits: int(number(deviceMaxComputeUnits)), GroupItems: int(number(deviceMaxWorkGroupSize)),
		Unified: number(deviceUnifiedMemory) != 0, PCI: l.pci(id), Extensions: strings.Fields(text(deviceExtensions)),
		LocalBytes: number(deviceLocalMemSize), MemoryBytes: number(deviceGlobalMemSize), AllocBytes: number(deviceMaxMemAllocSize),
		lib: l, platform: platform, id: id,
	}
	if slices.Contains(info.Extensions, matrixExtension) {
		info.Subgroups = l.subgroupSizes(id)
	}
	info.Unit = info.unit()
	switch {
	case number(deviceAvailable) == 0:
		info.Unusable = "the device is not available"
	case number(deviceCompilerAvailable) == 0:
		info.Unusable = "the driver has no compiler"
	case number(deviceEndianLittle) == 0:
		info.Unusable = "the device is big endian"
	case len(info.geometries()) == 0:
		info.Unusable = fmt.Sprintf("work-groups of %d items and %d bytes of local memory are too small", info.GroupItems, info.LocalBytes)
	}
	return info
}

// geometries returns the layouts that fit the device, the best first.
func (i Info) geometries() (fit []gpu.Geometry) {
	for _, g := range gpu.Sides {
		if g.Group() <= i.GroupItems && uint64(g.LocalBytes()) <= i.LocalBytes {
			fit = append(fit, g)
		}
	}
	return fit
}

// text is a property that is a string, empty where the driver does not tell.
func (l *library) text(f function, of, parameter uintptr) string {
	var buffer [16 << 10]byte // lists of extensions are long
	if l.call(f, of, parameter, uintptr(len(buffer)), uintptr(unsafe.Pointer(&buffer)), 0) != success {
		return ""
	}
	text, _, _ := strings.Cut(string(buffer[:]), "\x00")
	return strings.TrimSpace(text)
}
