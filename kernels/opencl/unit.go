package opencl

import (
	"slices"
	"strings"
	"unsafe"

	"pnode/kernels/gpu"
)

// amdUnits are the matrix units of AMD's processors, by the name that its driver gives them, which may
// go on with settings: gfx90a:sramecc+:xnack-.
var amdUnits = map[string]gpu.Unit{
	"gfx90a": gpu.MFMA, "gfx940": gpu.MFMA, "gfx941": gpu.MFMA, "gfx942": gpu.MFMA, "gfx950": gpu.MFMA,
	"gfx1100": gpu.WMMA11, "gfx1101": gpu.WMMA11, "gfx1102": gpu.WMMA11, "gfx1103": gpu.WMMA11,
	"gfx1150": gpu.WMMA11, "gfx1151": gpu.WMMA11, "gfx1152": gpu.WMMA11, "gfx1153": gpu.WMMA11,
	"gfx1200": gpu.WMMA12, "gfx1201": gpu.WMMA12,
}

// matrixExtension names the extension for Intel's matrix units.
const matrixExtension = "cl_intel_subgroup_matrix_multiply_accumulate"

// unit is the kind of matrix units that a device seems to have and there are kernels for. AMD's
// driver tells the processor's name, others of the same cards the card's; Intel's tells an extension,
// which means sub-groups of the least size that the device has.
func (i Info) unit() gpu.Unit {
	if i.CPU || i.GroupItems < gpu.WithUnit(gpu.WMMA11).Group() {
		return gpu.NoUnit
	}
	if strings.Contains(i.Vendor, "Advanced Micro Devices") {
		name, _, _ := strings.Cut(i.Name, ":")
		return amdUnits[name]
	}
	if !slices.Contains(i.Extensions, matrixExtension) {
		return gpu.NoUnit
	}
	if len(i.Subgroups) == 0 { // the driver does not tell
		return gpu.NoUnit
	}
	switch slices.Min(i.Subgroups) {
	case gpu.DPAS8.Shape().Lanes:
		return gpu.DPAS8
	case gpu.DPAS16.Shape().Lanes:
		return gpu.DPAS16
	}
	return gpu.NoUnit
}

// subgroupSizes returns the sizes of sub-groups of an Intel device (cl_intel_required_subgroup_size).
func (l *library) subgroupSizes(id uintptr) (sizes []int) {
	const deviceSubgroupSizes = 0x4108
	var list [16]uintptr
	var bytes uintptr
	s := l.call(getDeviceInfo, id, deviceSubgroupSizes, unsafe.Sizeof(list), uintptr(unsafe.Pointer(&list)), uintptr(unsafe.Pointer(&bytes)))
	if s != success {
		return nil
	}
	for _, size := range list[:min(bytes/unsafe.Sizeof(list[0]), uintptr(len(list)))] {
		sizes = append(sizes, int(size))
	}
	return sizes
}
