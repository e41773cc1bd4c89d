package plan

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
)

// Stage, Micro and Replica are declared by the schedule and used under these names
// everywhere else.
type (
	Stage   = schedule.Stage
	Micro   = schedule.Micro
	Replica = schedule.Replica
)

// RunID names a run; it is random and printed in base 32.
type RunID string

// PeerID is a node's libp2p identity in its text form.
type PeerID string

// Short returns the end of a long peer ID, for people: its beginning says the kind of key and
// nothing else.
func (p PeerID) Short() string {
	if len(p) <= 16 {
		return string(p)
	}
	return "…" + string(p[len(p)-8:])
}

// Term counts elections: who plans.
type Term uint64

// Generation counts committed plans: which plan. The first is 1.
type Generation uint64

// Step counts optimizer updates. Step 0 is the freshly initialised model; training
// step s turns the state of step s-1 into that of step s.
type Step uint64

// Hash is the BLAKE3-256 of a stored chunk, under which it is found.
type Hash [32]byte

// String returns the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText writes the hash in hexadecimal.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads exactly 64 hexadecimal digits.
func (h *Hash) UnmarshalText(b []byte) error {
	if len(b) != hex.EncodedLen(len(h)) {
		return fmt.Errorf("planner: hash of %d characters, want %d", len(b), hex.EncodedLen(len(h)))
	}
	_, err := hex.Decode(h[:], b)
	return err
}

// Placement puts one stage of one replica on a device.
type Placement struct {
	Peer   PeerID     `json:"peer"`
	Device string     `json:"device"`
	Layers LayerRange `json:"layers"`
	// Holder is the other node that keeps a copy of this stage's checkpoints; empty
	// when the roster has no other node.
	Holder PeerID `json:"holder,omitempty"`
	// Recompute lists what the layers recompute where the run leaves that to the planner.
	Recompute Levels `json:"recompute,omitempty"`
	// Ahead counts the last layers, which recompute before their gradient has come.
	Ahead int `json:"ahead,omitempty"`
	// Offload keeps the stage's optimizer state in the memory of the node, off the device.
	Offload bool `json:"offload,omitempty"`
	// Storage is the precision that matrix products read where the run leaves that to the planner.
	Storage model.Storage `json:"storage,omitzero"`
	// Codec is the tensor codec of the boundary to the next stage: f32, bf16 or int8.
	Codec string `json:"codec,omitempty"`
}

// WorkerID names a device of a peer, on which one worker runs.
type WorkerID struct {
	Peer   PeerID
	Device string
}

// Worker returns where the stage runs.
func (p Placement) Worker() WorkerID { return WorkerID{p.Peer, p.Device} }

// StageID names one stage of one replica.
type StageID struct {
	Replica Replica
	Stage   Stage
}

// Pipeline is one replica: its stages in order and its contiguous share of every
// step's micro-batches.
type Pipeline struct {
	FirstMicro Micro       `json:"first_micro"`
	Micros     int         `json:"micros"`
	Stages     []Placement `json:"stages"`
	// Warmups holds for each stage how many forwards precede its first backward; schedules
	// other than 1f1b and gpipe have none.
	Warmups []int `json:"warmups,omitempty"`
	// Own names the moments that the replica begins with where the checkpoint has some of each replica; nil: it has one set for all.
	Own *Own `json:"own,omitempty"`
}

// WarmUps lists the schedules whose pipelines have Warmups.
var WarmUps = []string{"1f1b", "gpipe"}

// Plan says who does what in one generation. It is a pure value with canonical bytes (Encode).
type Plan struct {
	Run        RunID      `json:"run"`
	Generation Generation `json:"generation"`
	// Start is the step whose state the generation starts from; 0 is the initial model.
	Start Step `json:"start"`
	// Schedule is the text of a schedule.Spec. The replicas of one of its groups follow each
	// other, and all stages of one of its workers are on one device.
	Schedule string     `json:"schedule"`
	Replicas []Pipeline `json:"replicas"`
	// Sharded lists the layers whose optimizer state the replicas hold in parts, each replica
	// one: ranges in order, with layers between them.
	Sharded LayerRanges `json:"sharded,omitempty"`
	// Codec is the one of all boundaries, where the run leaves that to the planner. It is empty until a plan has a
	// boundary between workers; later plans keep it.
	Codec string `json:"codec,omitempty"`
	// PostValidation has workers apply a step, and begin with the next one, before its commit has come: see package pipeline. It is for
	// plans of one replica on several workers that keep their optimizer state on the devices.
	PostValidation bool `json:"post_validation,omitempty"`
	// Local has the replicas make steps of their own and come together every so many; nil: in every step.
	Local *Local `json:"local,omitempty"`
	// Stream has the micro-batches that the steps after Start take; zero: step s takes its own.
	Stream Stream `json:"stream,omitzero"`
}

// ScheduleName names the schedule of plans of runs that ask for none, unless another kind ends sooner.
const ScheduleName = "1f1b"

// MaxPlanBytes bounds the encoded form of a plan.
const MaxPlanBytes = 1 << 20

// Sentinel errors of this package.
var (
	// ErrBadPlan is wrapped by every error about a plan that cannot be carried out.
	ErrBadPlan = errors.New("planner: bad plan")
	// ErrBadInput is wrapped by errors about input that no nodes could make up for.
	ErrBadInput = errors.New("planner: bad input")
)

// Encode returns the canonical bytes: the same plan always has the same bytes.
func (p Plan) Encode() []byte {
	b, err := json.Marshal(p)
	if err != nil {
		panic("planner: plan does not marshal: " + err.Error()) // only plain values inside
	}
	return b
}

// Validate checks that the plan covers layers [0, layers) in every replica and every micro-batch once,
// in whole groups of the run's sums.
func (p Plan) Validate(layers int, sums Sums) error {
	if err := sums.Validate(); err != nil {
		return err
	}
	if p.Generation == 0 {
		return fmt.Errorf("%w: generation 0", ErrBadPlan)
	}
	if len(p.Replicas) == 0 {
		return fmt.Errorf("%w: no replicas", ErrBadPlan)
	}
	if err := errors.Join(p.checkSharded(layers), p.checkCodec(), checkPostValidation(p), checkLocal(p)); err != nil {
		return err
	}
	nextMicro := Micro(0)
	for r, pipe := range p.Replicas {
		if pipe.FirstMicro != nextMicro || pipe.Micros < 1 {
			return fmt.Errorf("%w: replica %d has micro-batches %d+%d, want %d+(1 or more)", ErrBadPlan, r, pipe.FirstMicro, pipe.Micros, nextMicro)
		}
		if _, ok := sums.Share(pipe.FirstMicro, pipe.Micros); !ok {
			return fmt.Errorf("%w: replica %d has micro-batches %d+%d, want whole groups of the %d that %s are added in", ErrBadPlan, r, pipe.FirstMicro, pipe.Micros, sums.Groups, Count(sums.Micros, "micro-batch"))
		}
		nextMicro += Micro(pipe.Micros)
		if err := p.checkWarmups(r); err != nil {
			return err
		}
		next := 0
		for s, pl := range pipe.Stages {
			if pl.Layers.First != next || pl.Layers.End <= next || pl.Layers.End > layers {
				return fmt.Errorf("%w: replica %d stage %d has layers %v of %d, want those from %d on", ErrBadPlan, r, s, pl.Layers, layers, next)
			}
			if pl.Ahead < 0 || pl.Ahead > pl.Layers.Len() {
				return fmt.Errorf("%w: replica %d stage %d recomputes %d of %d layers ahead", ErrBadPlan, r, s, pl.Ahead, pl.Layers.Len())
			}
			if _, err := pl.Recompute.Expand(pl.Layers.Len()); err != nil {
				return fmt.Errorf("replica %d stage %d: %w", r, s, err)
			}
			next = pl.Layers.End
		}
		if _, err := pipe.Codecs(); err != nil {
			return fmt.Errorf("replica %d: %w", r, err)
		}
		if next != layers {
			return fmt.Errorf("%w: replica %d covers %d of %d layers", ErrBadPlan, r, next, layers)
		}
	}
	if int(nextMicro) != sums.Micros {
		return fmt.Errorf("%w: replicas share %d micro-batches of %d", ErrBadPlan, nextMicro, sums.Micros)
	}
	return nil
}

// checkPostValidation returns an error where a plan has workers apply steps before their commit that cannot roll them back.
func checkPostValidation(p Plan) error {
	able := len(p.Replicas) == 1 && len(p.Workers()) > 1 && !slices.ContainsFunc(p.Replicas[0].Stages, func(at Placement) bool { return at.Offload })
	if p.PostValidation && !able {
		return fmt.Errorf("%w: updates before their commit are for one replica on several workers, with optimizer state on the devices", ErrBadPlan)
	}
	return nil
}

// checkWarmups returns an error unless each stage has a warm-up, under the schedules that have them.
func (p Plan) checkWarmups(replica int) error {
	pipe, want := p.Replicas[replica], 0
	if slices.Contains(WarmUps, p.Schedule) {
		want = len(pipe.Stages)
	}
	if len(pipe.Warmups) != want {
		return fmt.Errorf("%w: replica %d has %d warm-ups for %d stages under %s, want %d", ErrBadPlan, replica, len(pipe.Warmups), len(pipe.Stages), p.Schedule, want)
	}
	return nil
}

// Coordinator returns the worker of the last stage of replica 0, which knows replica 0's losses
// first: it collects every worker's report of a step and commits it. Zero without replicas.
func (p Plan) Coordinator() WorkerID {
	if len(p.Replicas) == 0 {
		return WorkerID{}
	}
	return CoordinatorOf(p, 0)
}

// Workers returns the distinct workers of the plan in order of first appearance.
func (p Plan) Workers() []WorkerID {
	var workers []WorkerID
	seen := map[WorkerID]bool{}
	for _, pipe := range p.Replicas {
		for _, pl := range pipe.Stages {
			if !seen[pl.Worker()] {
				seen[pl.Worker()] = true
				workers = append(workers, pl.Worker())
			}
		}
	}
	return workers
}

// StagesOf returns the stages of a worker, in the order of replicas and stages.
func (p Plan) StagesOf(worker WorkerID) []StageID {
	var held []StageID
	for r, pipe := range p.Replicas {
		for s, pl := range pipe.Stages {
			if pl.Worker() == worker {
				held = append(held, StageID{Replica(r), Stage(s)})
			}
		}
	}
	return held
}

// Storage returns the precision of all stages where the run leaves that to the planner; float32 without stages.
func (p Plan) Storage() model.Storage {
	if len(p.Replicas) == 0 || len(p.Replicas[0].Stages) == 0 {
		return model.StorageF32
	}
	return p.Replicas[0].Stages[0].Storage
}

// Crosses reports whether some boundary between stages lies between workers.
func (p Plan) Crosses() bool {
	for _, pipe := range p.Replicas {
		for s := 1; s < len(pipe.Stages); s++ {
			if pipe.Stages[s-1].Worker() != pipe.Stages[s].Worker() {
				return true
			}
		}
	}
	return false
}

// StageCount counts the stages of all replicas.
func (p Plan) StageCount() (n int) {
	for _, pipe := range p.Replicas {
		n += len(pipe.Stages)
	}
	return n
}

// At returns the placement of a stage.
func (p Plan) At(h StageID) Placement { return p.Replicas[h.Replica].Stages[h.Stage] }

// Find returns the placement of a stage that the plan may not have.
func (p Plan) Find(h StageID) (Placement, bool) {
	if h.Replica < 0 || int(h.Replica) >= len(p.Replicas) || h.Stage < 0 || int(h.Stage) >= len(p.Replicas[h.Replica].Stages) {
		return Placement{}, false
	}
	return p.At(h), true
}

// Has reports whether the plan gives a stage to a peer. Any StageID may be asked for.
func (p Plan) Has(peer PeerID, h StageID) bool {
	place, ok := p.Find(h)
	return ok && place.Peer == peer
}

// Near reports whether a peer computes a stage or one next to it.
func (p Plan) Near(h StageID, peer PeerID) bool {
	stages := p.Replicas[h.Replica].Stages
	return slices.ContainsFunc(stages[max(h.Stage-1, 0):min(int(h.Stage)+2, len(stages))], func(at Placement) bool { return at.Peer == peer })
}

// Places reports whether the plan has a stage for a peer.
func (p Plan) Places(peer PeerID) bool {
	for i := range p.Replicas {
		for s := range p.Replicas[i].Stages {
			if p.Replicas[i].Stages[s].Peer == peer {
				return true
			}
		}
	}
	return false
}

// Peers returns the distinct peers of the plan in order of first appearance.
func (p Plan) Peers() []PeerID {
	var peers []PeerID
	for i := range p.Replicas {
		if peers == nil {
			peers = make([]PeerID, 0, len(p.Replicas)*len(p.Replicas[i].Stages))
		}
		for s := range p.Replicas[i].Stages {
			if peer := p.Replicas[i].Stages[s].Peer; !slices.Contains(peers, peer) {
				peers = append(peers, peer)
			}
		}
	}
	return peers
}

// Neighbours returns the peers whose stages are next to one of a peer's, sorted.
func (p Plan) Neighbours(of PeerID) []PeerID {
	var peers []PeerID
	for _, pipe := range p.Replicas {
		for s := 1; s < len(pipe.Stages); s++ {
			switch a, b := pipe.Stages[s-1].Peer, pipe.Stages[s].Peer; of {
			case a:
				peers = append(peers, b)
			case b:
				peers = append(peers, a)
			}
		}
	}
	slices.Sort(peers)
	return slices.Compact(peers)
}

// Senders returns the other peers whose messages the workers of some peers need for a step, sorted: of those with a stage next
// to one of theirs, and with some of the same layers in another replica. Where parameters are tied, both ends of the model
// add up their gradients too.
func (p Plan) Senders(to []PeerID, tied bool) []PeerID {
	var peers []PeerID
	for _, peer := range to {
		peers = append(peers, p.Neighbours(peer)...)
	}
	for _, own := range p.placements() {
		if !slices.Contains(to, own.Peer) {
			continue
		}
		for _, o := range p.placements() {
			meet := own.Layers.First < o.Layers.End && o.Layers.First < own.Layers.End
			if meet || tied && p.atEnd(own) && p.atEnd(o) {
				peers = append(peers, o.Peer)
			}
		}
	}
	slices.Sort(peers)
	return slices.DeleteFunc(slices.Compact(peers), func(o PeerID) bool { return slices.Contains(to, o) })
}

// placements returns the stages of all replicas.
func (p Plan) placements() (all []Placement) {
	for _, pipe := range p.Replicas {
		all = append(all, pipe.Stages...)
	}
	return all
}

// atEnd reports whether a stage has the first or the last layer.
func (p Plan) atEnd(at Placement) bool {
	stages := p.Replicas[0].Stages
	return at.Layers.First == 0 || at.Layers.End == stages[len(stages)-1].Layers.End
}

// InParts reports whether the replicas hold a layer's optimizer state in parts.
func (p Plan) InParts(layer int) bool { return p.Sharded.Contains(layer) }

// Share returns the part that a replica has of a layer's optimizer state.
func (p Plan) Share(r Replica, layer int) model.Share {
	if !p.InParts(layer) {
		return model.Share{}
	}
	return model.Share{Index: int(r), Count: len(p.Replicas)}
}

// Shares returns by layer what a stage has of the optimizer state, nil where it has all of it.
func (p Plan) Shares(h StageID) []model.Share {
	layers := p.At(h).Layers
	if !slices.ContainsFunc(p.Sharded, func(r LayerRange) bool { return r.First < layers.End && layers.First < r.End }) {
		return nil
	}
	shares := make([]model.Share, layers.Len())
	for i := range shares {
		shares[i] = p.Share(h.Replica, layers.First+i)
	}
	return shares
}

// checkSharded returns an error unless ranges of layers are in order, none next to another, and every
// part has a replica.
func (p Plan) checkSharded(layers int) error {
	if len(p.Sharded) > 0 && len(p.Replicas) == 1 {
		return fmt.Errorf("%w: one replica holds parts of its optimizer state, nobody the rest", ErrBadPlan)
	}
	next := 0
	for _, r := range p.Sharded {
		if r.First < next || r.End <= r.First || r.End > layers {
			return fmt.Errorf("%w: optimizer state of layers %v of %d is in parts, want ranges in order within the layers, none empty or next to another", ErrBadPlan, r, layers)
		}
		next = r.End + 1
	}
	return nil
}

// CheckTied returns an error unless both ends of a model's tied embedding are in parts, or neither:
// their gradients are added up part by part. It wraps ErrBadPlan.
func (p Plan) CheckTied(m model.Config) error {
	if last := m.Layers() - 1; m.TiedGradLen() > 0 && p.InParts(0) != p.InParts(last) {
		return fmt.Errorf("%w: of the tied embedding one end has its optimizer state in parts, layers 0 and %d must be alike", ErrBadPlan, last)
	}
	return nil
}

// LayerRange is the half-open range [First, End) of layer indices. Layer 0 is the
// embedding, the last one the head.
type LayerRange struct {
	First int `json:"first"`
	End   int `json:"end"`
}

// String prints the first and the last layer: "0-2", or "5" for one alone, or "none".
func (r LayerRange) String() string {
	switch {
	case r.End <= r.First:
		return "none"
	case r.Len() == 1:
		return strconv.Itoa(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.End-1)
}

// Len returns the number of layers in the range.
func (r LayerRange) Len() int { return r.End - r.First }

// Contains reports whether layer is in the range.
func (r LayerRange) Contains(layer int) bool { return layer >= r.First && layer < r.End }

// LayerRanges are some of a model's layers: ranges in order, with layers between them.
type LayerRanges []LayerRange

// Contains reports whether layer is in one of the ranges.
func (rs LayerRanges) Contains(layer int) bool {
	return slices.ContainsFunc(rs, func(r LayerRange) bool { return r.Contains(layer) })
}

// With returns the layers, of so many, of either ranges.
func (rs LayerRanges) With(others LayerRanges, layers int) LayerRanges {
	return join(layers, func(l int) bool { return rs.Contains(l) || others.Contains(l) })
}

// Without returns the layers, of so many, that are not in the others.
func (rs LayerRanges) Without(others LayerRanges, layers int) LayerRanges {
	return join(layers, func(l int) bool { return rs.Contains(l) && !others.Contains(l) })
}

// join returns the ranges of the layers, of so many, that are in.
func join(layers int, in func(layer int) bool) (ranges LayerRanges) {
	for l := range layers {
		switch last := len(ranges) - 1; {
		case !in(l):
		case last >= 0 && ranges[last].End == l:
			ranges[last].End++
		default:
			ranges = append(ranges, LayerRange{l, l + 1})
		}
	}
	return ranges
}

// String prints ranges as "0-1 and 5".
func (rs LayerRanges) String() string {
	texts := make([]string, len(rs))
	for i, r := range rs {
		texts[i] = r.String()
	}
	return strings.Join(texts, " and ")
}
