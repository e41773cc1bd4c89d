package node

import "context"

// checkDevices looks, after a generation failed, whether a device was the reason. The node goes
// on without lost devices: the plan of the others must not name them again.
func (n *Node) checkDevices(ctx context.Context) {
	n.tasks.check.start(&n.group, func() {
		lost, err := n.hardware.DropLost()
		if err != nil {
			n.log.Error("no device is left", "cause", err)
			n.requestLeave()
		} else if lost {
			n.announcer.Announce(ctx)
		}
	})
}
