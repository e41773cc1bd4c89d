package simulate

import (
	"fmt"

	"pnode/planner"
	"pnode/planner/plan"
)

// Link is one direction of a line between two machines.
type Link struct{ BytesPerS, RTTNanos, JitterNanos int64 }

// Machine is one entry of a fleet.
type Machine struct {
	Device plan.DeviceProfile
	// To has the line to each machine of the fleet, and at its own place the one to another machine like it.
	To []Link
}

// Fleet has the machines that a run may get. Slot s is machine s modulo their number, so that a few stand for many.
type Fleet struct{ Machines []Machine }

// classes parts a fleet into machines that a plan cannot tell apart: equal devices, and equal lines to all.
type classes struct {
	fleet Fleet
	// of has the class of each machine, first a machine of each class.
	of, first []int
	// even reports that all lines are the same in both directions.
	even bool
}

func classesOf(f Fleet) (*classes, error) {
	c := &classes{fleet: f, even: true}
	if len(f.Machines) == 0 {
		return nil, fmt.Errorf("%w: a fleet without machines", ErrOptions)
	}
	for i, m := range f.Machines {
		if len(m.To) != len(f.Machines) {
			return nil, fmt.Errorf("%w: machine %d has %d lines, want %d", ErrOptions, i, len(m.To), len(f.Machines))
		}
		for j := range i {
			c.even = c.even && m.To[j] == f.Machines[j].To[i]
		}
	}
	for i := range f.Machines {
		class := len(c.first)
		for k, j := range c.first {
			if c.alike(i, j) {
				class = k
				break
			}
		}
		if class == len(c.first) {
			c.first = append(c.first, i)
		}
		c.of = append(c.of, class)
	}
	return c, nil
}

// alike reports whether two machines can take each other's place in any plan.
func (c *classes) alike(i, j int) bool {
	a, b := c.fleet.Machines[i], c.fleet.Machines[j]
	if a.Device != b.Device || a.To[j] != b.To[i] || a.To[i] != b.To[j] || a.To[j] != a.To[i] {
		return false
	}
	for k, m := range c.fleet.Machines {
		if k != i && k != j && (a.To[k] != b.To[k] || m.To[i] != m.To[j]) {
			return false
		}
	}
	return true
}

// class returns the class of a slot's machine.
func (c *classes) class(slot int) int { return c.of[slot%len(c.of)] }

// link returns the line from a machine of one class to one of another.
func (c *classes) link(from, to int) Link { return c.fleet.Machines[c.first[from]].To[c.first[to]] }

// member is the place of a machine in a planner's input: the class and a number within it.
type member struct{ class, number int }

// peer returns the name of a member; names sort by class and number.
func (m member) peer() plan.PeerID {
	return plan.PeerID(fmt.Sprintf("machine-%02d-%04d", m.class, m.number))
}

// members returns so many machines of each class, with their lines, and who is who.
func (c *classes) members(counts []int) (all []planner.Member, who map[plan.PeerID]member) {
	who = map[plan.PeerID]member{}
	var list []member
	for class, n := range counts {
		for number := range n {
			list = append(list, member{class, number})
		}
	}
	peers := make([]plan.PeerID, len(list))
	for i, m := range list {
		peers[i] = m.peer()
		who[peers[i]] = m
	}
	for i, m := range list {
		profile := plan.Profile{Devices: []plan.DeviceProfile{c.fleet.Machines[c.first[m.class]].Device}}
		for j, other := range list {
			if j == i || j < i && c.even { // of a line without a measurement the way back counts
				continue
			}
			l := c.link(m.class, other.class)
			profile.Links = append(profile.Links, plan.LinkProfile{Peer: peers[j], BytesPerS: l.BytesPerS, RTTNanos: l.RTTNanos, JitterNanos: l.JitterNanos})
		}
		all = append(all, planner.Member{Peer: peers[i], Profile: profile})
	}
	return all, who
}
