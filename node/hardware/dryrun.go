package hardware

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"pnode/node/config"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/planner/simulate"
)

// unlimitedBytesPerS stands in plans for an emulated line without a limit.
const unlimitedBytesPerS = 10e9

// DryRun returns the members that a plan without a run is made for: the devices of a cluster
// file with the links that it begins with, or else so many nodes like this machine, which is
// measured unless the options emulate another one.
func DryRun(ctx context.Context, cluster string, nodes int, o Options) (members []planner.Member, err error) {
	if cluster != "" {
		c, err := config.LoadCluster(cluster)
		return clusterMembers(c), err
	}
	profile := plan.Profile{}
	if o.Emulation != nil {
		profile.Devices = []plan.DeviceProfile{dryDevice(o.Emulation.Device)}
		profile = profile.Clamped()
	} else if profile, err = profileNow(ctx, o); err != nil {
		return nil, err
	}
	for i := range nodes {
		members = append(members, planner.Member{Peer: dryPeer(i), Profile: profile})
	}
	return members, nil
}

// profileNow opens the devices, measures them and closes them again.
func profileNow(ctx context.Context, o Options) (_ plan.Profile, err error) {
	set, err := openDevices(ctx, o)
	if err != nil {
		return plan.Profile{}, err
	}
	defer func() { err = errors.Join(err, set.Close()) }()
	return measure(set, o.Memory, o.Dir)
}

func dryPeer(i int) plan.PeerID { return plan.PeerID(fmt.Sprintf("node-%d", i)) }

// dryDevice returns the profile of an emulated device, called by its model where it has one: what emulates it is of no
// interest to who plans.
func dryDevice(d config.Device) plan.DeviceProfile {
	profile := deviceProfile(emulatedProfile(d))
	if d.Model != "" {
		profile.Name = d.Model
	}
	return profile
}

// clusterMembers returns an emulated cluster's nodes, by number. Each knows its lines to all others, of many to as many as
// a profile can have.
func clusterMembers(c config.Cluster) []planner.Member {
	nodes := c.Nodes()
	members := make([]planner.Member, len(nodes))
	known := knownOffsets(len(nodes))
	for i, d := range nodes {
		members[i] = planner.Member{Peer: dryPeer(i), Profile: plan.Profile{Devices: []plan.DeviceProfile{dryDevice(d)}}}
		for _, offset := range known {
			j := (i + offset) % len(nodes)
			link := linkProfile(c, i, j)
			link.Peer = dryPeer(j)
			members[i].Profile.Links = append(members[i].Profile.Links, link)
		}
		members[i].Profile = members[i].Profile.Clamped()
	}
	return members
}

// knownOffsets returns how far the nodes are, in a circle of so many, to which each one knows its line: all of plan.MaxLinks+1
// or fewer; of more the nearest plan.MaxLinks/4 on each side, which are of the same site in files that list sites one after the
// other, and as many on each side that are spread over the rest. Who is known knows the line back.
func knownOffsets(nodes int) (offsets []int) {
	if nodes <= plan.MaxLinks+1 {
		for d := 1; d < nodes; d++ {
			offsets = append(offsets, d)
		}
		return offsets
	}
	const near = plan.MaxLinks / 4
	for d := 1; d <= near; d++ {
		offsets = append(offsets, d, nodes-d)
	}
	rest := (nodes-1)/2 - near // on each side
	far := min(near, rest)
	for k := 1; k <= far; k++ {
		d := near + k*rest/far
		offsets = append(offsets, d, nodes-d)
	}
	return offsets
}

// linkProfile returns the line from one node of a cluster to another as plans see it, without the peer.
func linkProfile(c config.Cluster, from, to int) plan.LinkProfile {
	forth, back := c.LinkAtFirst(from, to), c.LinkAtFirst(to, from)
	return plan.LinkProfile{
		BytesPerS: cmp.Or(int64(forth.Bandwidth), unlimitedBytesPerS),
		RTTNanos:  int64(forth.Latency + back.Latency), JitterNanos: int64(forth.Jitter+back.Jitter) / 2, // [0,Jitter) is half of it on average
	}
}

// Fleet returns the devices of a cluster file with the lines that it begins with, for runs that are simulated.
func Fleet(cluster string) (f simulate.Fleet, err error) {
	c, err := config.LoadCluster(cluster)
	if err != nil {
		return f, err
	}
	nodes := c.Nodes()
	for i, d := range nodes {
		m := simulate.Machine{Device: deviceProfile(emulatedProfile(d))}
		for j := range nodes {
			l := linkProfile(c, i, j)
			m.To = append(m.To, simulate.Link{BytesPerS: l.BytesPerS, RTTNanos: l.RTTNanos, JitterNanos: l.JitterNanos})
		}
		f.Machines = append(f.Machines, m)
	}
	return f, nil
}
