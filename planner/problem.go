package planner

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/founding"
	"pnode/planner/measure"
	"pnode/planner/plan"
)

// device is a measured device of a member, the smallest thing that gets a stage.
type device struct {
	peer    plan.PeerID
	node    string // as people call it
	name    string
	title   string // of the product, for people
	profile plan.DeviceProfile
}

// problem is the input as a search reads it: devices are numbers, sorted by peer and name. It never
// changes.
type problem struct {
	in      Input // its members sorted, those that can be
	members int   // of the input, all of them
	devices []device
	links   measure.Links
	// lines has the links between devices where these are few, by number from and to, table those of many.
	lines [][]cost.Link
	table measure.Table
	// widest and narrowest are the codecs that messages of the run fit with; settled is the one of the plans before, empty
	// where none was chosen.
	widest, narrowest plan.Codec
	settled           string
	// apart reports that replicas have local steps: their warm-up is over.
	apart bool
	// idle are members that no device of can be planned with. Those of them whose profile cannot be are not among
	// the input's members.
	idle  []idleMember
	index map[plan.WorkerID]int
	// prior are the devices of the plan in force in its order, -1 for one that is gone, and held what
	// nodes hold under it; both nil without one.
	prior []int
	held  map[peerLayer]bool
}

// idleMember is a member without a device in the problem, and why.
type idleMember struct{ label, why string }

type peerLayer struct {
	peer  plan.PeerID
	layer int
}

// label returns how the node of a peer is called in reasons and errors.
func (p *problem) label(peer plan.PeerID) string {
	for _, m := range p.in.Members {
		if m.Peer == peer {
			return m.label()
		}
	}
	return peer.Short()
}

// newProblem reads a checked input. A member that cannot be planned with is left out and fails nothing for the
// others. Errors wrap plan.ErrBadInput.
func newProblem(in Input) (*problem, error) {
	p := &problem{in: in, members: len(in.Members), index: map[plan.WorkerID]int{}}
	p.in.Members, p.apart = p.accept(in.Members), in.Run.Train.Sync.Local && in.Start >= in.Run.Train.Sync.WarmupEnd(in.Run.Train.Steps)
	p.links = LinksOf(p.in.Members).With(in.Links)
	if p.widest, p.narrowest = in.Run.CodecBounds(); in.Previous != nil {
		if err := p.keepCodec(in.Previous.Codec); err != nil {
			return nil, err
		}
	}
	for _, m := range p.in.Members {
		devices, before := slices.Clone(m.Profile.Devices), len(p.devices)
		slices.SortFunc(devices, func(a, b plan.DeviceProfile) int { return cmp.Compare(a.Name, b.Name) })
		for _, d := range devices {
			if d.Usable() && !m.Draining {
				p.index[plan.WorkerID{Peer: m.Peer, Device: d.Name}] = len(p.devices)
				p.devices = append(p.devices, device{m.Peer, m.label(), d.Name, plan.DeviceTitle(devices, d.Name), asSeen(d, p.ratio(m.Peer, d.Name))})
			}
		}
		switch {
		case len(p.devices) > before:
		case m.Draining:
			p.idle = append(p.idle, idleMember{m.label(), "it is leaving"})
		default:
			p.idle = append(p.idle, idleMember{m.label(), "it has no measured device with free memory"})
		}
	}
	if len(p.devices) > schedule.MaxWorkers {
		return nil, fmt.Errorf("%w: %d devices, at most %d are planned", plan.ErrBadInput, len(p.devices), schedule.MaxWorkers)
	}
	peers := make([]plan.PeerID, len(p.devices))
	for d := range peers {
		peers[d] = p.devices[d].peer
	}
	p.table = p.links.Table(peers)
	if n := len(p.devices); n <= settleUpTo {
		lines := make([][]cost.Link, n)
		for from := range lines {
			for to := range n {
				lines[from] = append(lines[from], p.link(from, to))
			}
		}
		p.lines = lines
	}
	if in.Previous == nil {
		return p, nil
	}
	return p.after(*in.Previous)
}

// ratio returns how long a device computes, in thousandths of what its profile says.
func (p *problem) ratio(peer plan.PeerID, device string) int64 {
	for _, r := range p.in.Ratios {
		if r.Worker == (plan.WorkerID{Peer: peer, Device: device}) {
			return max(measure.LeastRatio, min(r.Permille, measure.MostRatio))
		}
	}
	return measure.WholeRatio
}

// asSeen returns a profile with the rates of a device that computes for so many thousandths of the time that it says. Copies and
// links stay.
func asSeen(d plan.DeviceProfile, permille int64) plan.DeviceProfile {
	if permille == measure.WholeRatio {
		return d
	}
	for _, rate := range []*int64{&d.MatMulFLOPS, &d.AttentionFLOPS, &d.MatMulBF16FLOPS, &d.MatMulF16FLOPS, &d.MemoryBytesPerS} {
		if *rate > 0 {
			*rate = max(1, *rate/permille*measure.WholeRatio+*rate%permille*measure.WholeRatio/permille)
		}
	}
	d.CallNanos = min(d.CallNanos*permille/measure.WholeRatio, plan.MaxCallNanos)
	return d.Stretched(permille, measure.WholeRatio)
}

// keepCodec leaves no codec but the one that plans before have chosen; empty changes nothing. Errors wrap plan.ErrBadInput.
func (p *problem) keepCodec(name string) error {
	if name == "" {
		return nil
	}
	codec, err := plan.ParseCodec(name)
	if err != nil {
		return fmt.Errorf("%w: previous plan: %w", plan.ErrBadInput, err)
	}
	p.settled, p.in.Run.Train.Codec = name, plan.OneCodec(codec)
	p.widest, p.narrowest = codec, codec
	return nil
}

// accept returns the members that may be planned with, sorted by peer. The others are idle.
func (p *problem) accept(members []Member) (accepted []Member) {
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.Peer, b.Peer) })
	for i, m := range members {
		why := ""
		if err := m.Profile.Validate(m.Peer); err != nil {
			why = err.Error()
		}
		if i > 0 && members[i-1].Peer == m.Peer || i+1 < len(members) && members[i+1].Peer == m.Peer {
			why = "it is listed twice" // which of them is the member nobody knows
		}
		if m.Peer == "" {
			why = "it has no peer ID"
		}
		if why == "" {
			accepted = append(accepted, m)
			continue
		}
		p.idle = append(p.idle, idleMember{m.label(), strings.TrimPrefix(why, "planner: ")})
	}
	return accepted
}

// after returns the problem with another plan in force. Errors wrap plan.ErrBadInput.
func (p *problem) after(previous plan.Plan) (*problem, error) {
	groups, err := previous.ReplicaGroups()
	if err != nil {
		return nil, fmt.Errorf("%w: previous plan: %w", plan.ErrBadInput, err)
	}
	out := *p
	out.in.Previous, out.prior, out.held = &previous, nil, map[peerLayer]bool{}
	for _, group := range groups {
		for _, worker := range group.Workers {
			out.prior = append(out.prior, p.find(worker))
		}
	}
	for _, pipe := range previous.Replicas {
		for _, place := range pipe.Stages {
			for l := place.Layers.First; l < min(place.Layers.End, maxLayers); l++ {
				out.held[peerLayer{place.Peer, l}] = true
			}
		}
	}
	return &out, nil
}

// precision returns in which types the stages of a plan may store what products read. The first plan of a run decides: later
// ones have its storage.
func (p *problem) precision() founding.Precision {
	rule := p.in.Run.Train.Storage
	if rule.Auto && p.in.Previous != nil {
		rule = plan.Storage(p.in.Previous.Storage())
	}
	devices := make([]plan.DeviceProfile, len(p.devices))
	for i, d := range p.devices {
		devices[i] = d.profile
	}
	return founding.PrecisionOf(rule, devices, p.in.HalfCosts != nil)
}

// layers returns how many layers the model has.
func (p *problem) layers() int { return len(p.in.Costs) }

// find returns the number of a worker's device, -1 when it is not there.
func (p *problem) find(w plan.WorkerID) int {
	if d, ok := p.index[w]; ok {
		return d
	}
	return -1
}

// placed is find for a plan that needs the device. Errors wrap plan.ErrBadPlan.
func (p *problem) placed(w plan.WorkerID) (int, error) {
	if d, ok := p.index[w]; ok {
		return d, nil
	}
	return 0, fmt.Errorf("%w: %s of %s is not there", plan.ErrBadPlan, w.Device, p.label(w.Peer))
}

// name returns how a device is called in reasons and errors.
func (p *problem) name(device int) string {
	return plan.DeviceOf(p.devices[device].node, p.devices[device].title)
}

// LinksOf returns the links that members have measured, and what plans assume of all others.
func LinksOf(members []Member) measure.Links {
	probes := make([]measure.Probes, len(members))
	for i, m := range members {
		probes[i] = measure.Probes{From: m.Peer, Links: m.Profile.Links}
	}
	return measure.NewLinks(probes)
}

func (p *problem) link(from, to int) cost.Link {
	if p.lines != nil {
		return p.lines[from][to]
	}
	return p.table.Between(from, to)
}

// leastBytes returns the size of a tensor of so many bytes on a link in the narrowest codec.
func (p *problem) leastBytes(bytes int64) int64 {
	_, narrowest := p.in.Run.Train.Codec.Bounds()
	return narrowest.Bytes(cost.Elements(bytes), int64(p.in.Run.Model.Channels))
}

// leastMessage returns the bytes of the smallest tensor that crosses a boundary.
func (p *problem) leastMessage() int64 {
	if p.layers() == 1 {
		return 0
	}
	least := int64(math.MaxInt64)
	for _, c := range p.in.Costs[:p.layers()-1] {
		least = min(least, c.BoundaryBytes)
	}
	return p.leastBytes(least)
}

// movedBytes returns the bytes of parameters that devices hold and their nodes do not hold under the
// plan in force.
func (p *problem) movedBytes(rows cost.Rows) (moved int64) {
	for _, row := range rows {
		for _, s := range row {
			for l := s.First; l < s.End && p.held != nil; l++ {
				if !p.held[peerLayer{p.devices[s.Device].peer, l}] {
					moved += p.in.Costs[l].ParamBytes
				}
			}
		}
	}
	return moved
}

// moved returns the bytes of state that nodes of a plan's stages lack, and how long the lines take for them: each node
// fetches from those that have the layers under the plan in force, and no line carries two things at once.
func (p *problem) moved(rows cost.Rows) (bytes int64, took schedule.Nanos) {
	if p.in.Previous == nil {
		return 0, 0
	}
	from := map[int]plan.PeerID{}
	for _, pipe := range p.in.Previous.Replicas {
		for _, place := range pipe.Stages {
			for l := place.Layers.First; l < place.Layers.End; l++ {
				if _, known := from[l]; !known {
					from[l] = place.Peer
				}
			}
		}
	}
	in, out := map[plan.PeerID]schedule.Nanos{}, map[plan.PeerID]schedule.Nanos{}
	for _, row := range rows {
		for _, s := range row {
			to := p.devices[s.Device].peer
			for l := s.First; l < s.End; l++ {
				source, known := from[l]
				if !known || p.held[peerLayer{to, l}] {
					continue
				}
				link, _ := p.links.Between(source, to)
				size := p.stateBytes(plan.LayerRange{First: l, End: l + 1})
				each := cost.MulDiv(schedule.Nanos(min(size, mostTraffic)), 1e9, schedule.Nanos(max(link.BytesPerS, 1)))
				bytes += size
				in[to], out[source] = in[to]+each, out[source]+each
				took = max(took, in[to], out[source])
			}
		}
	}
	return bytes, took
}
