package config

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Cluster is a file that describes an emulated cluster: for `pnode train` one node process a device, at most MaxLocal;
// for `pnode plan` and `pnode simulate`, which start none, up to MaxNodes.
type Cluster struct {
	// Devices are given to the nodes in order, Count to each entry.
	Devices []ClusterDevice `yaml:"devices"`
	// Link is between any two nodes that Links does not name.
	Link  LinkShape     `yaml:"link"`
	Links []ClusterLink `yaml:"links"`
	// Seed decides losses and jitter.
	Seed uint64 `yaml:"seed"`
}

// ClusterDevice is a number of equal devices.
type ClusterDevice struct {
	Count  int `yaml:"count"` // 0 is 1
	Device     // its keys are on one level with count
}

// LinkShape is one direction of an emulated link. The zero value is a perfect one.
type LinkShape struct {
	// Bandwidth of the line; 0 is without limit.
	Bandwidth Rate `yaml:"bandwidth"`
	// Latency is one way; a round trip has it twice. Jitter adds an even spread of
	// [0,Jitter) to each packet.
	Latency Span `yaml:"latency"`
	Jitter  Span `yaml:"jitter"`
	// Loss is the share of packets that are lost.
	Loss Share `yaml:"loss"`
}

// ClusterLink is the link of some pairs of nodes, in both directions (Between) or in one
// (From and To). Of several that name a pair the last one counts whose time has come.
type ClusterLink struct {
	// Between are two sets of nodes: every pair of one of each.
	Between []Nodes `yaml:"between"`
	From    Nodes   `yaml:"from"`
	To      Nodes   `yaml:"to"`
	// After is when it begins, since the start of the node that sends.
	After     Moment `yaml:"after"`
	LinkShape        // its keys are on one level with these
}

// Nodes are the nodes of First to Last, in the order of Cluster.Devices; the zero value is
// none.
type Nodes struct {
	First, Last int
	given       bool
}

// Set reads a number, or a range such as 0-3.
func (n *Nodes) Set(text string) error {
	first, last, isRange := strings.Cut(text, "-")
	var err error
	out := Nodes{given: true}
	if out.First, err = strconv.Atoi(first); err == nil {
		out.Last = out.First
		if isRange {
			out.Last, err = strconv.Atoi(last)
		}
	}
	if err != nil || out.First < 0 || out.Last < out.First {
		return fmt.Errorf("%q: want a node's number from 0, or a range such as 0-3", text)
	}
	*n = out
	return nil
}

func (n Nodes) String() string {
	if n.First == n.Last {
		return strconv.Itoa(n.First)
	}
	return fmt.Sprintf("%d-%d", n.First, n.Last)
}

func (n Nodes) has(i int) bool { return n.given && n.First <= i && i <= n.Last }

// LoadCluster reads and checks a cluster file. The error wraps ErrInvalid.
func LoadCluster(path string) (Cluster, error) {
	return load[Cluster](path, "cluster file")
}

func (c Cluster) validate() error {
	for i, d := range c.Devices {
		if d.Count < 0 || d.Count > MaxNodes {
			return fmt.Errorf("devices[%d].count is %d: want 1 to %d", i, d.Count, MaxNodes)
		}
		if err := d.Device.validate(); err != nil {
			return fmt.Errorf("devices[%d].%w", i, err)
		}
	}
	nodes := len(c.Nodes())
	if nodes < 1 {
		return fmt.Errorf("devices are 0: want 1 to %d", MaxNodes)
	}
	if nodes > MaxNodes {
		return fmt.Errorf("devices are more than %[1]d: want 1 to %[1]d", MaxNodes)
	}
	for i, l := range c.Links {
		if err := l.validate(nodes); err != nil {
			return fmt.Errorf("links[%d]: %w", i, err)
		}
	}
	return nil
}

// validate checks that the entry names nodes that are there, in one way.
func (l ClusterLink) validate(nodes int) error {
	ends := l.Between
	switch directed := l.From.given || l.To.given; {
	case directed && len(l.Between) > 0:
		return fmt.Errorf("between and from or to: want either between for both directions, or from and to for one")
	case directed && !(l.From.given && l.To.given):
		return fmt.Errorf("from without to, or to without from: want both")
	case directed:
		ends = []Nodes{l.From, l.To}
	case len(l.Between) != 2:
		return fmt.Errorf("between has %d nodes: want two nodes or ranges, such as [0, 3] or [0-1, 2-3]", len(l.Between))
	}
	for _, n := range ends {
		if n.Last >= nodes {
			return fmt.Errorf("node %v: want 0 to %d, the cluster has %d devices", n, nodes-1, nodes)
		}
	}
	if ends[0] == ends[1] && ends[0].First == ends[0].Last {
		return fmt.Errorf("node %v has no link to itself: want two nodes", ends[0])
	}
	return nil
}

// Nodes returns the device of each node, of at most one more than MaxNodes.
func (c Cluster) Nodes() []Device {
	var all []Device
	for _, d := range c.Devices {
		for range max(0, min(cmp.Or(d.Count, 1), MaxNodes+1-len(all))) {
			all = append(all, d.Device)
		}
	}
	return all
}

// names says whether the entry describes the link from one node to another.
func (l ClusterLink) names(from, to int) bool {
	if len(l.Between) != 2 {
		return l.From.has(from) && l.To.has(to)
	}
	a, b := l.Between[0], l.Between[1]
	return a.has(from) && b.has(to) || b.has(from) && a.has(to)
}

// LinkAtFirst returns the link from one node to another when they start.
func (c Cluster) LinkAtFirst(from, to int) LinkShape {
	shape := c.Link
	for _, l := range c.Links {
		if l.After == 0 && l.names(from, to) {
			shape = l.LinkShape
		}
	}
	return shape
}

// Emulations returns the settings of the nodes that listen on the given addresses, by node.
func (c Cluster) Emulations(listen []string) []Emulation {
	var all []Emulation
	for i, device := range c.Nodes() {
		e := Emulation{Device: device, Link: c.Link, Seed: c.Seed + uint64(i)}
		for j, to := range listen {
			if j == i {
				continue
			}
			for _, l := range c.Links {
				if l.names(i, j) {
					e.Links = append(e.Links, AddressLink{To: to, After: l.After, LinkShape: l.LinkShape})
				}
			}
		}
		all = append(all, e)
	}
	return all
}
