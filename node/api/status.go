package api

import (
	"time"

	"pnode/planner/plan"
)

// Status is a snapshot of what a node knows of its run.
type Status struct {
	Run  plan.RunID  `json:"run"`
	Peer plan.PeerID `json:"peer"`
	// Name is what people call this node, LeaderName the leader: both are empty where Roster does not have them.
	Name       string `json:"name,omitempty"`
	LeaderName string `json:"leader_name,omitempty"`
	// State is the node's state: joining, profiling, waiting, loading, training, draining
	// or stopped.
	State string `json:"state"`
	// Waiting says in a sentence why nothing moves, such as "no leader: 1 of 3 voters is
	// up"; empty while the run moves or is over. A run that waits has no speed: TokensPerS
	// and ETAS are 0 then, whatever the node fills in.
	Waiting string `json:"waiting,omitempty"`
	// WaitingFor says the same in one of WaitKinds, for programs.
	WaitingFor WaitKind        `json:"waiting_for,omitempty"`
	Generation plan.Generation `json:"generation"`
	Term       plan.Term       `json:"term"`
	// Votes says who votes on the log, why, and what happens when they go.
	Votes string `json:"votes,omitempty"`
	// Leader plans; empty while there is none.
	Leader plan.PeerID `json:"leader"`
	// Step of Steps is the newest committed one.
	Step  plan.Step `json:"step"`
	Steps plan.Step `json:"steps"`
	// Samples are the sequences of training data that have entered the model: those of Step and before; of local steps those that outer
	// steps count.
	Samples int64 `json:"samples,omitempty"`
	// Loss of Step and the newest held-out loss, in nats per token; nil before the first
	// or when not a number.
	Loss    *float64 `json:"loss"`
	HeldOut *float64 `json:"held_out"`
	// HeldOutF32 is HeldOut with every stage in float32; nil where all are, or where it was not
	// measured.
	HeldOutF32 *float64 `json:"held_out_f32,omitempty"`
	TokensPerS float64  `json:"tokens_per_s"`
	// LearningRate is that of Step, GradientNorm the norm of its gradient before clipping; 0 or nil: not known.
	LearningRate float64  `json:"learning_rate,omitempty"`
	GradientNorm *float64 `json:"gradient_norm,omitempty"`
	// ETAS is the expected time to the last step in seconds; 0 is unknown.
	ETAS   float64       `json:"eta_s"`
	Roster []Member      `json:"roster"`
	Plan   []StageStatus `json:"plan"`
	// Substitute says who computes a lost member's part of the plan; nil while nobody does.
	Substitute *Substitute `json:"substitute,omitempty"`
	// PostValidation says that steps of the plan may be applied before their commit; nil where they are not.
	PostValidation *PostValidation `json:"post_validation,omitempty"`
	// Replicas has what each replica with local steps does in the Round under way, and Outer the newest outer step; none and nil without local steps.
	Replicas []ReplicaStatus `json:"replicas,omitempty"`
	Round    *Round          `json:"round,omitempty"`
	Outer    *OuterStep      `json:"outer,omitempty"`
	Reasons  []string        `json:"reasons"`
	// Hints say what would have the run train faster, as its leader has found: a machine, a line, or settings of a new run.
	Hints      []string   `json:"hints,omitempty"`
	Checkpoint Checkpoint `json:"checkpoint"`
	// Whole says where all layers of a checkpoint are; nil before the first checkpoint.
	Whole *Whole `json:"whole,omitempty"`
	// Addrs are this node's multiaddrs; any of them can be given to `pnode join`.
	Addrs []string `json:"addrs"`
	Data  Data     `json:"data"`
	// About is what the run is; nil until this node knows.
	About *About `json:"about,omitempty"`
	// Seats are the plan's devices in its order, Links what is between those that neighbour.
	Seats []SeatStatus `json:"seats,omitempty"`
	Links []LinkStatus `json:"links,omitempty"`
	// Sensors are of this node's devices in use of which a driver tells something.
	Sensors []Sensor `json:"sensors,omitempty"`
	// Rest counts what a brief status leaves out; nil where it leaves nothing out.
	Rest *Rest `json:"rest,omitempty"`
}

// NameOf returns what people call a node: as the roster does, or else the end of the peer ID. It is a member's claim: whoever shows it sees to
// control characters.
func (s Status) NameOf(p plan.PeerID) string {
	for _, m := range s.Roster {
		if m.Peer == p && m.Name != "" {
			return m.Name
		}
	}
	return p.Short()
}

// WaitKind names what a run, or a node of it, waits for.
type WaitKind string

// WaitKinds are all that there are.
var WaitKinds = []WaitKind{WaitLeader, WaitPlan, WaitReplay, WaitReplicas, WaitClosing, WaitUnused, WaitDiverged, WaitOthers}

const (
	// WaitLeader: no leader of the run's log is known.
	WaitLeader WaitKind = "leader"
	// WaitPlan: the plan before was given up, or there is none yet.
	WaitPlan WaitKind = "plan"
	// WaitReplay: steps of lost members are computed again.
	WaitReplay WaitKind = "replay"
	// WaitReplicas: replicas with local steps wait for others.
	WaitReplicas WaitKind = "replicas"
	// WaitClosing: all steps are made, and the model is evaluated and saved.
	WaitClosing WaitKind = "closing"
	// WaitUnused: plans do without this node, for a fault.
	WaitUnused WaitKind = "unused"
	// WaitDiverged: the run has stopped, as its loss is no number any more.
	WaitDiverged WaitKind = "diverged"
	// WaitOthers: the run is finished, and this node stays for other nodes.
	WaitOthers WaitKind = "others"
)

// Shown returns the status as it is told: numbers that are none are left out, and a run that waits has no speed.
func (s Status) Shown() Status {
	s.Loss, s.HeldOut, s.HeldOutF32, s.GradientNorm = finite(s.Loss), finite(s.HeldOut), finite(s.HeldOutF32), finite(s.GradientNorm)
	if s.Waiting != "" {
		s.TokensPerS, s.ETAS = 0, 0
	}
	return s
}

// About describes what a run trains, and how.
type About struct {
	Parameters int64 `json:"parameters"`
	// Family is the kind of model in a word. Of its Layers the first is the embedding and the
	// last the head; the others are blocks of Channels.
	Family   string `json:"family"`
	Layers   int    `json:"layers"`
	Channels int    `json:"channels"`
	Context  int    `json:"context"`
	Vocab    int    `json:"vocab"`
	// Micros micro-batches of TokensPerStep tokens together make a step.
	Micros        int `json:"micros"`
	TokensPerStep int `json:"tokens_per_step"`
	// Schedule is the kind that runs with its orders, Course the kind and its warm-ups; empty without a plan.
	Schedule string `json:"schedule,omitempty"`
	Course   string `json:"course,omitempty"`
	// StepMS is what the newest steps took, 0 before the first; PredictedMS what the simulator
	// says that one should take with the times that are seen.
	StepMS      float64 `json:"step_ms,omitempty"`
	PredictedMS float64 `json:"predicted_ms,omitempty"`
}

// SeatStatus is a device with what the plan has on it, and where its newest steps went; times
// are 0 where this node has not heard them.
type SeatStatus struct {
	Peer   plan.PeerID `json:"peer"`
	Name   string      `json:"name"`
	Device string      `json:"device"`
	// Title is what people call the device: its product, and which one of the node's where there are several.
	Title string `json:"title"`
	// Model is the product's name as the node tells it.
	Model string `json:"model"`
	Holds []Held `json:"holds"`
	// Parameters of all its stages.
	Parameters int64 `json:"parameters"`
	// MemoryBytes is what its stages take of the FreeBytes that there were for the run.
	MemoryBytes int64 `json:"memory_bytes"`
	FreeBytes   int64 `json:"free_bytes"`
	// BusyMS of the StepMS were computed. Of the rest the simulator says that in ExposedMS a
	// message was under way that the device stood still for.
	StepMS    float64 `json:"step_ms,omitempty"`
	BusyMS    float64 `json:"busy_ms,omitempty"`
	ExposedMS float64 `json:"exposed_ms,omitempty"`
}

// Sensor is how warm a device of this node is and how much power it takes, as read within the last 10 seconds or so; nil is not known.
type Sensor struct {
	Device  string   `json:"device"`
	Celsius *float64 `json:"celsius,omitempty"`
	// Watts are an average over some seconds where the device counts energy. A processor's are of its packages, whoever uses them.
	Watts *float64 `json:"watts,omitempty"`
}

// Held is a stage on a seat.
type Held struct {
	Replica plan.Replica    `json:"replica"`
	Stage   plan.Stage      `json:"stage"`
	Layers  plan.LayerRange `json:"layers"`
}

// LinkStatus is one direction between two nodes whose stages follow each other.
type LinkStatus struct {
	From     plan.PeerID `json:"from"`
	FromName string      `json:"from_name"`
	To       plan.PeerID `json:"to"`
	ToName   string      `json:"to_name"`
	// BytesPerS, RTTMS and JitterMS are 0 where nobody has measured.
	BytesPerS int64   `json:"bytes_per_s,omitempty"`
	RTTMS     float64 `json:"rtt_ms,omitempty"`
	JitterMS  float64 `json:"jitter_ms,omitempty"`
	// Live: seen from the run's own messages, those of the other direction where this one has
	// shown nothing; else probed when a node came.
	Live bool `json:"live,omitempty"`
	// Transport carries the messages, or carried the probe; "" where it is not known. Reason says why it is not QUIC.
	Transport plan.Transport `json:"transport,omitempty"`
	Reason    string         `json:"transport_reason,omitempty"`
}

// MemberSilent is the state of a member that is not gone and that this node hears nothing of.
const MemberSilent = "silent"

// Member is one node of the roster.
type Member struct {
	Peer plan.PeerID `json:"peer"`
	// Name is what people call it: its machine's name, or else the end of the peer ID.
	Name string `json:"name"`
	// State is the one of the roster, joining, active, draining or gone; MemberSilent takes the place of the first three.
	State  string `json:"state"`
	Device string `json:"device"`
	// Kind is what Device says without speeds: like machines have the same.
	Kind  string   `json:"kind,omitempty"`
	Addrs []string `json:"addrs"`
	// LastSeenS is how many seconds ago this node last heard the member; 0 is never, and
	// this node itself.
	LastSeenS float64 `json:"last_seen_s,omitempty"`
	// Reason says why a member is gone or leaves, where that is known. GoneSince is when this process saw that it was gone; zero
	// for others, and for those that were gone before.
	Reason    string    `json:"reason,omitempty"`
	GoneSince time.Time `json:"gone_since,omitzero"`
	// SilentSince is when a silent member was last heard, or when this node began to listen in vain; zero for others.
	SilentSince time.Time `json:"silent_since,omitzero"`
	Self        bool      `json:"self"`
	Leader      bool      `json:"leader"`
	// Placed reports whether the plan has a part for the member.
	Placed bool `json:"placed,omitempty"`
	// NotUsed says until when, and why, plans do without the member: a fault that others, or it, told of. It is
	// empty for most.
	NotUsed string `json:"not_used,omitempty"`
	// Spare says what a member without a stage would add to the plan that runs, as the leader has found.
	Spare string `json:"spare,omitempty"`
}

// StageStatus is one stage of the plan with its newest measured times per step; times
// are 0 where this node has not heard them.
type StageStatus struct {
	Replica plan.Replica `json:"replica"`
	Stage   plan.Stage   `json:"stage"`
	Peer    plan.PeerID  `json:"peer"`
	// Name is what people call the node, Title the device: its product, and which one of the node's where there are several.
	Name       string          `json:"name"`
	Device     string          `json:"device"`
	Title      string          `json:"title"`
	Layers     plan.LayerRange `json:"layers"`
	ForwardMS  float64         `json:"forward_ms"`
	BackwardMS float64         `json:"backward_ms"`
	WaitMS     float64         `json:"wait_ms"`
	// UpdateMS is the reduction, the global norm and the optimizer.
	UpdateMS float64 `json:"update_ms"`
	// Codec is the one in which tensors cross to the next stage. FellBack of the tensors that
	// this stage sent in its last step had to be written in a better one; RelError is the
	// largest relative error of one.
	Codec    string  `json:"codec,omitempty"`
	FellBack int     `json:"fell_back,omitempty"`
	RelError float64 `json:"rel_error,omitempty"`
}

// Substitute is a member of the plan that computes a lost one's part besides its own, until the next plan.
type Substitute struct {
	Lost     plan.PeerID `json:"lost"`
	LostName string      `json:"lost_name"`
	By       plan.PeerID `json:"by"`
	ByName   string      `json:"by_name"`
	From     Source      `json:"from"`
	// Text says it in a sentence.
	Text string `json:"text"`
}

// Checkpoint names the newest committed checkpoint; Step 0 with a zero Time is none.
type Checkpoint struct {
	Step plan.Step `json:"step"`
	Time time.Time `json:"time"`
	// SizeBytes of its layers, on whichever nodes they are.
	SizeBytes int64 `json:"size_bytes,omitempty"`
	// Cadence is how often one is made; nil where it is not known yet.
	Cadence *Cadence `json:"cadence,omitempty"`
	// Saving is the one under way; nil without one.
	Saving *Saving `json:"saving,omitempty"`
	// Copies is nil while each of its layers is on two machines, or on as many as can have it.
	Copies *Copies `json:"copies,omitempty"`
}

// Copies says from where layers are computed again that the loss of a machine takes along.
type Copies struct {
	// Step of the newest checkpoint of which each layer is on two machines; 0: there is none.
	Step plan.Step `json:"step"`
	// MessagesFrom is the first step of which this node has kept all messages that a computation of others' layers needs.
	MessagesFrom plan.Step `json:"messages_from"`
	Text         string    `json:"text"`
}

// PostValidation counts the plan's steps that this node has applied before their commit (Optimistic), and those of them whose commit asked
// for another update. Text is both in words.
type PostValidation struct {
	Optimistic int    `json:"optimistic"`
	RolledBack int    `json:"rolled_back"`
	Text       string `json:"text"`
}

// Cadence says how often checkpoints are made now.
type Cadence struct {
	// EverySteps is from one to the next, EveryS how long that takes; 0 where it is not known.
	EverySteps plan.Step `json:"every_steps"`
	EveryS     float64   `json:"every_s,omitempty"`
	// TookS is how long the last one took in the background, LostS what steps lose by one; 0 where steps are set by the run.
	TookS float64 `json:"took_s,omitempty"`
	LostS float64 `json:"lost_s,omitempty"`
	// Late is how many steps went by before the last one was complete, where these are more than was told; else 0.
	Late plan.Step `json:"late,omitempty"`
	// Text says it in a sentence, with the reason.
	Text string `json:"text"`
}

// Saving is a checkpoint under way.
type Saving struct {
	Step plan.Step `json:"step"`
	// S is since when; 0 where that is not known.
	S float64 `json:"s,omitempty"`
	// Waits has the names of the nodes whose stages are not stored and copied yet.
	Waits []string `json:"waits"`
	// Text says it in a sentence.
	Text string `json:"text"`
}

// Whole says where the whole model is: all layers of one checkpoint.
type Whole struct {
	// Step of the checkpoint; 0 while no node has one.
	Step plan.Step `json:"step"`
	// On is the name of the node.
	On string `json:"on,omitempty"`
	// Text says it in a sentence, with what is on its way and what is in its way.
	Text string `json:"text"`
}

// StoredCheckpoint is one that a node keeps, itself or by its manifest.
type StoredCheckpoint struct {
	Step       plan.Step       `json:"step"`
	Generation plan.Generation `json:"generation"`
	Layers     int             `json:"layers"`
	// SizeBytes of all layers, wherever they are.
	SizeBytes int64 `json:"size_bytes"`
	// Time is when this node learned of it; zero when that is not known.
	Time time.Time `json:"time,omitzero"`
	// Holders are the nodes that keep some of it, sorted; every layer is on at least Copies
	// of them.
	Holders []plan.PeerID `json:"holders"`
	// HolderNames are what people call them, in the same order.
	HolderNames []string `json:"holder_names"`
	Copies      int      `json:"copies"`
	// Here counts the layers of which this node has every chunk, whether it holds them for others or not.
	Here int `json:"here"`
}

// CheckpointList are the checkpoints of a node, newest first.
type CheckpointList struct {
	Checkpoints []StoredCheckpoint `json:"checkpoints"`
	// Damaged says which could not be read; empty when all could.
	Damaged string `json:"damaged,omitempty"`
	// Index says what is damaged of the store's index, and what helps; empty for nothing. Checkpoints may be whole all the same.
	Index string `json:"index,omitempty"`
}

// Data describes what the run trains on.
type Data struct {
	SizeBytes    int64 `json:"size_bytes"`
	HeldOutBytes int64 `json:"held_out_bytes"`
}
