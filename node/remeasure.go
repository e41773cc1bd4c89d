package node

import (
	"slices"

	"pnode/planner/plan"
)

// differsBy is by which share of itself a rate has to change to be worth telling.
const differsBy = 0.1

// remeasure profiles this machine anew while no plan uses it. It may have been busy when it
// came, and a node that looks slow is left out of every plan: it would never be seen again
// what it can do.
func (n *Node) remeasure() {
	if n.raft.State().Plan.Places(n.self) {
		return
	}
	fresh, err := measure(n.devices.Load(), n.memory, n.dir)
	if err != nil {
		n.log.Debug("measure again", "cause", err)
		return
	}
	if n.profile.renew(fresh) {
		for _, device := range fresh.Devices {
			n.log.Info("measured again, and differently", "device", device.Name, "matmul_gflops", device.MatMulFLOPS/1e9)
		}
	}
}

// renew takes over fresh devices and free space where they differ enough to matter. The
// links stay.
func (o *ownProfile) renew(fresh plan.Profile) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.EqualFunc(o.profile.Devices, fresh.Devices, alike) {
		return false
	}
	o.profile.Devices, o.profile.DiskFreeBytes = fresh.Devices, fresh.DiskFreeBytes
	return true
}

// alike tells whether two measurements of a device would hardly give another plan.
func alike(a, b plan.DeviceProfile) bool {
	return a.Name == b.Name && a.Model == b.Model &&
		near(a.MatMulFLOPS, b.MatMulFLOPS) && near(a.MatMulBF16FLOPS, b.MatMulBF16FLOPS) && near(a.MatMulF16FLOPS, b.MatMulF16FLOPS) &&
		near(a.AttentionFLOPS, b.AttentionFLOPS) &&
		near(a.MemoryBytesPerS, b.MemoryBytesPerS) && near(a.MemoryFreeBytes, b.MemoryFreeBytes) &&
		near(a.CopyBytesPerS, b.CopyBytesPerS) && near(a.HostFreeBytes, b.HostFreeBytes)
}

func near(a, b int64) bool {
	return float64(max(a, b)-min(a, b)) <= differsBy*float64(max(a, b))
}
