package node

import (
	"errors"
	"fmt"
	"math"

	"github.com/shirou/gopsutil/v4/disk"
	"github.com/shirou/gopsutil/v4/mem"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/kernels/emulate"
	"pnode/node/dataset"
	"pnode/planner"
)

// processBytes is what a node takes besides its stages and the text: the program, the network,
// the store. 61 and 63 MiB were measured beside stages of 60 and 337 MiB.
const processBytes = 62 << 20

// PlanInput is what a run's first plan depends on, but for the members.
func PlanInput(run planner.RunSpec) planner.Input {
	return planner.Input{
		Run: run, Costs: run.Model.Costs(run.Train.MicroBatch, run.Train.Storage), Generation: 1,
		NodeBytes: processBytes + min(run.Data.SizeBytes, dataset.CacheBytes),
	}
}

// Measure profiles this machine as a node of threads cores, 0 for all, with its data in dir
// would.
func Measure(dir string, threads int) (_ planner.Profile, err error) {
	device, err := cpu.New(cpu.Options{Threads: threads})
	if err != nil {
		return planner.Profile{}, err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	return measure(device, dir)
}

// measure profiles a device, and the disk that dir is on.
func measure(d kernels.Device, dir string) (planner.Profile, error) {
	memory, err := mem.VirtualMemory()
	if err != nil {
		return planner.Profile{}, fmt.Errorf("node: free memory: %w", err)
	}
	space, err := disk.Usage(dir)
	if err != nil {
		return planner.Profile{}, fmt.Errorf("node: free disk of %s: %w", dir, err)
	}
	device, err := profileOf(d, clampInt64(memory.Available))
	if err != nil {
		return planner.Profile{}, err
	}
	return planner.Profile{Devices: []planner.DeviceProfile{device}, DiskFreeBytes: clampInt64(space.Free)}, nil
}

func profileOf(d kernels.Device, memoryFree int64) (planner.DeviceProfile, error) {
	switch d := d.(type) {
	case *emulate.Device:
		return emulated(d, memoryFree), nil
	case *cpu.Device:
		return calibrate(d, d.Model(), memoryFree)
	default:
		return calibrate(d, "", memoryFree)
	}
}

func clampInt64(v uint64) int64 { return int64(min(v, math.MaxInt64)) }
