package node

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/shirou/gopsutil/v4/disk"
	"github.com/shirou/gopsutil/v4/mem"

	"pnode/kernels"
	"pnode/kernels/devices"
	"pnode/kernels/emulate"
	"pnode/node/config"
	"pnode/node/dataset"
	"pnode/pipeline/model"
	"pnode/planner"
	"pnode/planner/plan"
)

// processBytes is what a node takes besides its stages and the text: the program, the network,
// the store. 61 and 63 MiB were measured beside stages of 60 and 337 MiB.
const processBytes = 62 << 20

// PlanInput is what a run's first plan depends on, but for the members.
func PlanInput(run plan.RunSpec) planner.Input {
	in := planner.Input{
		Run: run, Costs: run.Model.Costs(run.Train.MicroBatch, model.StorageF32), Generation: 1,
		NodeBytes: processBytes + min(run.Data.SizeBytes, dataset.CacheBytes),
	}
	if run.Train.Storage.Halves() {
		in.HalfCosts = run.Model.Costs(run.Train.MicroBatch, model.StorageBF16)
	}
	return in
}

// Measure profiles this machine as a node with these settings, and its data in dir, would.
func Measure(ctx context.Context, dir string, cfg config.Config, out Output) (_ plan.Profile, err error) {
	set, err := look{}.devices(ctx, cfg, out)
	if err != nil {
		return plan.Profile{}, err
	}
	defer func() { err = errors.Join(err, set.Close()) }()
	return measure(set, cfg.Memory, dir)
}

// measure profiles devices, of which so much may be taken, and the disk that dir is on.
func measure(set *devices.Set, allowed config.Memory, dir string) (p plan.Profile, err error) {
	memory, err := mem.VirtualMemory()
	if err != nil {
		return p, fmt.Errorf("node: free memory: %w", err)
	}
	space, err := disk.Usage(dir)
	if err != nil {
		return p, fmt.Errorf("node: free disk of %s: %w", dir, err)
	}
	p.DiskFreeBytes = clampInt64(space.Free)
	free := clampInt64(memory.Available)
	share := free / hostUsers(set)
	for _, d := range set.Devices {
		device, err := profileOf(d, allowed.Of(d.Name()), share)
		if err != nil {
			return p, err
		}
		if device.HostFreeBytes > 0 {
			device.HostFreeBytes = min(device.HostFreeBytes, allowed.Of(devices.CPU).Within(free)/hostUsers(set))
		}
		p.Devices = append(p.Devices, device)
	}
	return p, nil
}

// hostUsers is how many devices have the host's memory in common, at least 1: those that compute
// in it, and those whose stages may keep optimizer state there.
func hostUsers(set *devices.Set) (n int64) {
	for _, d := range set.Devices {
		if distant, ok := d.Device.(kernels.Distant); d.Shared || ok && distant.Distant() {
			n++
		}
	}
	return max(n, 1)
}

// profileOf measures a device that may have so much of its memory, and of the host's.
func profileOf(d devices.Device, allowed config.Allowance, hostMemory int64) (plan.DeviceProfile, error) {
	if stretched, ok := d.Device.(*emulate.Device); ok {
		return profileOfEmulated(stretched, hostMemory), nil
	}
	rates, err := devices.Measure(d.Device)
	p := plan.DeviceProfile{
		Name: d.Name(), Model: d.Model, MemoryFreeBytes: allowed.Within(d.MemoryFor(hostMemory)),
		MatMulFLOPS: rates.MatMulFLOPS, MatMulBF16FLOPS: rates.MatMulBF16FLOPS, MatMulF16FLOPS: rates.MatMulF16FLOPS, AttentionFLOPS: rates.AttentionFLOPS, MemoryBytesPerS: rates.MemoryBytesPerS,
	}
	if !d.Shared { // else its memory is the host's, and nothing is won by leaving it
		p.CopyBytesPerS, p.HostFreeBytes = rates.CopyBytesPerS, hostMemory
	}
	return p, err
}

func clampInt64(v uint64) int64 { return int64(min(v, math.MaxInt64)) }
