package node

import (
	"context"
	"fmt"
	"os"

	"pnode/kernels/devices"
	"pnode/node/config"
	"pnode/planner"
	"pnode/planner/plan"
)

// unlimitedBytesPerS is what an emulated line without a limit is planned with.
const unlimitedBytesPerS = 10e9

// Foreseen are the members that a plan without a run is made for: the devices of the cluster
// that cfg names with the links between them as they are at first, or so many nodes like this
// machine, or like what cfg has it look like.
func Foreseen(ctx context.Context, cfg config.Config, nodes int, out Output) ([]planner.Member, error) {
	if cfg.Cluster != "" {
		cluster, err := config.LoadCluster(cfg.Cluster)
		return clusterMembers(cluster), err
	}
	profile, err := foreseenProfile(ctx, cfg, out)
	if err != nil {
		return nil, err
	}
	var members []planner.Member
	for i := range nodes {
		members = append(members, planner.Member{Peer: foreseenPeer(i), Profile: profile})
	}
	return members, nil
}

func foreseenPeer(i int) plan.PeerID { return plan.PeerID(fmt.Sprintf("node-%d", i)) }

func foreseenProfile(ctx context.Context, cfg config.Config, out Output) (plan.Profile, error) {
	if cfg.Emulate == "" {
		return Measure(ctx, os.TempDir(), cfg, out)
	}
	e, err := config.LoadEmulation(cfg.Emulate)
	return plan.Profile{Devices: []plan.DeviceProfile{lookedLike(e.Device)}}, err
}

// clusterMembers are an emulated cluster's nodes, by number.
func clusterMembers(c config.Cluster) []planner.Member {
	nodes := c.Nodes()
	members := make([]planner.Member, len(nodes))
	for i, d := range nodes {
		members[i] = planner.Member{Peer: foreseenPeer(i), Profile: plan.Profile{Devices: []plan.DeviceProfile{lookedLike(d)}}}
		for j := range nodes {
			if j == i {
				continue
			}
			forth, back := c.LinkAtFirst(i, j), c.LinkAtFirst(j, i)
			link := plan.LinkProfile{
				Peer: foreseenPeer(j), BytesPerS: int64(forth.Bandwidth),
				RTTNanos: int64(forth.Latency + back.Latency), JitterNanos: int64(forth.Jitter+back.Jitter) / 2, // [0,Jitter) is half of it on average
			}
			if link.BytesPerS == 0 {
				link.BytesPerS = unlimitedBytesPerS
			}
			members[i].Profile.Links = append(members[i].Profile.Links, link)
		}
	}
	return members
}

// lookedLike profiles what a device is made to look like.
func lookedLike(d config.Device) plan.DeviceProfile {
	return plan.DeviceProfile{
		Name: devices.CPU, Model: d.Model, MatMulFLOPS: int64(d.MatMul), MatMulBF16FLOPS: int64(d.MatMulBF16), MatMulF16FLOPS: int64(d.MatMulF16), AttentionFLOPS: int64(d.AttentionSpeed()),
		MemoryBytesPerS: int64(d.Bandwidth), MemoryFreeBytes: int64(d.Memory),
		CopyBytesPerS: int64(d.Copies), HostFreeBytes: int64(d.HostMemory),
	}
}
