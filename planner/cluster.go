package planner

import (
	"cmp"
	"fmt"
	"slices"

	"pnode/planner/plan"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/layout"
	"pnode/planner/memory"
	"pnode/planner/order"
)

// unit is a device of a member, the smallest thing that gets a stage.
type unit struct {
	peer   plan.PeerID
	node   string // as people call it
	device string
	// profile is what was measured of the device.
	profile plan.DeviceProfile
	*layout.Unit
	// lean are by level of recomputation prefixes of times, made when they are asked for.
	lean [][]schedule.Nanos
}

// cluster is the input in the form in which plans are computed: units sorted by peer and
// device, everything about layers as prefix sums.
type cluster struct {
	in    Input
	units []unit
	links links
	// site is the units with what they take, as far as numbers tell.
	site layout.Site
	// store is how the units' stages store.
	store storing
	// sharers are the clusters that differ in alone which of the optimizer state is in parts or
	// in host memory, whole is the one where it is all on the units.
	sharers map[string]*cluster
	whole   *cluster
	// asked is the cluster with the ordering that the run asks for, byOrder are those of
	// others, by schedule.
	asked    *cluster
	byOrder  map[string]*cluster
	unusable []plan.Reason
	order    ordering
	// orders is what the order of units depends on.
	orders order.Units
	// held is what nodes hold under the previous plan.
	held  map[peerLayer]bool
	index map[[2]string]int // (peer, device) -> unit
	tried map[string]bool   // shapes and orders that the search has been through
	// programs are what has been made of plans so far.
	programs map[string]schedule.Schedule
}

func (c *cluster) layers() int { return c.books().Layers() }

func (c *cluster) books() *memory.Books { return c.site.Books }

// ledger is a unit's.
func (c *cluster) ledger(unit int) *memory.Ledger { return c.site.Ledger(unit) }

func newCluster(in Input, store storing) (*cluster, error) {
	members := slices.Clone(in.Members)
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.Peer, b.Peer) })
	c := &cluster{
		in: in, store: store, links: newLinks(members).with(in.Links), held: heldLayers(in.Previous),
		sharers: map[string]*cluster{}, byOrder: map[string]*cluster{}, programs: map[string]schedule.Schedule{},
	}
	c.whole, c.asked = c, c
	c.in.Members = members
	var err error
	if c.order, err = newOrdering(in.Run.Train.Schedule, in.Run.Model); err != nil {
		return nil, err
	}
	c.openSite()
	for i, m := range members {
		if m.Peer == "" || (i > 0 && m.Peer == members[i-1].Peer) {
			return nil, fmt.Errorf("%w: member %q is empty or listed twice", plan.ErrBadInput, m.Peer)
		}
		if err := c.addDevices(m); err != nil {
			return nil, err
		}
	}
	if len(c.units) > schedule.MaxWorkers {
		return nil, fmt.Errorf("%w: %d devices, at most %d are planned", plan.ErrBadInput, len(c.units), schedule.MaxWorkers)
	}
	c.index = make(map[[2]string]int, len(c.units))
	for u := range c.units {
		c.index[[2]string{string(c.units[u].peer), c.units[u].device}] = u
	}
	if in.Previous != nil {
		lanes, err := in.Previous.ReplicaGroups()
		if err != nil {
			return nil, fmt.Errorf("%w: previous plan: %w", plan.ErrBadInput, err)
		}
		for _, lane := range lanes {
			for _, seat := range lane.Workers {
				c.orders.Prior = append(c.orders.Prior, c.find(seat.Peer, seat.Device))
			}
		}
	}
	c.knowUnits()
	return c, nil
}

// addDevices adds a member's measured devices, or the reason why it has none.
func (c *cluster) addDevices(m Member) error {
	if m.Draining {
		c.unusable = append(c.unusable, plan.Reason{Kind: plan.ReasonLeftOut, Text: fmt.Sprintf("%s gets no stage: it is leaving", m.label())})
		return nil
	}
	devices := slices.Clone(m.Profile.Devices)
	slices.SortFunc(devices, func(a, b plan.DeviceProfile) int { return cmp.Compare(a.Name, b.Name) })
	used := 0
	for i, d := range devices {
		if d.Name == "" || (i > 0 && d.Name == devices[i-1].Name) {
			return fmt.Errorf("%w: member %s: device %q is empty or listed twice", plan.ErrBadInput, m.Peer, d.Name)
		}
		if d.MatMulFLOPS <= 0 || d.MemoryBytesPerS <= 0 || d.MemoryFreeBytes <= 0 {
			continue
		}
		used++
		u, err := c.newUnit(m, d)
		if err != nil {
			return err
		}
		c.units, c.site.Units = append(c.units, u), append(c.site.Units, u.Unit)
	}
	if used == 0 {
		c.unusable = append(c.unusable, plan.Reason{Kind: plan.ReasonLeftOut, Text: fmt.Sprintf("%s gets no stage: it has no measured device with free memory", m.label())})
	}
	return nil
}

func (c *cluster) newUnit(m Member, d plan.DeviceProfile) (unit, error) {
	u := unit{peer: m.Peer, node: m.label(), device: d.Name, profile: d, Unit: &layout.Unit{Storage: c.store(m.Peer, d), CopyBytesPerS: max(0, d.CopyBytesPerS), HostBytes: max(0, d.HostFreeBytes)}}
	u.Speed = cost.SpeedOf(d, u.Storage)
	l, err := c.books().Open(u.Storage)
	if err != nil {
		return u, fmt.Errorf("%w: %w", plan.ErrBadInput, err)
	}
	u.FreeBytes = max(0, d.MemoryFreeBytes-l.Pass())
	u.Times, u.Micro = make([]cost.LayerTime, c.layers()+1), make([]schedule.Nanos, c.layers()+1)
	for i, k := range l.Costs() {
		u.Times[i+1] = u.Times[i].Add(u.Speed.Layer(k))
		u.Micro[i+1] = u.Times[i+1].Micro()
	}
	return u, nil
}

// openSite adds up what layers take, for units that come.
func (c *cluster) openSite() {
	run := c.in.Run
	m := memory.Model{
		Costs: c.in.Costs, HalfCosts: c.in.HalfCosts, NodeBytes: c.in.NodeBytes,
		Tied: run.Model.TiedLen(), TiedGrad: run.Model.TiedGradLen(),
	}
	m.Level, m.Fixed = run.Train.Recompute.Level()
	if run.Train.DocumentMask {
		m.MaskBytes = 4 * int64(run.Train.MicroBatch) * int64(run.Model.Context)
	}
	c.site = layout.New(memory.New(m), func(from, to int) cost.Link { return c.link(from, to) })
	c.site.Micros, c.site.MostSimulated = run.Train.Micros, simulateActions
	if run.Model.Validate() == nil && run.Model.Layers() == c.layers() {
		c.site.Stack = c.stackMemory
	}
}

// stackMemory is what a stage with so many slots allocates.
func (c *cluster) stackMemory(k layout.Cell, slots int) (model.Memory, error) {
	place := plan.Placement{Layers: plan.LayerRange{First: k.First, End: k.End}, Recompute: plan.JoinLevels(k.Levels), Ahead: k.Ahead, Offload: k.Offload, Storage: c.units[k.Unit].Storage}
	return c.in.Run.Stack(place, k.Shares, schedule.Use{Slots: slots, Split: k.Use.Split}).Memory()
}

// find is the index of a device, -1 when it is not there.
func (c *cluster) find(peer plan.PeerID, device string) int {
	if u, ok := c.index[[2]string{string(peer), device}]; ok {
		return u
	}
	return -1
}
