package consensus

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"pnode/pipeline/wire"
	"pnode/planner/claims"
	"pnode/planner/plan"
	"pnode/swarm/consensus/rounds"
)

var errNoRun = errors.New("no run is set")

func (e SetPlan) apply(s State) (State, error) {
	encoded := e.Plan.Encode()
	if s.Plan.Generation != 0 && e.Term == s.Term && bytes.Equal(encoded, s.Plan.Encode()) {
		return s, nil
	}
	if err := e.fences(s); err != nil {
		return s, fmt.Errorf("set plan %d: %w", e.Plan.Generation, err)
	}
	if len(encoded) > plan.MaxPlanBytes {
		return s, fmt.Errorf("set plan %d: %d bytes, at most %d", e.Plan.Generation, len(encoded), plan.MaxPlanBytes)
	}
	if err := errors.Join(e.Plan.Validate(s.Run.Model.Layers(), s.Run.Train.Sums()), e.Plan.CheckTied(s.Run.Model)); err != nil {
		return s, fmt.Errorf("set plan %d: %w", e.Plan.Generation, err)
	}
	if err := errors.Join(e.checkPlacements(s), e.checkSettled(s), e.checkSync(s)); err != nil {
		return s, fmt.Errorf("set plan %d: %w", e.Plan.Generation, err)
	}
	if len(e.Reasons) > maxReasons || slices.ContainsFunc(e.Reasons, func(r string) bool { return len(r) > maxText }) {
		return s, fmt.Errorf("set plan %d: more than %d reasons, or one over %d bytes", e.Plan.Generation, maxReasons, maxText)
	}
	s.Plan, s.Term, s.PlanEpoch, s.Reasons = e.Plan, e.Term, e.Epoch, slices.Clone(e.Reasons)
	for i, r := range s.Reasons {
		s.Reasons[i] = plan.Clip(r, maxText)
	}
	s.PlanPauses, s.Pending, s.Salvage, s.Substitute, s.Successors = s.PauseWanted, nil, nil, nil, nil
	s.Round, s.Merged = rounds.First(*s.Run, s.Plan), nil
	return s, nil
}

// fences refuses a plan that was made from another state than s.
func (e SetPlan) fences(s State) error {
	switch {
	case s.Run == nil:
		return errNoRun
	case e.Plan.Run != s.Run.Run:
		return fmt.Errorf("it is for run %q, this is %q", wire.Clip(string(e.Plan.Run), maxName), s.Run.Run)
	case s.Finished:
		return errors.New("the run is finished")
	case s.StopWanted:
		return errors.New("the run is to stop")
	case e.Plan.Generation != s.Plan.Generation+1:
		return fmt.Errorf("generation %d follows %d: %w", e.Plan.Generation, s.Plan.Generation, ErrStale)
	case e.Term < s.Term:
		return fmt.Errorf("term %d, the plan in force is of term %d: %w", e.Term, s.Term, ErrStale)
	case e.Epoch != s.Epoch:
		return fmt.Errorf("epoch %d of the roster, it is at %d: %w", e.Epoch, s.Epoch, ErrStale)
	case e.Plan.Start != s.Checkpoint.Step:
		return fmt.Errorf("starts from step %d, the newest checkpoint is of %d: %w", e.Plan.Start, s.Checkpoint.Step, ErrStale)
	}
	return nil
}

// checkPlacements wants each stage on an active member and its copy with a member.
func (e SetPlan) checkPlacements(s State) error {
	for r, pipe := range e.Plan.Replicas {
		for i, p := range pipe.Stages {
			if m, ok := s.Member(p.Peer); !ok || m.State != Active {
				return fmt.Errorf("replica %d stage %d is on %q, which is not active", r, i, wire.Clip(string(p.Peer), maxName))
			}
			if m, ok := s.Member(p.Holder); p.Holder != "" && (!ok || m.State == Gone) {
				return fmt.Errorf("replica %d stage %d is held by %q, which is not in the run", r, i, wire.Clip(string(p.Holder), maxName))
			}
			if !name(p.Device) {
				return fmt.Errorf("replica %d stage %d: device name of %d bytes, want 1 to %d", r, i, len(p.Device), maxName)
			}
		}
	}
	return nil
}

// checkSettled wants the storage and the codec of the plans before, where the run left them to its first plan: they decide
// how steps round, which no change of plan may change.
func (e SetPlan) checkSettled(s State) error {
	was, train := s.Plan, s.Run.Train
	if err := e.Plan.OneStorage(); err != nil {
		return err
	}
	switch {
	case train.Storage.Auto && was.Generation != 0 && e.Plan.Storage() != was.Storage():
		return fmt.Errorf("its stages store %v, those of the plan before %v, and a run keeps one storage", e.Plan.Storage(), was.Storage())
	case !train.Codec.Auto():
	case was.Codec != "" && e.Plan.Codec != was.Codec:
		return fmt.Errorf("its codec is %q, that of the plan before %q, and a run keeps one codec", wire.Clip(e.Plan.Codec, maxName), was.Codec)
	case e.Plan.Codec == "" && e.Plan.Crosses():
		return errors.New("it names no codec for the boundaries between its workers")
	}
	return nil
}

// checkSync wants local steps where the run has them, as it has them, and the samples that the checkpoint has left.
func (e SetPlan) checkSync(s State) error {
	sync, local, stream := s.Run.Train.Sync, e.Plan.Local, s.Checkpoint.Stream
	switch {
	case !sync.Local && plan.FollowsLocal(e.Plan):
		return errors.New("its replicas make local steps, or it goes on from such, and the run sums gradients in every step")
	case e.Plan.Stream.Fresh != stream.Fresh || !slices.Equal(e.Plan.Stream.Given, stream.Given):
		return fmt.Errorf("its samples are not those that the checkpoint of step %d has left: %w", s.Checkpoint.Step, ErrStale)
	case local == nil:
	case e.Plan.Start < sync.WarmupEnd(s.Run.Train.Steps):
		return fmt.Errorf("local steps from step %d on, in a warm-up up to step %d", e.Plan.Start, sync.WarmupEnd(s.Run.Train.Steps))
	case sync.Every != 0 && local.Every != sync.Every:
		return fmt.Errorf("%d inner steps between outer steps, the run has %d", local.Every, sync.Every)
	case sync.Codec != "" && local.Codec != sync.Codec:
		return fmt.Errorf("outer gradients in %s, the run has them in %s", local.Codec, sync.Codec)
	}
	return e.checkOwn(s)
}

// checkOwn wants replicas to begin with own states that checkpoints have, and with some where the newest one has such.
func (e SetPlan) checkOwn(s State) error {
	for r, pipe := range e.Plan.Replicas {
		own := pipe.Own
		switch {
		case own == nil && len(s.Checkpoint.Own) > 0:
			return fmt.Errorf("replica %d begins with no replica's state, and the checkpoint of step %d has what all have in common alone", r, s.Checkpoint.Step)
		case own == nil:
		case len(s.Checkpoint.Own) == 0:
			return fmt.Errorf("replica %d begins with the state of replica %d, and replicas had no state of their own at step %d", r, own.Replica, s.Checkpoint.Step)
		case !slices.ContainsFunc(Checkpoints(s), func(c Checkpoint) bool { return c.Step == own.Step && c.hasOwn(*s.Run, own.Replica) }):
			return fmt.Errorf("replica %d begins with the state of replica %d at step %d, which no checkpoint has whole", r, own.Replica, own.Step)
		}
	}
	return nil
}

func (e Gathered) apply(s State) (State, error) {
	next, err := inRound(s, e.Generation, e.From, func(r rounds.Round) (rounds.Round, error) { return r.Gather(plan.Gathered(e)) })
	if err != nil {
		return s, fmt.Errorf("gathered for replica %d by %q: %w", e.Replica, s.NameOf(e.by(s)), err)
	}
	return next, nil
}

// by returns the peer that says what a replica has: the coordinator of its steps. It is empty where the plan has no such replica.
func (e Gathered) by(s State) plan.PeerID {
	if e.Generation != s.Plan.Generation || e.Replica < 0 || int(e.Replica) >= len(s.Plan.Replicas) {
		return ""
	}
	return s.Substitute.Carrier(plan.CoordinatorOf(s.Plan, e.Replica).Peer)
}

func (e CloseRound) apply(s State) (State, error) {
	next, err := inRound(s, e.Generation, e.From, func(r rounds.Round) (rounds.Round, error) { return r.Close(), nil })
	if err != nil {
		return s, fmt.Errorf("close round: %w", err)
	}
	return next, nil
}

func (e LeaveOut) apply(s State) (State, error) {
	if len(e.Reason) > maxText {
		return s, fmt.Errorf("leave out replica %d: reason of %d bytes, at most %d", e.Replica, len(e.Reason), maxText)
	}
	out := rounds.LeftOut{Replica: e.Replica, Reason: plan.Clip(e.Reason, maxText)}
	next, err := inRound(s, e.Generation, e.From, func(r rounds.Round) (rounds.Round, error) { return r.LeaveOut(s.Plan, out) })
	if err != nil {
		return s, fmt.Errorf("leave out replica %d: %w", e.Replica, err)
	}
	return next, nil
}

// inRound returns the state with the round changed that is under way. What comes late for the round that was merged last changes nothing.
func inRound(s State, g plan.Generation, from plan.Step, change func(rounds.Round) (rounds.Round, error)) (State, error) {
	switch {
	case s.Run == nil:
		return s, errNoRun
	case g != s.Plan.Generation || g == 0:
		return s, fmt.Errorf("generation %d, the current one is %d: %w", g, s.Plan.Generation, ErrStale)
	case s.Plan.Local == nil:
		return s, fmt.Errorf("the replicas of generation %d make no local steps", g)
	case s.Merged != nil && s.Merged.From == from:
		return s, nil
	case s.Round == nil || s.wentBack():
		return s, fmt.Errorf("generation %d has no round any more: %w", g, ErrStale)
	case s.Round.From != from:
		return s, fmt.Errorf("the round after step %d, the one under way is after step %d: %w", from, s.Round.From, ErrStale)
	}
	next, err := change(*s.Round)
	if errors.Is(err, rounds.ErrStale) {
		return s, fmt.Errorf("%w: %w", err, ErrStale)
	}
	if err != nil {
		return s, err
	}
	s.Round = &next
	return s, nil
}

// closed returns the state with the round closed that is under way once the run pauses or stops. It stays so where the run goes on: some replicas may have ended it.
func closed(s State) State {
	if s.Round != nil && !s.Round.Closed && (s.Paused() || s.StopWanted) {
		r := s.Round.Close()
		s.Round = &r
	}
	return s
}

// merged returns the state with the round's outer step, and the next round, where all that it waits for is there. The checkpoint that the
// outer step asks for is pending from then on.
func merged(s State) State {
	if s.Round == nil || s.wentBack() {
		return s
	}
	m, ok := s.Round.Merge(*s.Run, s.Plan, s.Paused() || s.StopWanted)
	if !ok {
		return s
	}
	s.Merged, s.Round = &m, rounds.After(*s.Run, s.Plan, m)
	if m.Save {
		c := Checkpoint{Step: m.To, Generation: m.Generation, Last: m.Last, Stream: m.Stream}
		for _, r := range m.Counted() {
			c.Own = append(c.Own, OwnState{Replica: r})
		}
		s.Pending = append(slices.Clone(s.Pending), c)
		s.Pending = s.Pending[max(0, len(s.Pending)-MaxPending):]
	}
	return s
}

// apply marks the lost member gone as SetMemberState does.
func (e Substitute) apply(s State) (State, error) {
	if s.Substitute != nil && *s.Substitute == e {
		return s, nil
	}
	if err := e.check(s); err != nil {
		return s, fmt.Errorf("substitute for %s: %w", e.Lost.Short(), err)
	}
	next, err := SetMemberState{Peer: e.Lost, ProcessEpoch: e.ProcessEpoch, State: Gone, Reason: e.Reason}.apply(s)
	if err != nil {
		return s, fmt.Errorf("substitute for %s: %w", e.Lost.Short(), err)
	}
	next.Substitute = &e
	return next, nil
}

// check refuses what belongs to another plan, or to one that ends, and members that cannot go on in the lost one's place.
func (e Substitute) check(s State) error {
	switch {
	case s.Run == nil:
		return errNoRun
	case e.Generation != s.Plan.Generation || e.Generation == 0:
		return fmt.Errorf("generation %d, the current one is %d: %w", e.Generation, s.Plan.Generation, ErrStale)
	case s.Finished || s.StopWanted || s.Paused() || s.Ended() || s.Salvage != nil || s.wentBack() || s.Checkpoint.Step < s.Plan.Start:
		return fmt.Errorf("generation %d ends: %w", e.Generation, ErrStale)
	case s.Substitute != nil:
		return errors.New("the plan has a substitute already")
	case e.Replays && e.From != s.Checkpoint.Step:
		return fmt.Errorf("it begins with step %d, the newest checkpoint is of step %d: %w", e.From, s.Checkpoint.Step, ErrStale)
	case e.Replays && !slices.Contains(s.Plan.Replayers(e.Lost), e.By):
		return fmt.Errorf("by the plan %s cannot do the part of %s", e.By.Short(), e.Lost.Short())
	case !e.Replays && (e.From != 0 || !slices.Contains(s.Plan.Substitutes(e.Lost), e.By)):
		return fmt.Errorf("the plan has nobody's layers twice that could be %s and %s", e.Lost.Short(), e.By.Short())
	}
	for _, peer := range []plan.PeerID{e.Lost, e.By} {
		m, ok := s.Member(peer)
		if !ok || m.State != Active && (m.State != Draining || peer == e.By) || s.Reborn(m) {
			return fmt.Errorf("%s does not carry out the plan: %w", peer.Short(), ErrStale)
		}
	}
	return nil
}

// Carrier returns who does a peer's part of the current plan: itself, or its substitute. A nil Substitute stands in for nobody.
func (e *Substitute) Carrier(peer plan.PeerID) plan.PeerID {
	if e != nil && e.Lost == peer {
		return e.By
	}
	return peer
}

// Coordinator returns who coordinates the steps of the current plan.
func (e *Substitute) Coordinator(current plan.Plan) plan.PeerID {
	return e.Carrier(current.Coordinator().Peer)
}

// Shown writes down what the steps of the current plan have shown of its members' speeds. The leader proposes it.
// Plans count on no more of what a member claims than that and a margin, see package claims.
type Shown struct {
	Generation plan.Generation `json:"generation"`
	Members    []ShownMember   `json:"members"`
}

// ShownMember says that a member had so many operations a second at least, and whether steps took the time that
// was predicted.
type ShownMember struct {
	Peer  plan.PeerID `json:"peer"`
	FLOPS int64       `json:"flops"`
	Held  bool        `json:"held,omitempty"`
}

func (e Shown) apply(s State) (State, error) {
	if err := e.check(s); err != nil {
		return s, fmt.Errorf("shown: %w", err)
	}
	changed := false
	for _, said := range e.Members {
		m, _ := s.Member(said.Peer)
		if next, ok := m.Shown.After(e.Generation, said.FLOPS, said.Held); ok {
			m.Shown, changed = next, true
			s = s.withMember(m)
		}
	}
	if changed {
		s.Epoch++ // a plan depends on it
	}
	return s, nil
}

func (e Shown) check(s State) error {
	switch {
	case s.Run == nil:
		return errNoRun
	case s.Finished:
		return errors.New("the run is finished")
	case e.Generation != s.Plan.Generation || e.Generation == 0:
		return fmt.Errorf("generation %d, the current one is %d: %w", e.Generation, s.Plan.Generation, ErrStale)
	case len(e.Members) < 1 || len(e.Members) > MaxMembers:
		return fmt.Errorf("%d members, want 1 to %d", len(e.Members), MaxMembers)
	}
	for i, said := range e.Members {
		const most = plan.MaxDevices * plan.MaxFLOPS
		switch _, known := s.Member(said.Peer); {
		case !known || !s.Plan.Places(said.Peer):
			return fmt.Errorf("%q has no part in generation %d", wire.Clip(string(said.Peer), maxName), e.Generation)
		case said.FLOPS < 1 || said.FLOPS > most:
			return fmt.Errorf("flops of %s is %d: want 1 to %d", said.Peer.Short(), said.FLOPS, int64(most))
		case slices.ContainsFunc(e.Members[:i], func(m ShownMember) bool { return m.Peer == said.Peer }):
			return fmt.Errorf("%s is there twice", said.Peer.Short())
		}
	}
	return nil
}

// breaking returns what is shown of a member whose process ends now.
func (s State) breaking(m Member) plan.Shown {
	if s.Plan.Generation == 0 || s.StopWanted || s.Finished || !s.Plan.Places(m.Peer) || s.Checkpoint.Step > s.Plan.Start {
		return m.Shown
	}
	return m.Shown.Breaking(s.Plan.Generation)
}

// kept notes who had a part in a checkpoint, of those who left plans before or were slow.
func (s State) kept() State {
	for _, m := range s.Members {
		if next := m.Shown.Saved(s.Plan.Places(m.Peer)); next != m.Shown && m.State != Gone {
			m.Shown = next
			s = s.withMember(m)
		}
	}
	return s
}

// BelieveMemory returns the state with all memory that members claim.
func (s State) BelieveMemory() State {
	s.Members = slices.Clone(s.Members)
	for i := range s.Members {
		s.Members[i].Shown.Broke = 0
	}
	return s
}

// Counted returns what plans count on of the claims of the members that are active or draining.
func (s State) Counted() []claims.Counted {
	var all []claims.Claim
	for _, m := range s.Members {
		if m.State == Active || m.State == Draining {
			all = append(all, claims.Claim{Peer: m.Peer, Profile: m.Profile, Owner: slices.Contains(s.Owners, m.Peer), Shown: m.Shown})
		}
	}
	var storage plan.StorageRule
	if s.Run != nil {
		storage = s.Run.Train.Storage
	}
	if storage.Auto && s.Plan.Generation != 0 {
		storage = plan.Storage(s.Plan.Storage())
	}
	return claims.Count(storage, all)
}
