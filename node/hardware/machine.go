package hardware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"

	"pnode/kernels"
	"pnode/kernels/devices"
	"pnode/kernels/host"
	"pnode/node/config"
	"pnode/planner/plan"
)

// Options choose and limit what a Machine computes on.
type Options struct {
	// Dir lies on the disk whose free space is measured.
	Dir     string
	Devices config.Devices
	Threads int           // of the processor
	Memory  config.Memory // that may be taken of the devices and the host
	// Emulation replaces the devices by an emulated one; nil uses them as they are.
	Emulation *config.Emulation
	// Probe looks at the devices of this machine's drivers; nil finds the processor alone.
	Probe devices.Probe
	Log   *slog.Logger
}

// OptionsOf returns the options in a node's settings, without Probe and Log. It reads the
// emulation file that they name.
func OptionsOf(cfg config.Config) (Options, error) {
	o := Options{Dir: cfg.Dir, Devices: cfg.Devices, Threads: cfg.Threads, Memory: cfg.Memory}
	if cfg.Emulate == "" {
		return o, nil
	}
	e, err := config.LoadEmulation(cfg.Emulate)
	o.Emulation = &e
	return o, err
}

// Machine owns the devices of a node and remembers what was measured of them. It is safe for
// concurrent use.
type Machine struct {
	options Options
	host    host.Memory // holds what stages keep off their devices

	mu        sync.Mutex // guards what follows
	set       *devices.Set
	processor *devices.Set // nil before it was asked for
	profile   plan.Profile
}

// Open opens the devices that the options choose and limits their memory.
func Open(ctx context.Context, o Options) (*Machine, error) {
	set, err := openDevices(ctx, o)
	if err != nil {
		return nil, err
	}
	m := &Machine{options: o, set: set}
	limitHost(&m.host, set, o.Memory)
	return m, nil
}

// openDevices opens the devices themselves. An emulated device computes on the processor, or
// nothing at all.
func openDevices(ctx context.Context, o Options) (*devices.Set, error) {
	if o.Emulation != nil {
		return openEmulated(ctx, o)
	}
	set, err := devices.Open(ctx, devices.Options{Names: o.Devices.Names(), Threads: o.Threads, Probe: o.Probe, Enough: enough(o.Memory)})
	if err != nil {
		return nil, err
	}
	for _, reason := range set.Dropped {
		o.Log.Warn(reason)
	}
	for _, name := range limitMemory(set, o.Memory) {
		o.Log.Warn("memory is limited of a device that is not in use", "device", name, "memory", o.Memory.String())
	}
	return set, nil
}

// Close closes the devices.
func (m *Machine) Close() error {
	m.mu.Lock()
	processor := m.processor
	m.mu.Unlock()
	err := m.inUse().Close()
	if processor != nil {
		err = errors.Join(err, processor.Close())
	}
	return err
}

// Processor returns a device whose memory is the node's, whatever the machine computes on. It is not emulated.
func (m *Machine) Processor() (kernels.Device, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.processor == nil {
		set, err := devices.Open(context.Background(), devices.Options{Names: []string{devices.CPU}, Threads: m.options.Threads})
		if err != nil {
			return nil, err
		}
		m.processor = set
	}
	return m.processor.Devices[0].Device, nil
}

func (m *Machine) inUse() *devices.Set {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.set
}

// Host returns the memory for what stages keep off their devices.
func (m *Machine) Host() *host.Memory { return &m.host }

// First returns the device that the machine computes on when any will do.
func (m *Machine) First() kernels.Device { return m.inUse().Devices[0].Device }

// Device returns the device with a name. The error wraps kernels.ErrLost when it stopped working.
func (m *Machine) Device(name string) (kernels.Device, error) {
	d := m.inUse().Named(name)
	if d == nil {
		return nil, fmt.Errorf("%w: %s is not in use here any more", kernels.ErrLost, name)
	}
	return d, nil
}

// Idle reports whether the devices compute nothing, so that losses mean nothing.
func (m *Machine) Idle() bool {
	return m.options.Emulation != nil && !m.options.Emulation.Device.Computes()
}

// Socket returns what puts emulated links under the node's UDP sockets; nil leaves them alone.
func (m *Machine) Socket() func(net.PacketConn) net.PacketConn {
	if m.options.Emulation == nil || !m.options.Emulation.Networked() {
		return nil
	}
	return emulatedSocket(*m.options.Emulation)
}

// Profile returns what was measured last, with the links that were added.
func (m *Machine) Profile() plan.Profile {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.profile
}

// RoomBytes returns how much memory the roomiest device has for stages now. It needs no measurement.
func (m *Machine) RoomBytes() (int64, error) { return roomBytes(m.inUse(), m.options.Memory) }

// keptLinks bounds the links of the profile. A member measures eight to members that are here; the oldest go, most of them to members that left.
const keptLinks = 16

// AddLink adds a measured link to the profile, in place of an earlier one to the same peer, or of the oldest. Profiles returned
// before stay as they are.
func (m *Machine) AddLink(l plan.LinkProfile) {
	m.mu.Lock()
	defer m.mu.Unlock()
	others := slices.DeleteFunc(slices.Clone(m.profile.Links), func(o plan.LinkProfile) bool { return o.Peer == l.Peer })
	others = others[max(0, len(others)-keptLinks+1):]
	m.profile.Links = append(others, plan.Profile{Links: []plan.LinkProfile{l}}.Clamped().Links...)
}

// Measure measures the devices and takes the result over where it differs from the profile. It
// reports whether it does. A machine may have been busy when it was measured first: one that
// looks slow is left out of plans, so it is measured again while no plan uses it.
func (m *Machine) Measure() (changed bool, err error) {
	fresh, err := measure(m.inUse(), m.options.Memory, m.options.Dir)
	if err != nil || !m.renew(fresh) {
		return false, err
	}
	for _, d := range fresh.Devices {
		m.options.Log.Info("measured", "device", d.Name, "model", d.Model, "products", plan.Speed(d.MatMulFLOPS),
			"attention", plan.Speed(d.AttentionFLOPS), "memory_gb_per_s", d.MemoryBytesPerS/1e9)
	}
	return true, nil
}

// DropLost gives up the devices that compute nothing any more and measures what is left: the
// processor, where nothing else works. It reports whether a device was lost. An error says that
// no device is left.
func (m *Machine) DropLost() (lost bool, err error) {
	set, reasons, err := working(m.inUse(), m.options.Threads)
	for _, why := range reasons {
		m.options.Log.Warn(why)
	}
	if err != nil || len(reasons) == 0 {
		return false, err
	}
	limitMemory(set, m.options.Memory)
	m.mu.Lock()
	m.set = set
	m.mu.Unlock()
	if _, err := m.Measure(); err != nil {
		m.options.Log.Warn("measure what is left", "cause", err)
		return false, nil
	}
	return true, nil
}

// working returns the devices of a set that still compute, and why the others do not. Without
// any it opens the processor.
func working(set *devices.Set, threads int) (*devices.Set, []string, error) {
	left, lost := set.Working()
	if len(left.Devices) > 0 {
		return left, lost, nil
	}
	left, err := devices.Open(context.Background(), devices.Options{Names: []string{devices.CPU}, Threads: threads})
	return left, lost, err
}

// renew takes over the devices and the free disk of a fresh profile and keeps the links. It
// reports false, and changes nothing, when the devices hardly differ.
func (m *Machine) renew(fresh plan.Profile) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.EqualFunc(m.profile.Devices, fresh.Devices, alike) {
		return false
	}
	m.profile.Devices, m.profile.DiskFreeBytes = fresh.Devices, fresh.DiskFreeBytes
	return true
}

// alike reports whether two measurements of a device would hardly give another plan.
func alike(a, b plan.DeviceProfile) bool {
	near := func(a, b int64) bool {
		const share = 0.1 // of the greater value
		return float64(max(a, b)-min(a, b)) <= share*float64(max(a, b))
	}
	return a.Name == b.Name && a.Model == b.Model && a.Kind == b.Kind &&
		near(a.MatMulFLOPS, b.MatMulFLOPS) && near(a.MatMulBF16FLOPS, b.MatMulBF16FLOPS) && near(a.MatMulF16FLOPS, b.MatMulF16FLOPS) &&
		near(a.AttentionFLOPS, b.AttentionFLOPS) &&
		near(a.MemoryBytesPerS, b.MemoryBytesPerS) && near(a.MemoryFreeBytes, b.MemoryFreeBytes) &&
		near(a.CopyBytesPerS, b.CopyBytesPerS) && near(a.HostFreeBytes, b.HostFreeBytes) && a.Times.Products.Measured() == b.Times.Products.Measured()
}
