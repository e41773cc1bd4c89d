package local

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pnode/node/config"
)

const testCluster = `
devices:
  - {count: 2, model: fast, matmul: 20GFLOP/s, bandwidth: 4GB/s, memory: 2GB}
link: {latency: 1ms}
links: [{from: 1, to: 0, latency: 20ms}]
`

// TestClusterNodes: each node gets a description in which the others have the addresses
// that they listen on; resumed, the nodes look the same.
func TestClusterNodes(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(file, []byte(testCluster), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ := supervise(t, "short", 2, func(o *Options) { o.Config.Cluster = file })
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, latency := range []string{"1ms", "20ms"} {
		a := args(t, s.nodeDir(i))
		e, err := config.LoadEmulation(after(a, "--emulate"))
		if err != nil {
			t.Fatalf("node %d: %v in %q", i, err, a)
		}
		if e.Device.Model != "fast" {
			t.Errorf("node %d is %+v", i, e.Device)
		}
		shape := e.Link
		for _, l := range e.Links {
			if l.To == s.listens[1-i] {
				shape = l.LinkShape
			}
		}
		if got := shape.Latency.String(); got != latency {
			t.Errorf("node %d is %s away from the other, want %s", i, got, latency)
		}
	}
	if got := after(args(t, s.nodeDir(1)), "--listen"); got != s.listens[1] {
		t.Errorf("node 1 listens on %s, the others know it by %s", got, s.listens[1])
	}
	c, err := config.Load(filepath.Join(s.options.Dir, config.RunFile))
	if err != nil || c.Listen != s.listens[0] || c.Cluster != "" {
		t.Errorf("run file: listen %q, cluster %q, %v", c.Listen, c.Cluster, err)
	}
	resumed, _ := supervise(t, "short", 2, func(o *Options) { o.Dir, o.Config.Resume = s.options.Dir, true })
	if err := resumed.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if a := args(t, s.nodeDir(i)); !slices.Contains(a, "--emulate") || slices.Contains(a, "--config") {
			t.Errorf("node %d resumed: %q", i, a)
		}
	}
}

// TestFreeAddresses: as many as asked for, all different, and none that an outgoing connection may get.
func TestFreeAddresses(t *testing.T) {
	const nodes = 64
	addrs, err := freeAddresses(nodes)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Sort(addrs); len(slices.Compact(slices.Clone(addrs))) != nodes {
		t.Errorf("%d addresses, some of them twice: %v", len(addrs), addrs)
	}
	for _, a := range addrs {
		if at := netip.MustParseAddrPort(a); at.Port() < firstPort || int(at.Port()) >= firstPort+portCount {
			t.Errorf("%s may be taken by an outgoing connection", a)
		}
	}
}
