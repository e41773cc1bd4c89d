package consensus

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"pnode/planner/departures"
	"pnode/planner/holders"
	"pnode/planner/plan"
	"pnode/swarm/consensus/rounds"
	"pnode/swarm/places"
)

// Bounds of the replicated state. They keep a snapshot under MaxStateBytes.
const (
	// MaxMembers bounds the members that are not gone: each has the whole log and state. As many gone ones are
	// remembered.
	MaxMembers = 1000
	// MaxOlder bounds the complete checkpoints that are remembered besides the newest.
	MaxOlder = 8
	// MaxPending bounds the steps whose checkpoint is incomplete; the oldest is dropped.
	MaxPending = 4
	// MaxCheckpointChunks bounds the chunks of one checkpoint: 64 GiB in 4 MiB chunks.
	MaxCheckpointChunks = 16384
	// MaxInitChunks bounds those of the weights that a run starts from: 32 GiB. With the text's
	// they must fit into an entry.
	MaxInitChunks = 8192
	// MaxBindings bounds the peers of all grants together.
	MaxBindings = 4096
	// MaxHolders bounds the peers listed as holding one layer.
	MaxHolders = 8

	maxBlocks = 1024 // transformer blocks of the model
	maxFiles  = 32   // of a model or tokenizer
	// MaxGraceS bounds for how many seconds a draining member may say that it stays.
	MaxGraceS = 24 * 60 * 60
	// MaxSampleBytes bounds the text that a finished model leaves.
	MaxSampleBytes = 64 << 10

	// maxSteps bounds a run: far above sense.
	maxSteps = 1_000_000_000
	// maxLocalMicros bounds the micro-batches of a step where replicas make local steps.
	maxLocalMicros = 1 << 24

	maxAddrs      = 32
	maxReasons    = 64
	maxText       = 512 // bytes of an address, reason or label
	maxName       = 128 // bytes of a peer ID, run ID or device name
	maxChunkBytes = 4 << 20
)

// MemberState says where a member stands in its life with the run.
type MemberState string

// A member joins, becomes active when it has measured itself, drains when it is about to
// leave, and is gone when it left or was lost. Plans place stages on active ones only.
const (
	Joining  MemberState = "joining"
	Active   MemberState = "active"
	Draining MemberState = "draining"
	Gone     MemberState = "gone"
)

// ReasonLeft is why a member is gone that has left by itself: it does not come back soon, as one may that fell silent.
const ReasonLeft = "it left"

// Member is one node of the roster.
type Member struct {
	Peer plan.PeerID `json:"peer"`
	// ProcessEpoch differs each time the node starts. An entry about a member names the one
	// it means, so that news of an earlier process does not hit the next one.
	ProcessEpoch uint64      `json:"boot"`
	Addrs        []string    `json:"addrs,omitempty"`
	State        MemberState `json:"state"`
	// Since is the epoch that State began with; Reason says why it did.
	Since  uint64 `json:"since"`
	Reason string `json:"reason,omitempty"`
	// GraceS is for how many seconds a draining member stays at most, counted from then; 0 is not known.
	GraceS  uint32       `json:"grace_s,omitempty"`
	Label   string       `json:"label,omitempty"`
	Profile plan.Profile `json:"profile"`
	// Stood counts the checkpoints that were committed while the member was active, over its restarts too.
	Stood uint64 `json:"stood,omitempty"`
	// Voted is set once the member votes after StandingCheckpoints: a leader that has just been elected knows nobody for
	// long.
	Voted bool `json:"voted,omitempty"`
	// Counter is the highest of the member's proposals in the log. Bit i of Window says that the one i below
	// it is there too.
	Counter uint64 `json:"counter"`
	Window  uint64 `json:"window"`
	// Faults is how often the member was left out of plans, less what it has done well since; Clean counts the
	// checkpoints since the last change. Blamed is the newest ruling.
	Faults int    `json:"faults,omitempty"`
	Clean  int    `json:"clean,omitempty"`
	Blamed *Blame `json:"blamed,omitempty"`
	// Shown is what steps have shown of the speeds that Profile claims, by this process or one before.
	Shown plan.Shown `json:"shown,omitzero"`
}

// LayerRef is the saved state of one layer: its chunks in order, and who has them.
type LayerRef struct {
	Layer     int           `json:"layer"`
	SizeBytes int64         `json:"size_bytes"`
	Chunks    []plan.Hash   `json:"chunks"`
	Holders   []plan.PeerID `json:"holders"`
	// Whole counts the last of Holders, which have the layer as part of a whole copy alone: until they have a newer one.
	Whole int `json:"whole,omitempty"`
	// Unstored are those of Holders that have the layer in memory, until they say that it is stored.
	Unstored []Process `json:"unstored,omitempty"`
}

// Process is a member's process: what it has in memory ends with it.
type Process struct {
	Peer         plan.PeerID `json:"peer"`
	ProcessEpoch uint64      `json:"boot"`
}

// OwnState has what one of several replicas with local steps has for itself after an outer step: its optimizer's moments, and what its messages
// lacked. It is whole with every layer of which anything is trained.
type OwnState struct {
	Replica plan.Replica `json:"replica"`
	Layers  []LayerRef   `json:"layers,omitempty"`
}

// Checkpoint is the saved state of the model after a step, layers in ascending order. A
// committed one has every layer; the zero Checkpoint stands for the initial model.
type Checkpoint struct {
	Step       plan.Step       `json:"step"`
	Generation plan.Generation `json:"generation"`
	// Last: all workers that saved it did so after the last step of their plan.
	Last bool `json:"last,omitempty"`
	// AtMillis is when its last layer was reported, in Unix time by the clock of the leader; 0 for an incomplete one.
	AtMillis int64      `json:"at_ms,omitempty"`
	Layers   []LayerRef `json:"layers,omitempty"`
	// Own has an entry for each replica that the outer step of this checkpoint counts, in their order; none where replicas make every step
	// together. Layers have what all replicas have in common then. A committed one has the state of one of them whole; those of others come later.
	Own []OwnState `json:"own,omitempty"`
	// Stream has the micro-batches that are left, in brief: with local steps some of those before may not have been counted.
	Stream plan.Stream `json:"stream,omitzero"`
}

// Time returns when the checkpoint was committed, by the clock of the leader of then; zero where that is not known.
func (c Checkpoint) Time() time.Time {
	if c.AtMillis == 0 {
		return time.Time{}
	}
	return time.UnixMilli(c.AtMillis)
}

// State holds what all nodes agree on. It is a value: nothing reachable from it is ever
// changed, neither by Apply nor by its readers.
type State struct {
	Run *plan.RunSpec `json:"run,omitempty"`
	// Incarnation is 1 from SetRun on and raised by every Resume and Recover.
	Incarnation uint64 `json:"incarnation"`
	// Recovery is the newest recovery of the run, which began the lineage that this log is of; nil without one.
	Recovery *Recovery `json:"recovery,omitempty"`
	// Partings say where each recovery of the run parted this log from those of whoever was away.
	Partings plan.Partings `json:"partings,omitempty"`
	// Owners make invites, revoke and stop the run: the node that founded it, and those that came by an
	// owner's invite for owners.
	Owners []plan.PeerID `json:"owners,omitempty"`
	// Leader led in LeaderTerm, the newest term whose leader has said so in the log.
	Leader     plan.PeerID `json:"leader,omitempty"`
	LeaderTerm plan.Term   `json:"leader_term"`
	// Vouchers say who votes, to nodes that do not have the log: the newest that an owner signed and those after it.
	Vouchers []Voucher `json:"vouchers,omitempty"`
	// Epoch counts what a plan depends on besides the checkpoint: joins, member states,
	// resumes. A plan names the epoch it was made from.
	Epoch uint64 `json:"epoch"`
	// Members are sorted by peer.
	Members []Member `json:"members,omitempty"`
	// Grants are the invites of the run with everyone who came by them, by serial. Peers
	// that are gone still count: an invite's uses do not come back.
	Grants []Grant `json:"grants,omitempty"`
	// Revoked are the peers that were removed from the run, in the order of removal.
	Revoked []Revocation `json:"revoked,omitempty"`
	// Plan is the current generation; generation 0 is no plan. Term is the term of the
	// planner that made it, PlanEpoch the epoch it was made in, Reasons its reasons. A
	// member that is active since a later epoch was started again after the plan.
	Plan      plan.Plan `json:"plan"`
	Term      plan.Term `json:"term"`
	PlanEpoch uint64    `json:"plan_epoch"`
	// PlanPauses is what PauseWanted was then: a later wish is for the plan's coordinator.
	PlanPauses uint64   `json:"plan_pauses"`
	Reasons    []string `json:"reasons,omitempty"`
	// Checkpoint is the newest complete one, Pending the incomplete ones of the current
	// generation by ascending step.
	Checkpoint Checkpoint   `json:"checkpoint"`
	Pending    []Checkpoint `json:"pending,omitempty"`
	// Older are the complete checkpoints before it that are kept, newest first: what is
	// left when nobody has the newest one's chunks any more.
	Older []Checkpoint `json:"older,omitempty"`
	// Salvage says which state of the current generation is to be saved from memory after its end; nil while it goes on.
	Salvage *Salvage `json:"salvage,omitempty"`
	// Substitute says who goes on in the place of a lost member of the current plan; nil while nobody does.
	Substitute *Substitute `json:"substitute,omitempty"`
	// Round is under way where the replicas of the current plan make local steps; nil where they do not, and once the plan ends. Merged is the
	// plan's newest outer step.
	Round  *rounds.Round `json:"round,omitempty"`
	Merged *plan.Merged  `json:"merged,omitempty"`
	// CopyFailures say which members do not get copies of what they compute to which others.
	CopyFailures holders.Failures `json:"copy_failures,omitempty"`
	// Successors keep the copies of the current plan's stages whose holders were away or out of reach since it began.
	Successors []Successor `json:"successors,omitempty"`
	// Departures say how often members left the run or were lost, by the times at which leaders appended entries.
	Departures departures.History `json:"departures,omitzero"`
	// Blames are the newest rulings on faults of this incarnation, newest last.
	Blames []Blame `json:"blames,omitempty"`
	// PauseWanted counts the pauses asked for: the plan's workers save their newest step and
	// wait for the next plan.
	PauseWanted uint64 `json:"pause_wanted"`
	// StopWanted asks all nodes to save and stop; Resume takes it back. Finished is set
	// once, when the last step is done; Sample is what the model wrote then.
	StopWanted bool   `json:"stop_wanted"`
	Finished   bool   `json:"finished"`
	Sample     string `json:"sample,omitempty"`
}

// Paused reports whether a pause was asked of the current plan.
func (s State) Paused() bool { return s.Plan.Generation != 0 && s.PauseWanted > s.PlanPauses }

// Ended reports whether the current plan has ended with its newest step saved, as a pause asks.
func (s State) Ended() bool {
	return s.Plan.Generation != 0 && s.Checkpoint.Last && s.Checkpoint.Generation == s.Plan.Generation && s.Checkpoint.Step > s.Plan.Start
}

// Member finds a member of the roster.
func (s State) Member(peer plan.PeerID) (Member, bool) {
	if i, ok := s.find(peer); ok {
		return s.Members[i], true
	}
	return Member{}, false
}

// ActiveOwners returns the owners that are active.
func (s State) ActiveOwners() []plan.PeerID {
	return slices.DeleteFunc(slices.Clone(s.Owners), func(p plan.PeerID) bool {
		m, ok := s.Member(p)
		return !ok || m.State != Active
	})
}

// Reborn reports whether a member was started again, or came back, after the current plan
// was made: then that process carries out nothing of the plan.
func (s State) Reborn(m Member) bool {
	return m.State == Joining || m.State == Active && m.Since > s.PlanEpoch
}

func (s State) find(peer plan.PeerID) (int, bool) {
	return slices.BinarySearchFunc(s.Members, peer, func(m Member, p plan.PeerID) int {
		return strings.Compare(string(m.Peer), string(p))
	})
}

// withMember returns the state with m in place of the member of the same peer, or
// inserted. The receiver's roster stays as it is.
func (s State) withMember(m Member) State {
	i, ok := s.find(m.Peer)
	s.Members = slices.Clone(s.Members)
	if ok {
		s.Members[i] = m
	} else {
		s.Members = slices.Insert(s.Members, i, m)
	}
	return s
}

// Successor keeps the copies of a stage in the place of the holder that the plan names, which is away or out of reach.
type Successor struct {
	Replica plan.Replica `json:"replica,omitempty"`
	Stage   plan.Stage   `json:"stage"`
	Holder  plan.PeerID  `json:"holder"`
	// Before was the successor before; empty for the first one.
	Before plan.PeerID `json:"before,omitempty"`
}

func (c Successor) at() plan.StageID { return plan.StageID{Replica: c.Replica, Stage: c.Stage} }

// Holder returns who keeps the copy of a stage's checkpoints: whom the plan names while that member is there and copies get to it, and else
// its successor. That follows from the log, so that all nodes with the same log name the same.
func (s State) Holder(at plan.StageID) plan.PeerID {
	if _, ok := s.Plan.Find(at); !ok {
		return ""
	}
	if holder := keeper(s, at); holder != "" {
		return holder
	}
	for _, c := range candidates(s) {
		if c.at() == at {
			return c.Holder
		}
	}
	return ""
}

// keeper returns who keeps the copies of a stage by the plan and the successors that are noted; empty where none of them is there and reached. A
// successor also has room: the plan has seen to that of its own holder.
func keeper(s State, at plan.StageID) plan.PeerID {
	place := s.Plan.At(at)
	keeps := func(p plan.PeerID) bool { return stays(s, p) && !apart(s, at, p) }
	if keeps(place.Holder) {
		return place.Holder
	}
	i := slices.IndexFunc(s.Successors, func(c Successor) bool { return c.at() == at })
	if i >= 0 && keeps(s.Successors[i].Holder) && !full(s, at, s.Successors[i].Holder) {
		return s.Successors[i].Holder
	}
	return ""
}

// full reports whether a member has no room for a copy of a stage as large as the newest, and nothing of that one.
func full(s State, at plan.StageID, holder plan.PeerID) bool {
	place, need := s.Plan.At(at), int64(0)
	for _, l := range s.Checkpoint.Layers {
		switch {
		case !place.Layers.Contains(l.Layer):
		case slices.Contains(l.Holders, holder):
			return false
		default:
			need += l.SizeBytes
		}
	}
	m, _ := s.Member(holder)
	free := m.Profile.DiskFreeBytes // 0: not known
	return free > 0 && free-plan.DiskReserveBytes < need
}

// apart reports whether the copies of a stage did not get to a member of late.
func apart(s State, at plan.StageID, holder plan.PeerID) bool {
	return s.CopyFailures.Between(s.Substitute.Carrier(s.Plan.At(at).Peer), holder)
}

// candidates returns who is to succeed for the stages that have no keeper, in the order of the stages.
func candidates(s State) (all []Successor) {
	copies := map[plan.PeerID]int{}
	for r, pipe := range s.Plan.Replicas {
		for st := range pipe.Stages {
			at := plan.StageID{Replica: plan.Replica(r), Stage: plan.Stage(st)}
			if holder := keeper(s, at); holder != "" {
				copies[holder]++
			} else {
				all = append(all, Successor{Replica: at.Replica, Stage: at.Stage})
			}
		}
	}
	for i, c := range all {
		best, _ := holders.Best(s.holderOptions(c.at(), copies)) // none is empty
		all[i].Holder = best.Peer
		copies[best.Peer]++
	}
	return all
}

// succeeded returns the state with the candidates noted as successors: each keeps the copies while it is there and reached, whatever becomes of other
// stages' holders. One to whom copies do not get, or that has no room for them, for want of a better one, is not noted.
func succeeded(s State) State {
	for _, c := range candidates(s) {
		if c.Holder == "" || apart(s, c.at(), c.Holder) || full(s, c.at(), c.Holder) {
			continue
		}
		noted := slices.Clone(s.Successors)
		i := slices.IndexFunc(noted, func(n Successor) bool { return n.at() == c.at() })
		if i < 0 {
			noted = append(noted, c)
		} else {
			c.Before = noted[i].Holder
			noted[i] = c
		}
		s.Successors = noted
	}
	return s
}

// departs returns a state with the end of the member's process noted. That of a run which was stopped, or of a plan whose newest
// step is saved, says nothing of how often members go.
func (m Member) departs(s State, left bool) State {
	if !s.StopWanted && !s.Finished && !s.Ended() {
		s.Departures = s.Departures.Noted(left || m.State == Draining)
	}
	return s
}

// stays reports whether a member is in the run and not about to leave.
func (m Member) stays() bool { return m.State == Active || m.State == Joining }

// holderOptions returns the members that may keep the copy of a stage instead of the one that the plan names.
func (s State) holderOptions(at plan.StageID, copies map[plan.PeerID]int) (options []holders.Option) {
	place, ties := s.Plan.At(at), s.Ties(s.Plan.At(at).Peer)
	share := holders.Share(s.Plan.StageCount(), s.present())
	for _, m := range s.Members {
		if m.State != Active || m.Peer == place.Peer {
			continue
		}
		shared, networks := holders.Common(ties, s.Ties(m.Peer))
		options = append(options, holders.Option{
			Peer: m.Peer, Apart: apart(s, at, m.Peer), Full: full(s, at, m.Peer), Laden: copies[m.Peer] >= share,
			Shared: shared, Networks: networks, Near: s.Plan.Near(at, m.Peer), Whole: s.Owner(m.Peer), Spare: !s.Plan.Places(m.Peer), Copies: copies[m.Peer],
		})
	}
	return options
}

// Ties returns what a member may be lost together with, as package holders counts it: the networks that it is reached in
// and the invite that it came by.
func (s State) Ties(peer plan.PeerID) []string {
	m, _ := s.Member(peer)
	ties := places.Networks(m.Addrs)
	for _, g := range s.Grants {
		if slices.Contains(g.Peers, peer) {
			ties = append(ties, holders.Invite(g.Serial))
		}
	}
	slices.Sort(ties)
	return ties
}

// present counts the members that are not gone.
func (s State) present() int {
	n := 0
	for _, m := range s.Members {
		if m.State != Gone {
			n++
		}
	}
	return n
}

// forget drops the member that has been gone longest when more than MaxMembers are.
func (s State) forget() State {
	if len(s.Members)-s.present() <= MaxMembers {
		return s
	}
	oldest := -1
	for i, m := range s.Members {
		if m.State == Gone && (oldest < 0 || m.Since < s.Members[oldest].Since) {
			oldest = i
		}
	}
	s.Members = slices.Delete(slices.Clone(s.Members), oldest, oldest+1)
	return s
}

// NameOf returns what people call a peer: the name of its machine, followed by the end of the peer ID where
// another member has the same name. Without a valid name it is that end alone. A member that is gone takes
// no name away from the others. The end of a peer ID, as Short has it, stands for the one member whose ID has it.
func (s State) NameOf(peer plan.PeerID) string {
	m, ok := s.Member(peer)
	if !ok {
		m, ok = shortened(s, peer)
	}
	if peer = cmp.Or(m.Peer, peer); !ok || !plan.ValidName(m.Label) {
		return peer.Short()
	}
	shared := slices.ContainsFunc(s.Members, func(o Member) bool {
		return o.Label == m.Label && o.Peer != peer && (o.State != Gone || m.State == Gone)
	})
	if shared {
		return m.Label + " " + peer.Short()
	}
	return m.Label
}

// shortened returns the member whose ID is short in a text, if it is the only one.
func shortened(s State, short plan.PeerID) (m Member, ok bool) {
	for _, o := range s.Members {
		if o.Peer.Short() != string(short) {
			continue
		}
		if ok {
			return Member{}, false
		}
		m, ok = o, true
	}
	return m, ok
}

// TitleOf returns what people call the device of a worker: see [plan.DeviceTitle].
func TitleOf(s State, w plan.WorkerID) string {
	m, _ := s.Member(w.Peer)
	return plan.DeviceTitle(m.Profile.Devices, w.Device)
}

// DeviceOf returns what people call a machine and a device of it: "desk (NVIDIA H200)".
func DeviceOf(s State, w plan.WorkerID) string { return plan.DeviceOf(s.NameOf(w.Peer), TitleOf(s, w)) }

// NamesOf returns what people call each member, as NameOf does, in one go.
func NamesOf(s State) map[plan.PeerID]string {
	all, here := map[string]int{}, map[string]int{} // members by label
	for _, m := range s.Members {
		all[m.Label]++
		if m.State != Gone {
			here[m.Label]++
		}
	}
	names := make(map[plan.PeerID]string, len(s.Members))
	for _, m := range s.Members {
		same := here
		if m.State == Gone {
			same = all
		}
		switch {
		case !plan.ValidName(m.Label):
			names[m.Peer] = m.Peer.Short()
		case same[m.Label] > 1:
			names[m.Peer] = m.Label + " " + m.Peer.Short()
		default:
			names[m.Peer] = m.Label
		}
	}
	return names
}
