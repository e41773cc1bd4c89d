package planner

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/plan"
)

// Sentinel errors of Make, besides those of package plan.
var (
	// ErrNotEnoughNodes is wrapped when more devices are asked for than there are.
	ErrNotEnoughNodes = errors.New("planner: not enough nodes")
	// ErrNoFit is wrapped when the model does not fit into the devices' memory.
	ErrNoFit = errors.New("planner: model does not fit")
)

// Member is a node that may be planned with.
type Member struct {
	Peer plan.PeerID
	// Name is the machine's, for people; empty: the end of the peer ID stands for it.
	Name    string
	Profile plan.Profile
	// Claim says for people how Profile differs from what the member claims; empty where it does not.
	Claim string
	// Draining members are about to leave: they get neither a stage nor a copy.
	Draining bool
	// Ties are what it may be lost together with, sorted: see package holders.
	Ties []string
}

// label returns how the node is called in reasons and errors.
func (m Member) label() string { return cmp.Or(m.Name, m.Peer.Short()) }

// Devices counts what the member could compute on: none where its profile cannot be.
func (m Member) Devices() (n int) {
	if m.Profile.Validate(m.Peer) != nil {
		return 0
	}
	for _, d := range m.Profile.Devices {
		if d.Usable() {
			n++
		}
	}
	return n
}

// Input is all that a plan depends on. The order of the members does not matter.
type Input struct {
	Run plan.RunSpec
	// Costs holds the model's layers for one micro-batch in float32 storage, HalfCosts in BF16 or F16
	// storage, which cost the same; nil where the run has neither.
	Costs, HalfCosts []model.LayerCost
	// NodeBytes is the memory of a node's process besides its stages.
	NodeBytes  int64
	Members    []Member
	Start      plan.Step
	Generation plan.Generation
	// Links is what steps that were run showed of links, newer than the members' profiles.
	Links []MeasuredLink
	// Previous is the plan in force, nil for none: of nearly equal plans the one that
	// moves the least state from it is taken.
	Previous *plan.Plan
}

// InputOf returns the input of a run's first plan, without members.
func InputOf(run plan.RunSpec) Input {
	in := Input{Run: run, Costs: run.Model.Costs(run.Train.MicroBatch, model.StorageF32), Generation: 1}
	if run.Train.Storage.Halves() {
		in.HalfCosts = run.Model.Costs(run.Train.MicroBatch, model.StorageBF16)
	}
	return in
}

// Bounds of what is planned.
const (
	maxLayers  = 4096
	maxMembers = 4096
	maxMicros  = 1 << 20
)

func (in Input) check() error {
	t := in.Run.Train
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: generation %d: %s", plan.ErrBadInput, in.Generation, fmt.Sprintf(format, args...))
	}
	switch layers := len(in.Costs); {
	case in.Generation == 0:
		return bad("generations count from 1")
	case layers < 1 || layers > maxLayers:
		return bad("a model of %d layers, want 1 to %d", layers, maxLayers)
	case len(in.Members) > maxMembers:
		return bad("%d members, at most %d are planned", len(in.Members), maxMembers)
	case t.Micros < 1 || t.Micros > maxMicros:
		return bad("%d micro-batches a step, want 1 to %d", t.Micros, maxMicros)
	case t.Replicas < 0 || t.Stages < 0:
		return bad("%d replicas of %d stages, want 0 (auto) or more", t.Replicas, t.Stages)
	case t.Replicas > t.Micros:
		return bad("%s for %d replicas: each replica needs at least one; raise the micro-batches or lower the replicas", plan.Count(t.Micros, "micro-batch"), t.Replicas)
	case t.SumGroups < 0 || t.SumGroups > t.Micros:
		return bad("%d sum groups, want 1 to %d, the micro-batches of a step (0: one each)", t.SumGroups, t.Micros)
	case t.Replicas > t.Sums().Groups:
		return bad("%s of micro-batches for %d replicas: each replica takes whole ones; raise sum_groups or lower the replicas", plan.Count(t.Sums().Groups, "group"), t.Replicas)
	case t.Stages > layers:
		return bad("%d stages for %d layers: each stage needs at least one; lower the stages", t.Stages, layers)
	}
	if n := len(in.HalfCosts); n != len(in.Costs) && (n > 0 || in.Run.Train.Storage.Always(model.StorageBF16, model.StorageF16)) {
		return bad("costs of %d layers in halves, want %d", n, len(in.Costs))
	}
	for _, costs := range [][]model.LayerCost{in.Costs, in.HalfCosts} {
		for l, k := range costs {
			if why := checkCost(k); why != "" {
				return bad("layer %d %s", l, why)
			}
		}
	}
	return nil
}

// checkCost returns what is wrong with a layer's cost, empty for nothing.
func checkCost(k model.LayerCost) string {
	const most = 1 << 48 // bytes of a layer; sums over maxLayers stay within 60 bits
	if min(k.ForwardFLOPs, k.InputFLOPs, k.WeightFLOPs, k.ParamBytes, k.ParamBytes-k.FrozenBytes, k.FrozenBytes, k.CopyBytes, k.SavedBytes, k.BoundaryBytes, k.PassBytes-k.PassHalfBytes, k.PassHalfBytes, k.TableBytes) < 0 ||
		max(k.ParamBytes, k.CopyBytes, k.SavedBytes, k.BoundaryBytes, k.PassBytes, k.TableBytes) > most {
		return fmt.Sprintf("costs %+v, want 0 or more, and at most %d bytes", k, int64(most))
	}
	if min(k.ForwardAttention, k.ForwardFLOPs-k.ForwardAttention, k.InputAttention, k.InputFLOPs-k.InputAttention) < 0 {
		return fmt.Sprintf("costs %+v, want the FLOPs of attention within those of the pass", k)
	}
	for level, lean := range k.Lean {
		if min(lean.SavedBytes, lean.PassBytes, lean.RecomputeAttention, lean.RecomputeFLOPs-lean.RecomputeAttention) < 0 || lean.SavedBytes > k.SavedBytes || lean.PassBytes > most {
			return fmt.Sprintf("costs %+v when it recomputes %v, want 0 or more, and at most what it saves otherwise, %d bytes", lean, model.Recompute(level), k.SavedBytes)
		}
	}
	return ""
}

// device is a measured device of a member, the smallest thing that gets a stage.
type device struct {
	peer    plan.PeerID
	node    string // as people call it
	name    string
	profile plan.DeviceProfile
}

// model returns what people call such a device.
func (d device) model() string { return cmp.Or(d.profile.Model, d.name) }

// problem is the input as a search reads it: devices are numbers, sorted by peer and name. It never
// changes.
type problem struct {
	in      Input // its members sorted, those that can be
	members int   // of the input, all of them
	devices []device
	links   links
	// widest and narrowest are the codecs that messages of the run fit with; settled is the one of the plans before, empty
	// where none was chosen.
	widest, narrowest plan.Codec
	settled           string
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
	p.in.Members = p.accept(in.Members)
	p.links = newLinks(p.in.Members).with(in.Links)
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
				p.devices = append(p.devices, device{m.Peer, m.label(), d.Name, d})
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
	if in.Previous == nil {
		return p, nil
	}
	return p.after(*in.Previous)
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

// name returns how a device is called in reasons.
func (p *problem) name(device int) string {
	return p.devices[device].node + " " + p.devices[device].name
}

func (p *problem) link(from, to int) cost.Link {
	link, _ := p.links.between(p.devices[from].peer, p.devices[to].peer)
	return link
}

// leastBytes returns the size of a tensor of so many bytes on a link in the narrowest codec.
func (p *problem) leastBytes(bytes int64) int64 {
	_, narrowest := p.in.Run.Train.Codec.Bounds()
	return narrowest.Bytes(cost.Elements(bytes))
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
