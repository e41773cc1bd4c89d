//go:build !static

package devices

import (
	"fmt"
	"math"
	"strings"

	"pnode/kernels"
	"pnode/kernels/gpu"
	"pnode/kernels/opencl"
)

var openCL = backend{kind: "opencl", list: listOpenCL, open: openOpenCL}

func listOpenCL() (findings []Finding, err error) {
	list, err := opencl.List()
	for _, info := range list {
		findings = append(findings, Finding{
			Name: fmt.Sprintf("opencl:%d", info.Index), Model: info.Name, Vendor: info.Vendor,
			Platform: info.Platform, Driver: info.Driver, Version: info.Version, PCI: info.PCI,
			Units: info.ComputeUnits, MemoryBytes: clampInt64(info.MemoryBytes), AllocBytes: clampInt64(info.AllocBytes),
			Shared: info.Unified || info.CPU, Processor: info.CPU, Problem: info.Unusable, Features: featuresOf(info), Matrix: info.Unit != gpu.NoUnit,
		})
	}
	return findings, err
}

func openOpenCL(index int, plain bool) (kernels.Device, error) {
	list, err := opencl.List()
	if index < 0 || index >= len(list) {
		if err == nil {
			err = fmt.Errorf("opencl: no device %d among %d", index, len(list))
		}
		return nil, err
	}
	info := list[index]
	if plain {
		info.Unit = gpu.NoUnit
	}
	return opened(info.Open())
}

// extensions of OpenCL that say what a device can do beyond what every one can.
var extensions = []struct{ feature, extension string }{
	{"f16", "cl_khr_fp16"},
	{"f64", "cl_khr_fp64"},
	{"subgroups", "cl_khr_subgroups"},
	{"subgroups", "cl_intel_subgroups"},
	{"int8 products", "cl_khr_integer_dot_product"},
}

func featuresOf(info opencl.Info) (features []string) {
	all := " " + strings.Join(info.Extensions, " ") + " "
	for _, e := range extensions {
		if strings.Contains(all, " "+e.extension+" ") && !wanted(features).names(e.feature) {
			features = append(features, e.feature)
		}
	}
	if info.Unit != gpu.NoUnit {
		features = append(features, "matrix units")
	}
	return features
}

func clampInt64(v uint64) int64 { return int64(min(v, math.MaxInt64)) }
