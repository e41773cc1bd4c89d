package consensus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// Apply returns the state that follows s when e is committed. It is total and
// deterministic and never changes s. When the entry is refused the error says why, wraps
// ErrRejected (and ErrStale where the entry came too late), and the state returned is s.
func Apply(s State, e Entry) (State, error) {
	next, err := e.apply(s)
	if err != nil {
		return s, fmt.Errorf("%w: %w", ErrRejected, err)
	}
	return succeeded(merged(closed(next))), nil
}

func (e SetRun) apply(s State) (State, error) {
	switch {
	case s.Run != nil && same(*s.Run, e.Spec):
		return s, nil
	case s.Run != nil:
		return s, fmt.Errorf("set run %q: the specification of run %q is set and never changes", wire.Clip(string(e.Spec.Run), maxName), s.Run.Run)
	case !name(string(e.Spec.Run)):
		return s, fmt.Errorf("set run: ID of %d bytes, want 1 to %d", len(e.Spec.Run), maxName)
	case e.Spec.Model.Blocks < 1 || e.Spec.Model.Blocks > maxBlocks || e.Spec.Train.Micros < 1:
		return s, fmt.Errorf("set run %q: %d blocks and %d micro-batches, want 1 to %d and at least 1", e.Spec.Run, e.Spec.Model.Blocks, e.Spec.Train.Micros, maxBlocks)
	}
	if err := e.Spec.Train.Sums().Validate(); err != nil {
		return s, fmt.Errorf("set run %q: %w", e.Spec.Run, err)
	}
	if rule := e.Spec.Train.Voters; rule != "" && !slices.Contains(plan.VoterRules(), rule) {
		return s, fmt.Errorf("set run %q: voters %q, want one of %v", e.Spec.Run, wire.Clip(string(rule), maxName), plan.VoterRules())
	}
	if err := checkLocal(e.Spec.Train); err != nil {
		return s, fmt.Errorf("set run %q: %w", e.Spec.Run, err)
	}
	if err := checkInit(e.Spec); err != nil {
		return s, fmt.Errorf("set run %q: %w", e.Spec.Run, err)
	}
	spec := e.Spec
	s.Run, s.Incarnation = &spec, 1
	if e.Owner != "" {
		s.Owners = []plan.PeerID{e.Owner}
	}
	return s, nil
}

// checkLocal bounds a run whose replicas make local steps: its micro-batches have numbers of less than 57 bits, see plan.Stream.
func checkLocal(t plan.TrainSpec) error {
	if t.Sync.Local && (t.Micros > maxLocalMicros || t.Steps > maxSteps) {
		return fmt.Errorf("%d steps of %d micro-batches with local steps, at most %d of %d", t.Steps, t.Micros, maxSteps, maxLocalMicros)
	}
	return t.Sync.Validate()
}

// checkInit bounds the weights that a run starts from.
func checkInit(spec plan.RunSpec) error {
	if spec.Init == nil {
		return nil
	}
	if layers := len(spec.Init.Layers); layers != spec.Model.Layers() {
		return fmt.Errorf("initial weights of %d layers, the model has %d", layers, spec.Model.Layers())
	}
	if files := len(spec.Init.Files); files > maxFiles {
		return fmt.Errorf("initial weights with %d files, at most %d", files, maxFiles)
	}
	if chunks := len(spec.Init.AllChunks()); chunks > MaxInitChunks {
		return fmt.Errorf("initial weights in %d chunks, at most %d (%d GiB)", chunks, MaxInitChunks, MaxInitChunks*maxChunkBytes>>30)
	}
	return nil
}

func (e Join) apply(s State) (State, error) {
	if err := CheckMember(e.Peer, e.Addrs, e.Profile); err != nil {
		return s, fmt.Errorf("join: %w", err)
	}
	if len(e.Label) > maxText {
		return s, fmt.Errorf("join %s: label of %d bytes, at most %d", e.Peer, len(e.Label), maxText)
	}
	e.Label = plan.Clip(e.Label, maxText)
	if r, revoked := s.Revocation(e.Peer); revoked {
		return s, fmt.Errorf("join: %s was %s", e.Peer.Short(), s.Removal(r))
	}
	old, known := s.Member(e.Peer)
	known = known && old.State != Gone
	if known && old.ProcessEpoch == e.ProcessEpoch {
		return s, nil
	}
	if !known && s.present() >= MaxMembers {
		return s, fmt.Errorf("join %s: the run already has %d nodes", e.Peer, MaxMembers)
	}
	shown := old.Shown
	if known {
		shown = s.breaking(old)
		s = old.departs(s, false)
	}
	s.Epoch++
	s.CopyFailures = s.CopyFailures.Restarted(e.Peer)
	return s.withMember(Member{
		Peer: e.Peer, ProcessEpoch: e.ProcessEpoch, Addrs: e.Addrs, Label: e.Label, Profile: e.Profile,
		State: Joining, Since: s.Epoch, Stood: old.Stood, Voted: old.Voted, Counter: old.Counter, Window: old.Window,
		Faults: old.Faults, Clean: old.Clean, Blamed: old.Blamed, Shown: shown,
	}), nil
}

func (e Lead) apply(s State) (State, error) {
	switch {
	case !name(string(e.Peer)):
		return s, fmt.Errorf("lead: peer ID of %d bytes, want 1 to %d", len(e.Peer), maxName)
	case e.Term < s.LeaderTerm:
		return s, fmt.Errorf("lead in term %d: %s leads in term %d: %w", e.Term, s.Leader.Short(), s.LeaderTerm, ErrStale)
	case e.Term == s.LeaderTerm && s.Leader != e.Peer && s.Leader != "":
		return s, fmt.Errorf("lead in term %d: %s does", e.Term, s.Leader.Short())
	}
	s.Leader, s.LeaderTerm = e.Peer, e.Term
	return s, nil
}

func (e Update) apply(s State) (State, error) {
	if err := CheckMember(e.Peer, e.Addrs, e.Profile); err != nil {
		return s, fmt.Errorf("update: %w", err)
	}
	m, err := s.process(e.Peer, e.ProcessEpoch)
	if err != nil {
		return s, fmt.Errorf("update: %w", err)
	}
	m.Addrs, m.Profile = e.Addrs, e.Profile
	return s.withMember(m), nil
}

func (e SetMemberState) apply(s State) (State, error) {
	m, err := s.process(e.Peer, e.ProcessEpoch)
	if err != nil {
		return s, fmt.Errorf("set member %s: %w", e.State, err)
	}
	if len(e.Reason) > maxText {
		return s, fmt.Errorf("set member %s %s: reason of %d bytes, at most %d", e.Peer, e.State, len(e.Reason), maxText)
	}
	if e.GraceS > MaxGraceS || e.GraceS > 0 && e.State != Draining {
		return s, fmt.Errorf("set member %s %s: grace of %d s: want 0 to %d, of draining members", e.Peer, e.State, e.GraceS, MaxGraceS)
	}
	if m.State == e.State {
		return s, nil
	}
	if !slices.Contains(moves[m.State], e.State) {
		return s, fmt.Errorf("set member %s %q: it is %s", e.Peer, e.State, m.State)
	}
	s.Epoch++
	if e.State == Gone && m.State != Draining {
		m.Shown = s.breaking(m)
	}
	if e.State == Gone {
		s = m.departs(s, e.Reason == ReasonLeft)
	}
	m.State, m.Reason, m.Since, m.GraceS = e.State, plan.Clip(e.Reason, maxText), s.Epoch, e.GraceS
	return s.withMember(m).forget(), nil
}

// moves lists where SetMemberState leads to. Only Join leads out of gone.
var moves = map[MemberState][]MemberState{
	Joining:  {Active, Draining, Gone},
	Active:   {Draining, Gone},
	Draining: {Gone},
}

// process returns the member if it still is the process that an entry means.
func (s State) process(peer plan.PeerID, epoch uint64) (Member, error) {
	m, ok := s.Member(peer)
	if !ok {
		return m, fmt.Errorf("%q is not in the roster", wire.Clip(string(peer), maxName))
	}
	if m.ProcessEpoch != epoch {
		return m, fmt.Errorf("%s was started again: %w", peer, ErrStale)
	}
	return m, nil
}

func (e WantPause) apply(s State) (State, error) {
	if s.Run == nil {
		return s, errNoRun
	}
	if e.Count > s.PauseWanted+1 {
		return s, fmt.Errorf("want pause %d: %d were wanted so far", e.Count, s.PauseWanted)
	}
	s.PauseWanted = max(s.PauseWanted, e.Count)
	return s, nil
}

func (WantStop) apply(s State) (State, error) {
	if s.Run == nil {
		return s, errNoRun
	}
	s.StopWanted = true
	return s, nil
}

func (e Resume) apply(s State) (State, error) {
	switch {
	case s.Run == nil:
		return s, errNoRun
	case e.Incarnation == s.Incarnation:
		return s, nil
	case e.Incarnation != s.Incarnation+1:
		return s, fmt.Errorf("resume as incarnation %d of %d: %w", e.Incarnation, s.Incarnation, ErrStale)
	case !s.StopWanted:
		return s, fmt.Errorf("resume as incarnation %d: the run was not stopped", e.Incarnation)
	}
	s.Incarnation++
	s.Epoch++
	s.StopWanted, s.Blames = false, nil // other settings may cure what was seen
	return s, nil
}

func (e Extend) apply(s State) (State, error) {
	switch {
	case s.Run == nil:
		return s, errNoRun
	case e.Steps == s.Run.Train.Steps:
		return s, nil
	case e.Steps < s.Run.Train.Steps || e.Steps > maxSteps:
		return s, fmt.Errorf("extend to step %d: the run ends at step %d, want a later one up to %d", e.Steps, s.Run.Train.Steps, maxSteps)
	case !s.Finished && !s.StopWanted:
		return s, fmt.Errorf("extend to step %d: the run goes on to step %d: stop its nodes first", e.Steps, s.Run.Train.Steps)
	}
	spec := *s.Run
	if sync := &spec.Train.Sync; sync.WarmupPercent != 0 { // a warm-up ends where it has ended
		sync.Warmup, sync.WarmupPercent = sync.WarmupEnd(spec.Train.Steps), 0
	}
	spec.Train.DecaySteps, spec.Train.Steps = spec.Train.DecayEnd(), e.Steps
	s.Run, s.Finished, s.Sample = &spec, false, ""
	s.Epoch++
	return s, nil
}

func (e Finish) apply(s State) (State, error) {
	switch {
	case s.Run == nil:
		return s, errNoRun
	case s.Finished:
		return s, nil
	case len(e.Sample) > MaxSampleBytes:
		return s, fmt.Errorf("finish: sample of %d bytes, at most %d", len(e.Sample), MaxSampleBytes)
	}
	s.Finished, s.Sample = true, e.Sample
	return s, nil
}

// CheckMember returns why what a member says about itself is not taken, nil if it is.
func CheckMember(peer plan.PeerID, addrs []string, p plan.Profile) error {
	if !name(string(peer)) {
		return fmt.Errorf("peer ID of %d bytes, want 1 to %d", len(peer), maxName)
	}
	if len(addrs) > maxAddrs {
		return fmt.Errorf("%s: %d addresses, at most %d", peer, len(addrs), maxAddrs)
	}
	if i := slices.IndexFunc(addrs, func(a string) bool { return !plan.Printable(a, maxText) }); i >= 0 {
		return fmt.Errorf("%s: addrs[%d] is %.40q: want at most %d bytes of printable text", peer, i, addrs[i], maxText)
	}
	if err := p.Validate(peer); err != nil {
		return fmt.Errorf("%s: %w", peer, err)
	}
	return nil
}

// same compares two specifications by their encoding.
func same(a, b plan.RunSpec) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// name reports whether s is fit to name a peer, run or device.
func name(s string) bool { return s != "" && plan.Printable(s, maxName) }
