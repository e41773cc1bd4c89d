package node

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/kernels/emulate"
	"pnode/kernels/null"
	"pnode/node/config"
	"pnode/pipeline"
	"pnode/pipeline/collective"
	"pnode/pipeline/link"
	"pnode/planner"
)

// cpuName is by what placements name a processor, real or emulated.
const cpuName = "cpu"

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

// device opens the one to compute on, on so many cores.
func (l look) device(threads int, log *slog.Logger) (kernels.Device, error) {
	var inner kernels.Device = null.New()
	if !l.idle() {
		d, err := cpu.New(cpu.Options{Threads: threads})
		if err != nil {
			return nil, err // not d, which as a kernels.Device would not be nil
		}
		for _, reason := range d.Dropped() {
			log.Warn("does not use all of this processor", "kernels", d.Variant(), "reason", reason)
		}
		inner = d
	}
	if l.Emulation == nil {
		return inner, nil
	}
	d := l.Device
	stretched, err := emulate.New(inner, emulate.Options{
		Name: cpuName,
		Profile: emulate.Profile{
			Model: d.Model, MatMulFLOPS: int64(d.MatMul), AttentionFLOPS: int64(d.AttentionSpeed()),
			MemoryBytesPerS: int64(d.Bandwidth), MemoryBytes: int64(d.Memory),
		},
		Slack: emulate.PacedSlack,
	})
	if err != nil {
		return nil, errors.Join(err, inner.Close()) // nor a device here, see above
	}
	return stretched, nil
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

// exchange is the session, which an emulated device is told of when a worker waited for it.
func (n *Node) exchange(session *link.Session) collective.Exchange {
	if d, ok := n.device.(*emulate.Device); ok {
		return pipeline.Paced(session, d)
	}
	return session
}

// emulated profiles an emulated device by what it is made to look like, so that plans are
// those of the emulated cluster. Memory that the machine does not have is not promised.
func emulated(d *emulate.Device, memoryFree int64) planner.DeviceProfile {
	p := d.Profile()
	if _, computes := d.Inner().(*cpu.Device); computes {
		p.MemoryBytes = min(p.MemoryBytes, memoryFree)
	}
	return planner.DeviceProfile{
		Name: d.Name(), Model: p.Model, MatMulFLOPS: p.MatMulFLOPS, AttentionFLOPS: p.AttentionFLOPS,
		MemoryBytesPerS: p.MemoryBytesPerS, MemoryFreeBytes: p.MemoryBytes,
	}
}
