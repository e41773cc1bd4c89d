package planner

import (
	"cmp"
	"fmt"
	"slices"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
)

// trainingBytes is what a parameter's four bytes take in training: parameter, gradient
// and AdamW's two moments, all float32.
const trainingBytes = 4

// unit is a device of a member, the smallest thing that gets a stage.
type unit struct {
	peer   PeerID
	device string
	free   int64
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
	// params, fixed, saved are prefixes in bytes: parameters, what they take in
	// training, and what a micro-batch in flight keeps.
	params, fixed, saved []int64
	boundary             []int64 // by layer
	// parts are of the optimizer state; sharers are the clusters that differ in them alone,
	// whole is the one without.
	parts   inParts
	sharers map[string]*cluster
	whole   *cluster
	// asked is the cluster with the ordering that the run asks for, byOrder are those of
	// others, by schedule.
	asked           *cluster
	byOrder         map[string]*cluster
	activationBytes int64 // that cross between stages for a micro-batch, one way
	slotBytes       int64 // of each micro-batch in flight, whatever the layers
	passBytes       int64 // of each stage, whatever the layers and the slots, with the node's own
	lean            []leanLayers
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

func newCluster(in Input) (*cluster, error) {
	members := slices.Clone(in.Members)
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.Peer, b.Peer) })
	c := &cluster{in: in, links: newLinks(members).with(in.Links), held: heldLayers(in.Previous), sharers: map[string]*cluster{}, byOrder: map[string]*cluster{}, programs: map[string]schedule.Schedule{}, stacks: map[stackKey]stackSize{}}
	c.whole, c.asked = c, c
	c.in.Members = members
	c.in.Costs = fixedCosts(in)
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

func (c *cluster) sumLayers() {
	n := len(c.in.Costs)
	c.sumFixed()
	c.params, c.saved = make([]int64, n+1), make([]int64, n+1)
	c.boundary = make([]int64, n)
	var pass, halves, tables int64
	for l, k := range c.in.Costs {
		c.params[l+1] = c.params[l] + k.ParamBytes
		c.saved[l+1] = c.saved[l] + k.SavedBytes
		c.boundary[l] = k.BoundaryBytes
		c.activationBytes = max(c.activationBytes, k.BoundaryBytes)
		pass, halves = max(pass, k.PassBytes-k.PassHalfBytes), max(halves, k.PassHalfBytes)
		tables = max(tables, k.TableBytes)
	}
	// The passes of all layers share what one needs, and two gradients of the stream.
	pass += 2 * c.activationBytes
	c.lean = c.leanLevels(pass + halves)
	c.passBytes = max(0, c.in.NodeBytes) + pass + halves + tables
	// A slot also holds the stage's input, and the gradients of input and output.
	c.slotBytes = 3 * c.activationBytes
	if run := c.in.Run; run.Train.DocumentMask { // and where documents begin
		c.slotBytes += 4 * int64(run.Train.MicroBatch) * int64(run.Model.Context)
	}
}

// sumFixed adds up what layers take in training.
func (c *cluster) sumFixed() {
	c.fixed = make([]int64, len(c.in.Costs)+1)
	for l, k := range c.in.Costs {
		trained := k.ParamBytes - k.FrozenBytes
		c.fixed[l+1] = c.fixed[l] + k.ParamBytes + (trainingBytes-1-momentVectors)*trained + c.momentBytes(l) + k.CopyBytes
	}
}

// fixedFor are the prefixes of what layers take in a pipeline of so many stages. One stage
// alone has both ends of a tied embedding and holds it, with its moments, once.
func (c *cluster) fixedFor(stages int) []int64 {
	if stages > 1 {
		return c.fixed
	}
	whole := slices.Clone(c.fixed)
	whole[c.layers()] = c.fixedIn(0, c.layers())
	return whole
}

// fixedIn is what the layers [first,end) of one stage take.
func (c *cluster) fixedIn(first, end int) int64 {
	fixed := c.fixed[end] - c.fixed[first]
	if first == 0 && end == c.layers() {
		// Parameters and moments are there once, the gradient of each end is not.
		tied, trained := int64(c.in.Run.Model.TiedLen()), int64(c.in.Run.Model.TiedGradLen())
		fixed -= 4*tied + momentVectors*4*trained/int64(c.shares(0))
		if c.in.Run.Train.Storage == model.StorageBF16 {
			fixed -= 2 * tied
		}
	}
	return fixed
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
		c.units = append(c.units, c.newUnit(m.Peer, d))
	}
	if used == 0 {
		c.unusable = append(c.unusable, Reason{Kind: LeftOut, Text: fmt.Sprintf("%s gets no stage: it has no measured device with free memory", m.Peer.Short())})
	}
	return nil
}

func (c *cluster) newUnit(peer PeerID, d DeviceProfile) unit {
	speed := cost.Device{MatMulFLOPS: d.MatMulFLOPS, MemoryBytesPerS: d.MemoryBytesPerS}
	u := unit{
		peer: peer, device: d.Name, speed: speed, free: max(0, d.MemoryFreeBytes-c.passBytes),
		times: make([]cost.LayerTime, c.layers()+1), micro: make([]schedule.Nanos, c.layers()+1),
	}
	for l, k := range c.in.Costs {
		u.times[l+1] = u.times[l].Add(speed.Layer(k))
		u.micro[l+1] = u.times[l+1].Micro()
	}
	return u
}

// find is the index of a device, -1 when it is not there.
func (c *cluster) find(peer PeerID, device string) int {
	if u, ok := c.index[[2]string{string(peer), device}]; ok {
		return u
	}
	return -1
}
