package hardware

import (
	"fmt"
	"math"
	"os"

	"github.com/shirou/gopsutil/v4/disk"
	"github.com/shirou/gopsutil/v4/mem"
	"github.com/shirou/gopsutil/v4/process"

	"pnode/kernels"
	"pnode/kernels/devices"
	"pnode/kernels/emulate"
	"pnode/node/config"
	"pnode/planner/plan"
)

// measure profiles devices, of whose memory so much may be taken, and the disk of dir. Figures are clamped to
// what the others accept, such as the free space of a file system without a limit. The error wraps
// plan.ErrBadProfile where they would refuse the profile.
func measure(set *devices.Set, allowed config.Memory, dir string) (p plan.Profile, err error) {
	memory, err := mem.VirtualMemory()
	if err != nil {
		return p, fmt.Errorf("hardware: free memory: %w", err)
	}
	space, err := disk.Usage(dir)
	if err != nil {
		return p, fmt.Errorf("hardware: free disk of %s: %w", dir, err)
	}
	p.DiskFreeBytes = int64(min(space.Free, math.MaxInt64))
	free := int64(min(memory.Available, math.MaxInt64))
	users := hostUsers(set)
	for _, d := range set.Devices {
		device, err := profileOf(d, allowed.Of(d.Name()), free/users)
		if err != nil {
			return p, err
		}
		if device.HostFreeBytes > 0 {
			device.HostFreeBytes = min(device.HostFreeBytes, allowed.Of(devices.CPU).Within(free)/users)
		}
		p.Devices = append(p.Devices, device)
	}
	p = p.Clamped()
	if err := p.Validate(""); err != nil {
		return p, fmt.Errorf("hardware: no other node would accept this machine: %w: choose what to compute on with --devices", err)
	}
	return p, nil
}

// roomBytes returns how much the roomiest device has for stages.
func roomBytes(set *devices.Set, allowed config.Memory) (most int64, err error) {
	memory, err := mem.VirtualMemory()
	if err != nil {
		return 0, fmt.Errorf("hardware: free memory: %w", err)
	}
	host := int64(min(memory.Available, math.MaxInt64)) / hostUsers(set)
	for _, d := range set.Devices {
		room := allowed.Of(d.Name()).Within(d.MemoryFor(host))
		if emulated, ok := d.Device.(*emulate.Device); ok {
			room = profileOfEmulated(emulated, host).MemoryFreeBytes
		}
		most = max(most, room)
	}
	return most, nil
}

// spareShare is which part of the free memory of the host may hold what only speeds things up.
const spareShare = 16

// besideShare is which part of the free memory of the host one may take for a while who computes beside the run.
const besideShare = 4

// OneCore opens a device that is one core of the processor, for work that the run can do without: its devices have the others, and most of
// the free memory. Whoever opens it closes it.
func (m *Machine) OneCore() (kernels.Device, error) {
	device, err := devices.OpenHere(devices.Finding{Name: devices.CPU}, 1)
	if err != nil {
		return nil, err
	}
	if limited, ok := device.(kernels.Limited); ok {
		limited.LimitMemory(max(1, m.freeBytes()/besideShare)) // 0 would be no limit
	}
	return device, nil
}

// SpareBytes returns how many bytes of the host's memory may be used for what the run can do without.
func (m *Machine) SpareBytes() int64 { return m.freeBytes() / spareShare }

// freeBytes returns how much of the host's free memory may be taken, 0 where that is not known.
func (m *Machine) freeBytes() int64 {
	memory, err := mem.VirtualMemory()
	if err != nil {
		return 0
	}
	return m.options.Memory.Of(devices.CPU).Within(int64(min(memory.Available, math.MaxInt64)))
}

// ProcessBytes returns how many bytes of the host's memory this process takes, 0 where that is not known.
func ProcessBytes() int64 {
	p, err := process.NewProcess(int32(os.Getpid()))
	if err != nil {
		return 0
	}
	used, err := p.MemoryInfo()
	if err != nil {
		return 0
	}
	return int64(min(used.RSS, math.MaxInt64))
}

// hostUsers counts the devices that share the host's memory, 1 at least: those that compute in
// it, and those whose stages may keep optimizer state there.
func hostUsers(set *devices.Set) (n int64) {
	for _, d := range set.Devices {
		if distant, ok := d.Device.(kernels.Distant); d.Shared || ok && distant.Distant() {
			n++
		}
	}
	return max(n, 1)
}

// profileOf measures a device. hostBytes of the host's memory are its share.
func profileOf(d devices.Device, allowed config.Allowance, hostBytes int64) (plan.DeviceProfile, error) {
	if emulated, ok := d.Device.(*emulate.Device); ok {
		return profileOfEmulated(emulated, hostBytes), nil
	}
	rates, err := devices.Measure(d.Device)
	p := plan.DeviceProfile{
		Name: d.Name(), Model: d.Model, Kind: kernels.KindOf(d.Device), MemoryFreeBytes: allowed.Within(d.MemoryFor(hostBytes)),
		MatMulFLOPS: rates.MatMulFLOPS, MatMulBF16FLOPS: rates.MatMulBF16FLOPS, MatMulF16FLOPS: rates.MatMulF16FLOPS,
		AttentionFLOPS: rates.AttentionFLOPS, MemoryBytesPerS: rates.MemoryBytesPerS, CallNanos: min(rates.CallNanos, plan.MaxCallNanos),
		Times: rates.Times, TimesBF16: rates.TimesBF16, TimesF16: rates.TimesF16,
	}
	if !d.Shared { // else its memory is the host's, and nothing is won by leaving it
		p.CopyBytesPerS, p.HostFreeBytes = rates.CopyBytesPerS, hostBytes
	}
	return p, err
}
