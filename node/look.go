package node

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

// look is what a node is made to look like; nil is what it is.
type look struct{ *config.Emulation }

// loadLook reads an emulation file; no path is no emulation.
func loadLook(path string) (look, error) {
	if path == "" {
		return look{}, nil
	}
	e, err := config.LoadEmulation(path)
	return look{&e}, err
}

// idle tells whether the device computes nothing.
func (l look) idle() bool { return l.Emulation != nil && !l.Device.Computes() }

// devices opens those to compute on. An emulated device lives on the processor, or on nothing.
func (l look) devices(ctx context.Context, cfg config.Config, out Output) (*devices.Set, error) {
	if l.idle() {
		return l.emulated(null.New())
	}
	o := devices.Options{Names: cfg.Devices.Names(), Threads: cfg.Threads, Probe: out.Probe, Enough: enough(cfg.Memory)}
	if l.Emulation != nil {
		o.Names = []string{devices.CPU}
	}
	set, err := devices.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	for _, reason := range set.Dropped {
		out.Log.Warn(reason)
	}
	if l.Emulation == nil {
		for _, name := range limitMemory(set, cfg.Memory) {
			out.Log.Warn("memory is limited of a device that is not in use", "device", name, "memory", cfg.Memory.String())
		}
		return set, nil
	}
	return l.emulated(set.Devices[0].Device)
}

// emulated makes a device look like another one.
func (l look) emulated(inner kernels.Device) (*devices.Set, error) {
	d := l.Device
	stretched, err := emulate.New(inner, emulate.Options{
		Name: devices.CPU,
		Profile: emulate.Profile{
			Model: d.Model, MatMulFLOPS: int64(d.MatMul), MatMulBF16FLOPS: int64(d.MatMulBF16), MatMulF16FLOPS: int64(d.MatMulF16), AttentionFLOPS: int64(d.AttentionSpeed()),
			MemoryBytesPerS: int64(d.Bandwidth), MemoryBytes: int64(d.Memory), CopyBytesPerS: int64(d.Copies), HostBytes: int64(d.HostMemory),
		},
		Slack: emulate.PacedSlack,
	})
	if err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	return devices.Of(stretched), nil
}

// socket puts emulated links under the node's UDP sockets; nil leaves them as they are.
func (l look) socket() func(net.PacketConn) net.PacketConn {
	if l.Emulation == nil || !l.Networked() {
		return nil
	}
	shapes := map[netip.AddrPort][]link.TimedShape{}
	for _, l := range l.Links {
		to := netip.MustParseAddrPort(l.To) // checked by config
		shapes[to] = append(shapes[to], link.TimedShape{After: time.Duration(l.After), Shape: shapeOf(l.LinkShape)})
	}
	return func(conn net.PacketConn) net.PacketConn {
		return link.Shaped(conn, link.ShapedOptions{Seed: l.Seed, Shape: shapeOf(l.Link), Shapes: shapes})
	}
}

// A link's queue holds what the line carries in a round trip and queueSeconds, and
// minQueueBytes on top.
const (
	queueSeconds  = 0.05
	minQueueBytes = 64 << 10
)

func shapeOf(s config.LinkShape) link.Shape {
	roundTrip := 2 * time.Duration(s.Latency).Seconds()
	return link.Shape{
		BytesPerS: int64(s.Bandwidth), Delay: time.Duration(s.Latency), Jitter: time.Duration(s.Jitter),
		LossPerMillion: int(s.Loss), QueueBytes: minQueueBytes + int(float64(s.Bandwidth)*(roundTrip+queueSeconds)),
	}
}

// exchange is the session, of which an emulated device is told when its worker waited for it.
func exchange(device kernels.Device, session *link.Session) collective.Exchange {
	if d, ok := device.(*emulate.Device); ok {
		return pipeline.Paced(session, d)
	}
	return session
}

// profileOfEmulated profiles an emulated device by what it is made to look like, so that plans are
// those of the emulated cluster. Memory that the machine does not have is not promised.
func profileOfEmulated(d *emulate.Device, memoryFree int64) plan.DeviceProfile {
	p := d.Profile()
	if _, computes := d.Inner().(*cpu.Device); computes {
		p.MemoryBytes = min(p.MemoryBytes, memoryFree)
		memoryFree -= p.MemoryBytes
	}
	return plan.DeviceProfile{
		Name: d.Name(), Model: p.Model, MatMulFLOPS: p.MatMulFLOPS, MatMulBF16FLOPS: p.MatMulBF16FLOPS, MatMulF16FLOPS: p.MatMulF16FLOPS, AttentionFLOPS: p.AttentionFLOPS,
		MemoryBytesPerS: p.MemoryBytesPerS, MemoryFreeBytes: p.MemoryBytes,
		CopyBytesPerS: p.CopyBytesPerS, HostFreeBytes: min(p.HostBytes, memoryFree),
	}
}
