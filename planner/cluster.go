package planner

import (
	"cmp"
	"fmt"
	"slices"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
)

// unit is a device of a member, the smallest thing that gets a stage.
type unit struct {
	peer   PeerID
	device string
	free   int64
	// copies is the rate of copies each way, host the memory of its node for what it keeps off
	// the device; 0 where it keeps nothing there.
	copies, host int64
	// profile is what was measured of the device, storage how its stages store what products read.
	profile DeviceProfile
	storage model.Storage
	// times, micro are prefixes over layers: what a stage's layers take.
	times []cost.LayerTime
	micro []schedule.Nanos
	speed cost.Device
}

// whole is what the whole model takes on the device per micro-batch.
func (u unit) whole() schedule.Nanos { return max(1, u.micro[len(u.micro)-1]) }

// cluster is the input in the form in which plans are computed: units sorted by peer and
// device, everything about layers as prefix sums.
type cluster struct {
	in    Input
	units []unit
	links links
	// store is how the units' stages store, ledgers are by storage what layers take in it; nil
	// where no unit has it.
	store   storing
	ledgers []*ledger
	// params is a prefix in bytes, and moments, of the optimizer's state; boundary is by layer.
	params, moments, boundary []int64
	// parts are of the optimizer state, away are the units that keep it in host memory, nil for
	// none; sharers are the clusters that differ in these alone, whole is the one without.
	parts   inParts
	away    []bool
	sharers map[string]*cluster
	whole   *cluster
	// asked is the cluster with the ordering that the run asks for, byOrder are those of
	// others, by schedule.
	asked           *cluster
	byOrder         map[string]*cluster
	activationBytes int64 // that cross between stages for a micro-batch, one way
	slotBytes       int64 // of each micro-batch in flight, whatever the layers
	unusable        []Reason
	order           ordering
	// Of the previous plan: what nodes hold, and its units in order, -1 for those gone.
	held  map[peerLayer]bool
	prior []int
	index map[[2]string]int // (peer, device) -> unit
	tried map[string]bool   // shapes and orders that the search has been through
	// programs and stacks are what has been made of plans and measured of stages so far.
	programs map[string]schedule.Schedule
	stacks   map[stackKey]stackSize
	// simulated counts the actions that the search has simulated.
	simulated int
	// near[u][v] is what a micro-batch's activation and gradient take between units.
	near [][]schedule.Nanos
}

func (c *cluster) layers() int { return len(c.boundary) }

func newCluster(in Input, store storing) (*cluster, error) {
	members := slices.Clone(in.Members)
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.Peer, b.Peer) })
	c := &cluster{in: in, store: store, ledgers: make([]*ledger, len(model.StorageNames())), links: newLinks(members).with(in.Links), held: heldLayers(in.Previous), sharers: map[string]*cluster{}, byOrder: map[string]*cluster{}, programs: map[string]schedule.Schedule{}, stacks: map[stackKey]stackSize{}}
	c.whole, c.asked = c, c
	c.in.Members = members
	var err error
	if c.order, err = newOrdering(in.Run.Train.Schedule, in.Run.Model); err != nil {
		return nil, err
	}
	c.sumLayers()
	for i, m := range members {
		if m.Peer == "" || (i > 0 && m.Peer == members[i-1].Peer) {
			return nil, fmt.Errorf("%w: member %q is empty or listed twice", ErrBadInput, m.Peer)
		}
		if err := c.addDevices(m); err != nil {
			return nil, err
		}
	}
	if len(c.units) > schedule.MaxWorkers {
		return nil, fmt.Errorf("%w: %d devices, at most %d are planned", ErrBadInput, len(c.units), schedule.MaxWorkers)
	}
	c.index = make(map[[2]string]int, len(c.units))
	for u := range c.units {
		c.index[[2]string{string(c.units[u].peer), c.units[u].device}] = u
	}
	if in.Previous != nil {
		lanes, err := in.Previous.Lanes()
		if err != nil {
			return nil, fmt.Errorf("%w: previous plan: %w", ErrBadInput, err)
		}
		for _, lane := range lanes {
			for _, seat := range lane.Seats {
				c.prior = append(c.prior, c.find(seat.Peer, seat.Device))
			}
		}
	}
	c.measureDistances()
	return c, nil
}

// addDevices adds a member's measured devices, or the reason why it has none.
func (c *cluster) addDevices(m Member) error {
	if m.Draining {
		c.unusable = append(c.unusable, Reason{Kind: LeftOut, Text: fmt.Sprintf("%s gets no stage: it is leaving", m.Peer.Short())})
		return nil
	}
	devices := slices.Clone(m.Profile.Devices)
	slices.SortFunc(devices, func(a, b DeviceProfile) int { return cmp.Compare(a.Name, b.Name) })
	used := 0
	for i, d := range devices {
		if d.Name == "" || (i > 0 && d.Name == devices[i-1].Name) {
			return fmt.Errorf("%w: member %s: device %q is empty or listed twice", ErrBadInput, m.Peer, d.Name)
		}
		if d.MatMulFLOPS <= 0 || d.MemoryBytesPerS <= 0 || d.MemoryFreeBytes <= 0 {
			continue
		}
		used++
		u, err := c.newUnit(m.Peer, d)
		if err != nil {
			return err
		}
		c.units = append(c.units, u)
	}
	if used == 0 {
		c.unusable = append(c.unusable, Reason{Kind: LeftOut, Text: fmt.Sprintf("%s gets no stage: it has no measured device with free memory", m.Peer.Short())})
	}
	return nil
}

func (c *cluster) newUnit(peer PeerID, d DeviceProfile) (unit, error) {
	u := unit{peer: peer, device: d.Name, profile: d, storage: c.store(peer, d), copies: max(0, d.CopyBytesPerS), host: max(0, d.HostFreeBytes)}
	u.speed = d.Speed(u.storage)
	l, err := c.openLedger(u.storage)
	if err != nil {
		return u, err
	}
	u.free = max(0, d.MemoryFreeBytes-l.passBytes)
	u.times, u.micro = make([]cost.LayerTime, c.layers()+1), make([]schedule.Nanos, c.layers()+1)
	for i, k := range l.costs {
		u.times[i+1] = u.times[i].Add(u.speed.Layer(k))
		u.micro[i+1] = u.times[i+1].Micro()
	}
	return u, nil
}

// find is the index of a device, -1 when it is not there.
func (c *cluster) find(peer PeerID, device string) int {
	if u, ok := c.index[[2]string{string(peer), device}]; ok {
		return u
	}
	return -1
}
