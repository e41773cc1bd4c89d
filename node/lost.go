package node

import (
	"context"
	"fmt"

	"pnode/kernels"
	"pnode/kernels/devices"
	"pnode/planner/plan"
)

// checkDevices looks, after a generation failed, whether a device was the reason, and goes on
// without those that compute nothing any more: the plan of the others must not name them again.
func (n *Node) checkDevices(ctx context.Context) {
	n.tasks.check.start(&n.group, func() {
		set, lost, err := remaining(n.devices.Load(), n.threads)
		for _, why := range lost {
			n.log.Warn(why)
		}
		if err != nil {
			n.log.Error("no device is left", "cause", err)
			n.requestLeave()
			return
		}
		if len(lost) == 0 {
			return
		}
		limitMemory(set, n.memory)
		n.devices.Store(set)
		profile, err := measure(set, n.memory, n.dir)
		if err != nil {
			n.log.Warn("measure what is left", "cause", err)
			return
		}
		n.profile.renew(profile)
		n.tellProfile(ctx)
	})
}

// remaining is what still works of a set: the processor, where nothing else does.
func remaining(set *devices.Set, threads int) (*devices.Set, []string, error) {
	working, lost := set.Working()
	if len(working.Devices) > 0 {
		return working, lost, nil
	}
	working, err := devices.Open(context.Background(), devices.Options{Names: []string{devices.CPU}, Threads: threads})
	return working, lost, err
}

// device is the one that a seat names.
func (n *Node) device(seat plan.WorkerID) (kernels.Device, error) {
	d := n.devices.Load().Named(seat.Device)
	if d == nil {
		return nil, fmt.Errorf("%w: %s is not in use here any more", kernels.ErrLost, seat.Device)
	}
	return d, nil
}
