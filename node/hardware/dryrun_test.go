package hardware

import (
	"os"
	"path/filepath"
	"testing"

	"pnode/node/config"
	"pnode/planner/plan"
)

// TestADryRunHasTheClustersMembers: a member for each device with what it is made to look like, and
// the links as they are at first, those without a limit as fast ones.
func TestADryRunHasTheClustersMembers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	const text = `devices:
  - {count: 2, model: big, matmul: 40GFLOP/s, bandwidth: 20GB/s, memory: 4GB}
  - {matmul: 10GFLOP/s, attention: 5GFLOP/s, bandwidth: 10GB/s, memory: 100MB, copies: 2GB/s, host_memory: 300MB}
link: {latency: 1ms}
links:
  - {from: 0, to: 2, bandwidth: 80Mbit/s, latency: 20ms, jitter: 4ms}
  - {from: 2, to: 0, latency: 1ms, jitter: 2ms}
  - {between: [1, 2], after: 10s, bandwidth: 1Mbit/s}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	members, err := DryRun(t.Context(), path, 1, Options{})
	if err != nil || len(members) != 3 {
		t.Fatalf("%d members, %v", len(members), err)
	}
	last := members[2].Profile.Devices[0]
	if want := (plan.DeviceProfile{Name: "cpu", MatMulFLOPS: 10e9, AttentionFLOPS: 5e9, MemoryBytesPerS: 10e9, MemoryFreeBytes: 100e6, CopyBytesPerS: 2e9, HostFreeBytes: 300e6}); last != want {
		t.Errorf("device %+v, want %+v", last, want)
	}
	if first := members[0].Profile.Devices[0]; first.Name != "big" || first.Model != "big" {
		t.Errorf("device %+v, want it called by its model", first)
	}
	slow := members[0].Profile.Links[1]
	if want := (plan.LinkProfile{Peer: "node-2", BytesPerS: 10e6, RTTNanos: 21e6, JitterNanos: 3e6}); slow != want {
		t.Errorf("link %+v, want %+v", slow, want)
	}
	for _, link := range []plan.LinkProfile{members[1].Profile.Links[1], members[2].Profile.Links[1]} {
		if link.BytesPerS != unlimitedBytesPerS || link.RTTNanos != 2e6 {
			t.Errorf("link %+v, want the one between any two", link)
		}
	}
}

// TestADryRunEmulatesWithoutMeasuring: like the emulation that is named, without measuring.
func TestADryRunEmulatesWithoutMeasuring(t *testing.T) {
	path := filepath.Join(t.TempDir(), "e.yaml")
	if err := os.WriteFile(path, []byte("device: {matmul: 10GFLOP/s, bandwidth: 10GB/s, memory: 1GB}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := OptionsOf(config.Config{Emulate: path})
	if err != nil {
		t.Fatal(err)
	}
	members, err := DryRun(t.Context(), "", 3, o)
	if err != nil || len(members) != 3 || members[2].Peer != "node-2" || members[2].Profile.Devices[0].MemoryFreeBytes != 1e9 {
		t.Errorf("members %+v, error %v", members, err)
	}
}

// TestNodesOfLargeClustersKnowAsManyLinesAsProfilesHave: both ends of a line know it, and the planner takes the profiles.
func TestNodesOfLargeClustersKnowAsManyLinesAsProfilesHave(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{1, 2, 3, plan.MaxLinks, plan.MaxLinks + 1, plan.MaxLinks + 2, 300, 513, config.MaxNodes} {
		known := knownOffsets(nodes)
		if len(known) > plan.MaxLinks || len(known) < min(nodes-1, plan.MaxLinks-2) {
			t.Errorf("%d nodes: each knows %d lines", nodes, len(known))
		}
		seen := map[int]bool{0: true}
		for _, d := range known {
			if d < 1 || d >= nodes || seen[d] {
				t.Errorf("%d nodes: offset %d is of no other node, or stands twice", nodes, d)
			}
			seen[d] = true
		}
		for _, d := range known {
			if !seen[nodes-d] {
				t.Errorf("%d nodes: offset %d is known, the way back is not", nodes, d)
			}
		}
	}
	c := config.Cluster{Devices: []config.ClusterDevice{{Count: config.MaxNodes, Device: config.Device{MatMul: 1e12, Bandwidth: 1e11, Memory: 1 << 34}}}}
	for _, m := range clusterMembers(c) {
		if err := m.Profile.Validate(m.Peer); err != nil {
			t.Fatalf("%s: %v", m.Peer, err)
		}
	}
}
