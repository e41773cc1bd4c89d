package hardware

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/kernels/devices"
	"pnode/kernels/emulate"
	"pnode/kernels/null"
	"pnode/node/config"
	"pnode/pipeline"
	"pnode/pipeline/collective"
	"pnode/pipeline/link"
	"pnode/planner/plan"
)

// openEmulated opens the one emulated device of the options.
func openEmulated(ctx context.Context, o Options) (*devices.Set, error) {
	inner := kernels.Device(null.New())
	if o.Emulation.Device.Computes() {
		set, err := devices.Open(ctx, devices.Options{Names: []string{devices.CPU}, Threads: o.Threads})
		if err != nil {
			return nil, err
		}
		inner = set.Devices[0].Device
	}
	options := emulate.Options{Name: devices.CPU, Profile: emulatedProfile(o.Emulation.Device), Slack: emulate.PacedSlack}
	for _, s := range o.Emulation.Device.Slower {
		options.Changes = append(options.Changes, emulate.Change{After: time.Duration(s.After), Percent: 100 * int64(s.Times)})
	}
	d, err := emulate.New(inner, options)
	if err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	return devices.Of(d), nil
}

func emulatedProfile(d config.Device) emulate.Profile {
	return emulate.Profile{
		Model: d.Model, MatMulFLOPS: int64(d.MatMul), MatMulBF16FLOPS: int64(d.MatMulBF16), MatMulF16FLOPS: int64(d.MatMulF16),
		AttentionFLOPS: int64(d.AttentionSpeed()), MemoryBytesPerS: int64(d.Bandwidth), MemoryBytes: int64(d.Memory),
		CopyBytesPerS: int64(d.Copies), HostBytes: int64(d.HostMemory), CallTime: time.Duration(d.CallTime),
	}
}

// deviceProfile returns the profile that plans see of an emulated device.
func deviceProfile(p emulate.Profile) plan.DeviceProfile {
	return plan.DeviceProfile{
		Name: devices.CPU, Model: p.Model, MatMulFLOPS: p.MatMulFLOPS, MatMulBF16FLOPS: p.MatMulBF16FLOPS, MatMulF16FLOPS: p.MatMulF16FLOPS,
		AttentionFLOPS: p.AttentionFLOPS, MemoryBytesPerS: p.MemoryBytesPerS, MemoryFreeBytes: p.MemoryBytes,
		CopyBytesPerS: p.CopyBytesPerS, HostFreeBytes: p.HostBytes, CallNanos: p.CallTime.Nanoseconds(),
	}
}

// profileOfEmulated returns the profile of an emulated device, so that plans fit the emulated
// cluster. It promises no memory that the host, with freeBytes, does not have.
func profileOfEmulated(d *emulate.Device, freeBytes int64) plan.DeviceProfile {
	p := deviceProfile(d.Profile())
	if _, computes := d.Inner().(*cpu.Device); computes {
		p.MemoryFreeBytes = min(p.MemoryFreeBytes, freeBytes)
		freeBytes -= p.MemoryFreeBytes
	}
	p.HostFreeBytes = min(p.HostFreeBytes, freeBytes)
	return p
}

// emulatedSocket returns what puts a file's links under a UDP socket.
func emulatedSocket(e config.Emulation) func(net.PacketConn) net.PacketConn {
	conditions := map[netip.AddrPort][]link.TimedConditions{}
	for _, l := range e.Links {
		to := netip.MustParseAddrPort(l.To) // checked by config
		conditions[to] = append(conditions[to], link.TimedConditions{After: time.Duration(l.After), LinkConditions: conditionsOf(l.LinkShape)})
	}
	return func(conn net.PacketConn) net.PacketConn {
		return link.NewNetemConn(conn, link.NetemOptions{Seed: e.Seed, Conditions: conditionsOf(e.Link), ByAddress: conditions})
	}
}

// conditionsOf gives a link's queue room for what the line carries in a round trip and 50 ms, plus 64 KiB.
func conditionsOf(s config.LinkShape) link.LinkConditions {
	const queueSeconds, leastBytes = 0.05, 64 << 10
	roundTrip := 2 * time.Duration(s.Latency).Seconds()
	return link.LinkConditions{
		BytesPerS: int64(s.Bandwidth), Delay: time.Duration(s.Latency), Jitter: time.Duration(s.Jitter),
		LossPerMillion: int(s.Loss), QueueBytes: leastBytes + int(float64(s.Bandwidth)*(roundTrip+queueSeconds)),
	}
}

// Exchange returns the session as a device's workers use it: an emulated device is told how long
// its worker waited for messages.
func Exchange(device kernels.Device, session collective.Exchange) collective.Exchange {
	if d, ok := device.(*emulate.Device); ok {
		return pipeline.Paced(session, d)
	}
	return session
}
