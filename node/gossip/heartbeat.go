package gossip

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"pnode/pipeline"
	"pnode/pipeline/wire/strict"
	"pnode/planner"
	"pnode/planner/holders"
	"pnode/planner/plan"
	"pnode/swarm/topics"
)

// Heartbeat reports that its sender lives, and what it is doing. Every member gossips one
// each second, or at its pace (Paces); the leader's view of who lives and every node's status come from them.
type Heartbeat struct {
	Peer plan.PeerID `json:"peer"`
	// UnixMillis is the time by the sender's clock; 0 says nothing.
	UnixMillis int64           `json:"unix_ms,omitempty"`
	Phase      string          `json:"phase"`
	Generation plan.Generation `json:"generation"`
	// Lineage is that of the log in which Generation was made (plan.Partings.Of).
	Lineage string `json:"lineage,omitempty"`
	// Stalled is the generation that the sender had to give up, for Reason; 0 is none.
	Stalled plan.Generation `json:"stalled,omitempty"`
	Reason  string          `json:"reason,omitempty"`
	// Fault is what the sender found with another worker, or with itself, where that was the reason.
	Fault *plan.Fault `json:"fault,omitempty"`
	// Lacks marks a generation given up for want of chunks of its checkpoint.
	Lacks bool `json:"lacks,omitempty"`
	// LacksLayer is the layer that they are of, of which the sender has no whole copy; nil where they are of none.
	LacksLayer *int `json:"lacks_layer,omitempty"`
	// Retained is what the sender's workers have left in memory of that generation, or of Generation once they have ended.
	Retained []RetainedStage `json:"retained,omitempty"`
	// Blocked says why the leader has no plan; other members leave it empty.
	Blocked string `json:"blocked,omitempty"`
	// Finished is the step at which the run was finished; 0 while it goes on.
	Finished plan.Step `json:"finished,omitempty"`
	// Extends is the later last step that an owner gives a finished run; 0 is none.
	Extends plan.Step    `json:"extends,omitempty"`
	Stages  []StageTimes `json:"stages,omitempty"`
	Step    plan.Step    `json:"step"`
	// Loss of Step; only meaningful when Step is not 0.
	Loss       float64 `json:"loss"`
	TokensPerS float64 `json:"tokens_per_s"`
	// StepNanos is the duration of Step here; Links are the rates seen on the way, which take turns where there are many.
	StepNanos int64      `json:"step_nanos,omitempty"`
	Links     []LinkRate `json:"links,omitempty"`
	// Slower is the newest step of Generation by which a stage or a link of the sender had become slower than it used to
	// be; 0 is none.
	Slower plan.Step `json:"slower,omitempty"`
	// Schedule is the text of the plan.ScheduleChoice of Step.
	Schedule string `json:"course,omitempty"`
	// Kept is the first step of that generation of which the sender keeps all messages that it sent; 0: it keeps none.
	// NoReplay says that it cannot replay another's workers.
	Kept     plan.Step `json:"kept,omitempty"`
	NoReplay bool      `json:"no_replay,omitempty"`
	// Replayed is the newest step that the sender has computed again for members that are gone, as the log asks; 0 where it does not.
	Replayed plan.Step `json:"replayed,omitempty"`
	// NoRestore is the step of a checkpoint whose lost layers the sender cannot compute again; 0 is none.
	NoRestore plan.Step `json:"no_restore,omitempty"`
	// Copying says that checkpoints of the sender's stages of Generation, or copies of them, are under way.
	Copying bool `json:"copying,omitempty"`
	// LeftOut is the step of the newest checkpoint that the sender did not save, for want of room on its disk; 0 once it has saved a later one.
	LeftOut plan.Step `json:"left_out,omitempty"`
	// Inner has the newest step of each replica with local steps that the sender computes for, which has not counted before Step comes to it.
	Inner []InnerStep `json:"inner,omitempty"`
	// HandedIn says of the replicas with local steps that the sender coordinates what they have done in the round under way, once they have.
	HandedIn []HandedIn `json:"handed_in,omitempty"`
	// Found says what members of other replicas with local steps have sent to the sender that no honest one does, MaxFound of them at most.
	Found []FoundFault `json:"found,omitempty"`
	// Met has the newest outer step of each replica with local steps that the sender computes for.
	Met []Met `json:"met,omitempty"`
	// Cadence is how often the sender has checkpoints of Generation made; nil where it does not coordinate the steps.
	Cadence *holders.Cadence `json:"cadence,omitempty"`
	// Wish is the schedule that the leader wants; other members leave it nil.
	Wish *ScheduleWish `json:"wanted,omitempty"`
	// Spares says what members without a stage would add, as the leader has found; other members leave it nil.
	Spares *Spares `json:"spares,omitempty"`
	// Hints says what would have the run train faster, as the leader has found; other members leave it nil.
	Hints *Hints `json:"hints,omitempty"`
	// Whole says which checkpoint the sender keeps whole; nil where it has none and is to have none.
	Whole *plan.WholeCopy `json:"whole,omitempty"`
}

// HandedIn says that a replica with local steps has ended its part of the round after step From: with so many inner steps, and without the messages of
// the replicas that it lacks, in ascending order.
type HandedIn struct {
	Generation plan.Generation `json:"generation"`
	From       plan.Step       `json:"from"`
	Replica    plan.Replica    `json:"replica"`
	Steps      plan.Step       `json:"steps"`
	Lacks      []plan.Replica  `json:"lacks,omitempty"`
}

// FoundFault is a fault of a member of another replica in the round after step From, which does not end the generation.
type FoundFault struct {
	Generation plan.Generation `json:"generation"`
	From       plan.Step       `json:"from"`
	plan.Fault
}

// MaxFound bounds what a heartbeat says of other replicas' members.
const MaxFound = 4

// InnerStep is a step that a replica has made on its own, with the mean loss of its share of the micro-batches. Nanos is what such steps take on
// average; 0 is unknown.
type InnerStep struct {
	Replica plan.Replica `json:"replica"`
	Step    plan.Step    `json:"step"`
	Loss    float64      `json:"loss"`
	Nanos   int64        `json:"nanos,omitempty"`
}

// ScheduleWish names a schedule for the next steps of a generation, and why it is better.
type ScheduleWish struct {
	Generation plan.Generation `json:"generation"`
	Schedule   string          `json:"course"`
	Why        string          `json:"why"`
}

// Spares says what members that have no stage in the plan of Generation would add to it. Times are predicted.
type Spares struct {
	Generation plan.Generation `json:"generation"`
	Members    []Spare         `json:"members,omitempty"`
}

// Hints says in sentences for people what would make steps of the plan of Generation, or of a new run, faster.
type Hints struct {
	Generation plan.Generation `json:"generation"`
	Texts      []string        `json:"texts,omitempty"`
}

// Spare is a member without a stage. WithNanos is the step of the best plan that uses it, 0 where none comes close, and WithoutNanos that of
// the best one that does not.
type Spare struct {
	Peer         plan.PeerID `json:"peer"`
	WithNanos    int64       `json:"with_nanos,omitempty"`
	WithoutNanos int64       `json:"without_nanos"`
}

// StageTimes says where one stage's newest step went.
type StageTimes struct {
	Replica       plan.Replica `json:"replica"`
	Stage         plan.Stage   `json:"stage"`
	ForwardNanos  int64        `json:"forward_nanos"`
	BackwardNanos int64        `json:"backward_nanos"`
	WaitNanos     int64        `json:"wait_nanos"`
	UpdateNanos   int64        `json:"update_nanos"`
	// FellBack counts the tensors that were sent in a better codec than the plan's. RelError
	// is the largest relative error of one.
	FellBack int     `json:"fell_back,omitempty"`
	RelError float64 `json:"rel_error,omitempty"`
}

// RetainedStage is the state of a stage after Step. Pending is the step after it where the sender has its gradients
// and only lacks the commit, else 0.
type RetainedStage struct {
	Replica plan.Replica `json:"replica"`
	Stage   plan.Stage   `json:"stage"`
	Step    plan.Step    `json:"step"`
	Pending plan.Step    `json:"pending,omitempty"`
}

const (
	// Every is the time between two heartbeats of a member.
	Every = time.Second
	// MaxScheduleBytes bounds the text of a schedule, MaxWhyBytes why it is wanted. A longer
	// schedule changes with a plan only.
	MaxScheduleBytes = 4 << 10
	MaxWhyBytes      = 512

	maxHeartbeatBytes = 24 << 10
	maxReasonBytes    = 300
	maxBlockedBytes   = 600 // who is waited for, and what helps
	maxPhaseBytes     = 32
	maxLineageBytes   = 32
	maxStages         = 64
	maxSpares         = 64
	maxHints          = 6
	maxHintBytes      = 240
	// maxLacks bounds what all replicas of a heartbeat lack. One that a whole plan lacks has a device for each of its replicas to itself.
	maxLacks = 4 * plan.MaxLocalReplicas
)

// Measured returns the times of a heartbeat of one of a plan's members: its own stages, each once, and its links to
// other members.
func (b Heartbeat) Measured(p plan.Plan) planner.Measured {
	out := planner.Measured{StepNanos: b.StepNanos}
	told := map[plan.StageID]bool{}
	for _, s := range b.Stages {
		id := plan.StageID{Replica: s.Replica, Stage: s.Stage}
		if told[id] || !p.Has(b.Peer, id) {
			continue
		}
		told[id] = true
		out.Stages = append(out.Stages, planner.MeasuredStage{
			Replica: s.Replica, Stage: s.Stage, ForwardNanos: s.ForwardNanos, BackwardNanos: s.BackwardNanos, UpdateNanos: s.UpdateNanos,
		})
	}
	for _, l := range b.Links {
		if p.Places(l.Peer) {
			out.Links = append(out.Links, planner.MeasuredLink{From: b.Peer, To: l.Peer, BytesPerS: l.BytesPerS, RTTNanos: l.RTTNanos, JitterNanos: l.JitterNanos, Transport: l.Transport})
		}
	}
	return out
}

var errBadMessage = errors.New("gossip: bad message")

// Newest returns the newest step that the sender's stage times are of: with local steps one that may not count yet.
func (b Heartbeat) Newest() plan.Step {
	newest := b.Step
	for _, i := range b.Inner {
		newest = max(newest, i.Step)
	}
	return newest
}

// Encode returns the heartbeat as JSON. Texts and lists that are too long are cut, and so are numbers that are too
// large; one that is not a number panics.
func (b Heartbeat) Encode() []byte {
	if b.Wish != nil {
		wish := *b.Wish
		b.Wish = &wish
	}
	if b.Whole != nil {
		whole := *b.Whole
		b.Whole = &whole
	}
	if b.Cadence != nil {
		cadence := *b.Cadence
		b.Cadence = &cadence
	}
	if b.Spares != nil {
		spares := *b.Spares
		spares.Members = slices.Clone(spares.Members[:min(len(spares.Members), maxSpares)])
		b.Spares = &spares
	}
	if b.Hints != nil {
		hints := *b.Hints
		hints.Texts = slices.Clone(hints.Texts[:min(len(hints.Texts), maxHints)])
		b.Hints = &hints
	}
	b.Stages, b.Links = slices.Clone(b.Stages[:min(len(b.Stages), maxStages)]), slices.Clone(b.Links)
	b.Retained = b.Retained[:min(len(b.Retained), maxStages)]
	b.HandedIn, b.Inner = b.HandedIn[:told(b.HandedIn)], slices.Clone(b.Inner[:min(len(b.Inner), plan.MaxLocalReplicas)])
	b.Met = slices.Clone(b.Met[:metTold(b.Met)])
	texts, most := b.texts()
	for i, text := range texts {
		*text = plan.Clip(*text, most[i])
	}
	b.Found = slices.Clone(b.Found[:min(len(b.Found), MaxFound)])
	for i := range b.Found {
		b.Found[i].Fault = b.Found[i].Told()
	}
	if b.Fault != nil {
		told := b.Fault.Told()
		b.Fault = &told
	}
	b.clamp()
	data, err := json.Marshal(b)
	if err != nil {
		panic("node: heartbeat does not marshal: " + err.Error())
	}
	return data
}

func decodeHeartbeat(data []byte) (Heartbeat, error) {
	if len(data) > maxHeartbeatBytes {
		return Heartbeat{}, fmt.Errorf("%w: a heartbeat of %d bytes, at most %d", errBadMessage, len(data), maxHeartbeatBytes)
	}
	var b Heartbeat
	if err := strict.Decode(data, &b); err != nil {
		return Heartbeat{}, fmt.Errorf("%w: heartbeat: %w", errBadMessage, err)
	}
	if max(len(b.Stages), len(b.Retained)) > maxStages || len(b.Links) > maxRates {
		return Heartbeat{}, fmt.Errorf("%w: a heartbeat of %d stages, %d that are left and %d links, at most %d, %d and %d", errBadMessage, len(b.Stages), len(b.Retained), len(b.Links), maxStages, maxStages, maxRates)
	}
	if b.Spares != nil && len(b.Spares.Members) > maxSpares {
		return Heartbeat{}, fmt.Errorf("%w: a heartbeat of %d members without a stage, at most %d", errBadMessage, len(b.Spares.Members), maxSpares)
	}
	if b.Hints != nil && len(b.Hints.Texts) > maxHints {
		return Heartbeat{}, fmt.Errorf("%w: a heartbeat of %d hints, at most %d", errBadMessage, len(b.Hints.Texts), maxHints)
	}
	if len(b.Inner) > plan.MaxLocalReplicas {
		return Heartbeat{}, fmt.Errorf("%w: a heartbeat of steps of %d replicas, at most %d", errBadMessage, len(b.Inner), plan.MaxLocalReplicas)
	}
	if told(b.HandedIn) < len(b.HandedIn) {
		return Heartbeat{}, fmt.Errorf("%w: a heartbeat of %d replicas that have ended a round, at most %d that lack %d", errBadMessage, len(b.HandedIn), plan.MaxLocalReplicas, maxLacks)
	}
	if metTold(b.Met) < len(b.Met) {
		return Heartbeat{}, fmt.Errorf("%w: a heartbeat of %d outer steps, want at most %d replicas of them", errBadMessage, len(b.Met), maxApart)
	}
	if len(b.Found) > MaxFound {
		return Heartbeat{}, fmt.Errorf("%w: a heartbeat of %d faults of other replicas, at most %d", errBadMessage, len(b.Found), MaxFound)
	}
	for _, f := range b.Found {
		if err := f.Check(); err != nil {
			return Heartbeat{}, fmt.Errorf("%w: heartbeat: %w", errBadMessage, err)
		}
	}
	if b.Fault != nil {
		if err := b.Fault.Check(); err != nil {
			return Heartbeat{}, fmt.Errorf("%w: heartbeat: %w", errBadMessage, err)
		}
	}
	if err := b.check(); err != nil {
		return Heartbeat{}, fmt.Errorf("%w: heartbeat: %w", errBadMessage, err)
	}
	return b, nil
}

// told counts the replicas that a heartbeat has room for.
func told(all []HandedIn) int {
	lacks := 0
	for i, h := range all {
		if lacks += len(h.Lacks); i == plan.MaxLocalReplicas || lacks > maxLacks {
			return i
		}
	}
	return len(all)
}

// TimesOf returns a worker's stage times as a heartbeat reports them.
func TimesOf(t pipeline.StageTimes) StageTimes {
	sent := t.SentForward.Plus(t.SentBack)
	return StageTimes{
		FellBack: sent.FellBack, RelError: sent.RelError,
		Replica: t.Replica, Stage: t.Stage,
		ForwardNanos: t.Forward.Nanoseconds(), BackwardNanos: t.Backward.Nanoseconds(),
		WaitNanos: t.Wait.Nanoseconds(), UpdateNanos: t.Update.Nanoseconds(),
	}
}

// Topics publishes to the members of the run and hears them; swarm's *topics.Topics implements it.
type Topics interface {
	Publish(ctx context.Context, topic string, data []byte) error
	Subscribe(topic string, decode func(from plan.PeerID, data []byte) (any, error), hear func(from plan.PeerID, message any)) error
}

// Listen begins to note the heartbeats of the other members. One that speaks for another peer
// than its sender is refused. One of a step after the run's last, which steps returns, is not noted;
// while that is 0, and without steps, it is not known.
func (t *Tracker) Listen(members Topics, steps func() plan.Step) error {
	return listen(members, topics.Events, decodeHeartbeat, func(b Heartbeat) plan.PeerID { return b.Peer }, func(b Heartbeat) {
		if steps != nil {
			if last := steps(); last != 0 && max(b.Step, b.Finished) > last {
				return
			}
		}
		t.Note(b, time.Now())
		if t.Clock != nil && b.UnixMillis != 0 {
			t.Clock.Note(b.Peer, time.UnixMilli(b.UnixMillis))
		}
	})
}

// listen calls hear for each message of a topic. One that speaks for another peer than its sender
// is refused.
func listen[M any](members Topics, topic string, decode func([]byte) (M, error), peer func(M) plan.PeerID, hear func(M)) error {
	return members.Subscribe(topic, func(from plan.PeerID, data []byte) (any, error) {
		m, err := decode(data)
		if err == nil && peer(m) != from {
			err = fmt.Errorf("%w: it speaks for %.80q", errBadMessage, peer(m))
		}
		return m, err
	}, func(_ plan.PeerID, message any) { hear(message.(M)) })
}

// Send notes this node's own heartbeat and publishes it.
func (t *Tracker) Send(ctx context.Context, members Topics, b Heartbeat) error {
	t.Note(b, time.Now())
	if t.Clock != nil {
		b.UnixMillis = t.Clock.Own().UnixMilli()
	}
	t.mu.Lock()
	b.Links = t.turns.next(b)
	t.mu.Unlock()
	return members.Publish(ctx, topics.Events, b.Encode())
}
