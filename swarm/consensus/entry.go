package consensus

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"

	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
	"pnode/swarm/consensus/rounds"
	"pnode/swarm/version"
)

var (
	// ErrRejected is wrapped by every refusal of the state machine: the entry was
	// committed and has changed nothing; proposing it again will not help.
	ErrRejected = errors.New("consensus: entry rejected")
	// ErrStale is wrapped, together with ErrRejected, when the entry was made from an older
	// state than the one it met: look at the state again and decide anew.
	ErrStale = errors.New("made from an older state")
	// ErrMalformed is wrapped by every error about bytes that are no entry, state, log
	// record or request.
	ErrMalformed = errors.New("consensus: malformed")
	// ErrCorrupt is wrapped when something read back from the store fails its checksum.
	ErrCorrupt = errors.New("consensus: corrupt record in the store")
	// ErrClosed is wrapped by the answers of a node that was closed or whose store failed.
	ErrClosed = errors.New("consensus: node is closed")
	// ErrStore is wrapped when the store of a node that runs could not be written or read.
	ErrStore = errors.New("this node cannot keep its copy of the run's log")
	// ErrNoLeader is wrapped when the context of a proposal ended before a leader
	// answered. Whether the entry was committed is then unknown.
	ErrNoLeader = errors.New("consensus: no leader answered")
)

// Entry is one change of the state: SetRun, Join, Update, SetMemberState, SetPlan,
// StageSaved, KeptWhole, CopyFailed, Salvage, Substitute, WantPause, WantStop, Resume, Finish, Rollback, Lead, Invite, Redeem, Revoke, Blame,
// Vouch, Shown, Recover, Gathered, CloseRound or LeaveOut.
type Entry interface {
	// apply gives the next state, or the reason why there is none. It shares what does
	// not change with the receiver's state and leaves that one as it was.
	apply(State) (State, error)
}

// SetRun is the first entry of a run. Owner is the node that founds it.
type SetRun struct {
	Spec  plan.RunSpec `json:"spec"`
	Owner plan.PeerID  `json:"owner"`
}

// Lead is a leader's first entry in its term. From then on its word counts as the leader's.
type Lead struct {
	Peer plan.PeerID `json:"peer"`
	Term plan.Term   `json:"term"`
}

// Join brings a node into the roster as joining. The same process again changes nothing; a
// new process of a known peer starts over as joining.
type Join struct {
	Peer         plan.PeerID  `json:"peer"`
	ProcessEpoch uint64       `json:"boot"`
	Addrs        []string     `json:"addrs,omitempty"`
	Label        string       `json:"label,omitempty"`
	Profile      plan.Profile `json:"profile"`
}

// Update replaces addresses and profile of a member.
type Update struct {
	Peer         plan.PeerID  `json:"peer"`
	ProcessEpoch uint64       `json:"boot"`
	Addrs        []string     `json:"addrs,omitempty"`
	Profile      plan.Profile `json:"profile"`
}

// SetMemberState moves a member on: joining to active, active to draining, any to gone.
type SetMemberState struct {
	Peer         plan.PeerID `json:"peer"`
	ProcessEpoch uint64      `json:"boot"`
	State        MemberState `json:"state"`
	Reason       string      `json:"reason,omitempty"`
	// GraceS is for how many seconds from now a draining member stays at most; 0 is not known. It names no time of
	// day: clocks differ.
	GraceS uint32 `json:"grace_s,omitempty"`
}

// SetPlan makes Plan the current generation. It is refused with ErrStale unless the
// generation is the next one, Term is no older than the current plan's, Epoch is the
// state's and the plan starts from the newest committed checkpoint.
type SetPlan struct {
	Plan    plan.Plan `json:"plan"`
	Term    plan.Term `json:"term"`
	Epoch   uint64    `json:"epoch"`
	Reasons []string  `json:"reasons,omitempty"`
}

// StageSaved reports that the state of some layers after a step is stored, or in a process's memory. When every
// layer of a step has been reported the checkpoint is committed. Reporting a layer again
// with the same chunks adds holders, also to the committed checkpoint.
type StageSaved struct {
	Step       plan.Step       `json:"step"`
	Generation plan.Generation `json:"generation"`
	// Last marks the last step of the generation: its workers wait for the next plan.
	Last   bool       `json:"last,omitempty"`
	Layers []LayerRef `json:"layers"`
	// Unstored is the process of the one holder of the layers, by its epoch, where that has them in memory alone; 0 says that they are stored.
	Unstored uint64 `json:"unstored,omitempty"`
	// Own is the replica whose own state the layers are, see OwnState; nil: they are the model's, or what replicas with local steps have in common.
	Own *plan.Replica `json:"own,omitempty"`
}

// KeptWhole says that an owner's node has all layers of a complete checkpoint, and those of others no more but as a worker or its holder.
// Step 0 says so of all.
type KeptWhole struct {
	Peer       plan.PeerID     `json:"peer"`
	Step       plan.Step       `json:"step,omitempty"`
	Generation plan.Generation `json:"generation,omitempty"`
	// Own is the replica whose own state is part of the copy, where the checkpoint has such.
	Own *plan.Replica `json:"own,omitempty"`
}

// CopyFailed says that copies of what a member computes have not got to their holder for some time. As long as the log remembers it another
// member keeps them, where there is one: see State.Holder.
type CopyFailed struct {
	Peer   plan.PeerID `json:"peer"`
	Holder plan.PeerID `json:"holder"`
}

// Salvage has the nodes that a generation's end has left save the state of its newest step from memory, so that the
// next plan starts there. A later Salvage of the generation takes the place of the one before.
type Salvage struct {
	Generation plan.Generation `json:"generation"`
	Step       plan.Step       `json:"step"`
	// Parts have all layers in ascending order, each once.
	Parts []SalvagePart `json:"parts"`
}

// SalvagePart says who saves some layers of a stage of the plan: the stage's own peer, or another one that replays
// the stage's worker, which is dead, from the state of step From.
type SalvagePart struct {
	Replica plan.Replica    `json:"replica"`
	Stage   plan.Stage      `json:"stage"`
	Layers  plan.LayerRange `json:"layers"`
	By      plan.PeerID     `json:"by"`
	From    plan.Step       `json:"from,omitempty"`
}

// Substitute marks a member of the current plan gone and has another one go on in its place: nobody ends the generation.
type Substitute struct {
	Generation plan.Generation `json:"generation"`
	Lost       plan.PeerID     `json:"lost"`
	// ProcessEpoch is the lost process.
	ProcessEpoch uint64      `json:"boot"`
	By           plan.PeerID `json:"by"`
	// Replays says that By begins with the newest checkpoint, of step From, and computes the lost one's steps since again. Else
	// it has the same layers in another replica, in memory, and From is 0.
	Replays bool      `json:"replays,omitempty"`
	From    plan.Step `json:"from,omitempty"`
	Reason  string    `json:"reason,omitempty"`
}

// WantPause asks the workers of the plan to save their newest step and to wait for the
// next plan. Count is the state's PauseWanted plus one, so that the same wish sent twice
// counts once.
type WantPause struct {
	Count uint64 `json:"count"`
}

// WantStop asks all nodes to save and stop.
type WantStop struct{}

// Resume takes WantStop back and begins the next incarnation: the state's plus one.
type Resume struct {
	Incarnation uint64 `json:"incarnation"`
}

// Finish ends the run: its last step is done.
type Finish struct {
	// Sample is text that the finished model wrote, at most MaxSampleBytes.
	Sample string `json:"sample,omitempty"`
}

// Extend moves the run's last step to a later one. A run that is finished goes on.
type Extend struct {
	Steps plan.Step `json:"steps"`
}

// Rollback gives up the newest checkpoint, of step From, because its chunks cannot be had
// any more, and makes the older one of step To the newest. Term is the planner's: an older
// one's is refused.
type Rollback struct {
	From   plan.Step `json:"from"`
	To     plan.Step `json:"to"`
	Term   plan.Term `json:"term"`
	Reason string    `json:"reason,omitempty"`
}

// Gathered says which messages of the other replicas a replica with local steps has in a round.
type Gathered plan.Gathered

// CloseRound has each replica end the round that began after step From with its next inner step.
type CloseRound struct {
	Generation plan.Generation `json:"generation"`
	From       plan.Step       `json:"from"`
}

// LeaveOut has nobody wait for a replica in the round that began after step From. The plan ends with that round.
type LeaveOut struct {
	Generation plan.Generation `json:"generation"`
	From       plan.Step       `json:"from"`
	Replica    plan.Replica    `json:"replica"`
	Reason     string          `json:"reason,omitempty"`
}

// kinds holds the types of entries by their numbers in the log. Numbers are never reused; 12 was one.
var kinds = [...]reflect.Type{
	1: reflect.TypeFor[SetRun](), 2: reflect.TypeFor[Join](), 3: reflect.TypeFor[Update](), 4: reflect.TypeFor[SetMemberState](),
	5: reflect.TypeFor[SetPlan](), 6: reflect.TypeFor[StageSaved](), 7: reflect.TypeFor[WantPause](), 8: reflect.TypeFor[WantStop](),
	9: reflect.TypeFor[Resume](), 10: reflect.TypeFor[Finish](), 11: reflect.TypeFor[Rollback](),
	13: reflect.TypeFor[Lead](), 14: reflect.TypeFor[Invite](), 15: reflect.TypeFor[Redeem](), 16: reflect.TypeFor[Blame](), 17: reflect.TypeFor[Shown](), 19: reflect.TypeFor[Revoke](), 20: reflect.TypeFor[Vouch](), 21: reflect.TypeFor[Salvage](), 22: reflect.TypeFor[Extend](),
	23: reflect.TypeFor[Recover](), 24: reflect.TypeFor[Substitute](), 25: reflect.TypeFor[KeptWhole](), 26: reflect.TypeFor[CopyFailed](),
	27: reflect.TypeFor[Gathered](), 28: reflect.TypeFor[CloseRound](), 29: reflect.TypeFor[LeaveOut](),
}

// kindOf returns the number of an entry's type, which is 1 at least.
func kindOf(e Entry) int { return slices.Index(kinds[:], reflect.TypeOf(e)) }

// maxBytes bounds the encoded entries of some kinds, by their numbers; the others are bounded by maxSmallBytes.
var maxBytes = [len(kinds)]int{
	1: MaxEntryBytes, 2: maxProfileBytes, 3: maxProfileBytes, 5: MaxEntryBytes, 6: MaxEntryBytes, 10: 8 * MaxSampleBytes, 17: maxShownBytes, 20: maxVoucherBytes, 21: maxSalvageBytes, 23: maxRecoveryBytes, 27: maxGatheredBytes,
}

const (
	maxProfileBytes = 96 << 10 // holds all that plan.Profile accepts; twice MaxMembers of these, and all else, fit into a state
	maxShownBytes   = 256 << 10
	maxSalvageBytes = 256 << 10 // parts for as many layers as there may be
	maxSmallBytes   = 4 << 10

	maxGatheredBytes = 12 << 10 // parts and seals of plan.MaxLocalReplicas
)

// checkSize returns an error for an entry of a kind that is too long.
func checkSize(kind, bytes int) error {
	if most := cmp.Or(maxBytes[kind], maxSmallBytes); bytes > most {
		return fmt.Errorf("%w entry of kind %d: %d bytes, at most %d are accepted", ErrMalformed, kind, bytes, most)
	}
	return nil
}

const (
	// MaxEntryBytes bounds an encoded entry: a plan of plan.MaxPlanBytes and reasons.
	MaxEntryBytes = 2 << 20
	// MaxStateBytes bounds an encoded state.
	MaxStateBytes = 224 << 20

	entryVersion = 1
	stateVersion = 1
)

// EncodeEntry returns an entry's bytes: version, kind, JSON body.
func EncodeEntry(e Entry) ([]byte, error) {
	body, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("%w entry %T: %w", ErrMalformed, e, err)
	}
	kind := kindOf(e)
	if kind < 1 {
		return nil, fmt.Errorf("%w entry %T: it has no kind", ErrMalformed, e)
	}
	if err := checkSize(kind, len(body)+2); err != nil {
		return nil, err
	}
	return append([]byte{entryVersion, byte(kind)}, body...), nil
}

// DecodeEntry reads what EncodeEntry wrote. It refuses unknown versions, kinds and
// fields, trailing bytes and more than MaxEntryBytes.
func DecodeEntry(b []byte) (Entry, error) {
	if len(b) < 2 || len(b) > MaxEntryBytes {
		return nil, fmt.Errorf("%w entry: %d bytes", ErrMalformed, len(b))
	}
	if b[0] != entryVersion {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, version.Unknown("an entry of the log", int(b[0]), entryVersion))
	}
	if int(b[1]) >= len(kinds) || kinds[b[1]] == nil {
		return nil, fmt.Errorf("%w entry of kind %d: %w: fetch the writer's release of pnode for the reader", ErrMalformed, b[1], version.Err)
	}
	if err := checkSize(int(b[1]), len(b)); err != nil {
		return nil, err
	}
	e := reflect.New(kinds[b[1]])
	if err := strict.Decode(b[2:], e.Interface()); err != nil {
		return nil, fmt.Errorf("%w entry of kind %d: %w", ErrMalformed, b[1], err)
	}
	return e.Elem().Interface().(Entry), nil
}

// EncodeState returns the bytes of a snapshot: version, JSON.
func EncodeState(s State) ([]byte, error) {
	body, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("%w state: %w", ErrMalformed, err)
	}
	if len(body)+1 > MaxStateBytes {
		return nil, fmt.Errorf("%w state: %d bytes, at most %d are accepted", ErrMalformed, len(body)+1, MaxStateBytes)
	}
	return append([]byte{stateVersion}, body...), nil
}

// DecodeState reads what EncodeState wrote, up to MaxStateBytes, and as strictly as
// DecodeEntry.
func DecodeState(r io.Reader) (State, error) {
	b, err := io.ReadAll(io.LimitReader(r, MaxStateBytes+1))
	if err != nil {
		return State{}, fmt.Errorf("consensus: read state: %w", err)
	}
	if len(b) < 1 || len(b) > MaxStateBytes {
		return State{}, fmt.Errorf("%w state: %d bytes", ErrMalformed, len(b))
	}
	if b[0] != stateVersion {
		return State{}, fmt.Errorf("%w: %w", ErrMalformed, version.Unknown("a snapshot of the state", int(b[0]), stateVersion))
	}
	var s State
	if err = strict.Decode(b[1:], &s); err == nil {
		err = s.Departures.Validate()
	}
	for _, c := range slices.Concat([]Checkpoint{s.Checkpoint}, s.Older, s.Pending) {
		bad := func(l LayerRef) bool {
			return l.Whole < 0 || l.Whole >= len(l.Holders) || len(l.Holders) > MaxHolders || len(l.Unstored) > len(l.Holders)
		}
		if err == nil && slices.ContainsFunc(append([]OwnState{{Layers: c.Layers}}, c.Own...), func(o OwnState) bool { return slices.ContainsFunc(o.Layers, bad) }) {
			err = fmt.Errorf("checkpoint of step %d: a layer with no holder but whole copies, or more than %d holders", c.Step, MaxHolders)
		}
		for i, o := range c.Own {
			if err == nil && (s.Run == nil || o.Replica < 0 || o.Replica >= plan.MaxLocalReplicas || i > 0 && o.Replica <= c.Own[i-1].Replica) {
				err = fmt.Errorf("checkpoint of step %d: the own state of replica %d is number %d", c.Step, o.Replica, i)
			}
		}
		if err == nil {
			err = c.Stream.Validate()
		}
	}
	if err == nil && s.Run != nil && s.Plan.Generation != 0 {
		err = s.Plan.Validate(s.Run.Model.Layers(), s.Run.Train.Sums())
	}
	switch {
	case err != nil || s.Round == nil && s.Merged == nil:
	case s.Run == nil || s.Plan.Generation == 0:
		err = errors.New("a round without a plan")
	default:
		err = rounds.Validate(*s.Run, s.Plan, s.Round, s.Merged)
	}
	if err != nil {
		return State{}, fmt.Errorf("%w state: %w", ErrMalformed, err)
	}
	return s, nil
}
