package consensus

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// Blame writes down why a generation ended for a fault, or what was seen of its loss. The leader proposes it.
// With a time Until, Peer is left out of plans until then; without one nobody is blamed, and the next leader
// knows of it.
type Blame struct {
	// Peer is who is said to be at fault; empty where nobody is. Accuser says so, or the leader where it is empty.
	Peer       plan.PeerID     `json:"peer,omitempty"`
	Accuser    plan.PeerID     `json:"accuser,omitempty"`
	Kind       plan.FaultKind  `json:"kind"`
	Generation plan.Generation `json:"generation"`
	Step       plan.Step       `json:"step"`
	Detail     string          `json:"detail,omitempty"`
	// Until is in seconds of Unix time, by the leader's clock.
	Until int64 `json:"until,omitempty"`
	// Diverged stops the run: the same step failed again on another worker.
	Diverged bool `json:"diverged,omitempty"`
	// Back is the step of the checkpoint that the run goes back to, for a jump of the loss or since the newest one is
	// not finite. Again says that it goes on in spite of a jump, since going back did not help or cannot be done.
	Back  plan.Step `json:"back,omitempty"`
	Again bool      `json:"again,omitempty"`
}

const (
	// MaxLeftOut bounds the time for which one fault leaves a member out. A later Until counts for nothing until
	// it is as near as that.
	MaxLeftOut = time.Hour
	// maxBlames bounds the rulings that are remembered, newest last.
	maxBlames = 16
	// maxFaults bounds a member's score.
	maxFaults = 16
	// SameStep is how far apart two failures may be that count as one of the same step: another cut rounds differently, and
	// fails a step sooner or later.
	SameStep plan.Step = 2
	// cleanCheckpoints are those that take one fault off the score of a member which had a part in them.
	cleanCheckpoints = 10
)

func (e Blame) apply(s State) (State, error) {
	if s.Run == nil {
		return s, errNoRun
	}
	if slices.Contains(s.Blames, e) {
		return s, nil
	}
	if err := e.check(s); err != nil {
		return s, fmt.Errorf("blame: %w", err)
	}
	if e.GoesBack() {
		var err error
		if s, err = s.back(e.Back); err != nil {
			return s, fmt.Errorf("blame: %w", err)
		}
	}
	s.Blames = append(slices.Clone(s.Blames), e)
	s.Blames = s.Blames[max(0, len(s.Blames)-maxBlames):]
	if e.Diverged {
		s.StopWanted = true
	}
	if e.Until == 0 {
		return s, nil
	}
	s.Epoch++ // a plan that was made before names the culprit
	if e.Kind == plan.FalseWord {
		s = s.acquit(e.Peer)
	}
	m, _ := s.Member(e.Peer)
	if e.Kind != plan.LossJump || m.Blamed != nil && m.Blamed.Kind == e.Kind { // once may be chance
		m.Faults = min(m.Faults+1, maxFaults)
	}
	m.Clean, m.Blamed = 0, &e
	return s.withMember(m), nil
}

func (e Blame) check(s State) error {
	switch {
	case s.Finished:
		return errors.New("the run is finished")
	case e.Generation != s.Plan.Generation || e.Generation == 0:
		return fmt.Errorf("generation %d, the current one is %d: %w", e.Generation, s.Plan.Generation, ErrStale)
	case !e.Kind.Valid():
		return fmt.Errorf("kind %.40q is not known", e.Kind)
	case e.Peer != "" && !s.Plan.Places(e.Peer):
		return fmt.Errorf("%q has no part in generation %d", wire.Clip(string(e.Peer), maxName), e.Generation)
	case e.Accuser != "" && !s.Plan.Places(e.Accuser):
		return fmt.Errorf("accused by %q, which has no part in generation %d", wire.Clip(string(e.Accuser), maxName), e.Generation)
	case e.Step > s.Run.Train.Steps:
		return fmt.Errorf("step %d, the run ends at step %d", e.Step, s.Run.Train.Steps)
	case plan.Fault{Detail: e.Detail}.Told().Detail != e.Detail:
		return fmt.Errorf("detail of %d bytes, want at most %d, all of them printable", len(e.Detail), plan.MaxFaultBytes)
	case e.Kind != plan.LossJump && e.Again || e.Back != 0 && e.Kind != plan.LossJump && e.Kind != plan.BadParameters:
		return errors.New("the run goes back for a jump of the loss and a bad checkpoint alone")
	case e.Until < 0 || e.Until != 0 && (e.Peer == "" || e.Diverged):
		return errors.New("nobody can be left out: there is no peer, or the run has diverged")
	case e.Diverged && !s.again(e):
		return fmt.Errorf("the run has not diverged: no worker has said before that its own result was not finite near step %d", e.Step)
	}
	if _, ok := s.Member(e.Peer); e.Until != 0 && !ok {
		return fmt.Errorf("%s is not in the roster", e.Peer)
	}
	return nil
}

// again reports whether a worker says of its own result what another has said of its own before, or the same one in a
// generation before: the rulings that divergence is told by.
func (s State) again(e Blame) bool {
	own := func(b Blame) bool { return b.Peer != "" && b.Peer == b.Accuser && slices.Contains(ofValues, b.Kind) }
	return own(e) && slices.ContainsFunc(s.Blames, func(b Blame) bool {
		near := b.Step <= e.Step+SameStep && e.Step <= b.Step+SameStep
		return own(b) && near && (b.Peer != e.Peer || b.Generation < e.Generation)
	})
}

// ofValues are the kinds of faults that a worker finds in its own results where the run diverges.
var ofValues = []plan.FaultKind{plan.BadTensor, plan.BadReport, plan.BadCommit, plan.BadParameters}

// acquit lets in again who is left out on a false accuser's word.
func (s State) acquit(accuser plan.PeerID) State {
	for _, m := range s.Members {
		if m.Blamed != nil && m.Blamed.Accuser == accuser && m.Peer != accuser {
			m.Faults, m.Clean, m.Blamed = max(0, m.Faults-1), 0, nil
			s = s.withMember(m)
		}
	}
	return s
}

// cleaned counts a committed checkpoint for those who had a part in it.
func (s State) cleaned() State {
	for _, m := range s.Members {
		if m.Blamed == nil || m.Blamed.Generation >= s.Plan.Generation || !s.Plan.Places(m.Peer) {
			continue
		}
		if m.Clean++; m.Clean == cleanCheckpoints {
			m.Faults, m.Clean = max(0, m.Faults-1), 0
			if m.Faults == 0 {
				m.Blamed = nil
			}
		}
		s = s.withMember(m)
	}
	return s
}

// LeftOut returns why plans do without a member at a time, if they do.
func (m Member) LeftOut(now time.Time) (Blame, bool) {
	if m.Blamed == nil {
		return Blame{}, false
	}
	left := time.Unix(m.Blamed.Until, 0).Sub(now)
	return *m.Blamed, 0 < left && left <= MaxLeftOut
}

// GoesBack reports whether the run goes back to an older checkpoint, or to an older step than its newest.
func (e Blame) GoesBack() bool { return e.Kind == plan.LossJump && !e.Again || e.Back != 0 }

// wentBack reports whether the run has gone back in the current generation, which may still run.
func (s State) wentBack() bool {
	return slices.ContainsFunc(s.Blames, func(b Blame) bool { return b.GoesBack() && b.Generation == s.Plan.Generation })
}

// Diverged returns the ruling that stopped the run, if one did.
func (s State) Diverged() (Blame, bool) {
	i := slices.IndexFunc(s.Blames, func(b Blame) bool { return b.Diverged })
	if i < 0 || !s.StopWanted {
		return Blame{}, false
	}
	return s.Blames[i], true
}

// Told returns a ruling in words, without the name of who is blamed: until when, for what, and who says so.
func (s State) Told(b Blame) string {
	text := b.Detail
	if text == "" {
		text = "a fault of kind " + string(b.Kind)
	}
	text += fmt.Sprintf(" at step %d", b.Step)
	switch {
	case b.Accuser == b.Peer && b.Peer != "":
		text += " (it says so itself)"
	case b.Accuser != "":
		text += fmt.Sprintf(" (says %s)", s.NameOf(b.Accuser))
	}
	if b.Until != 0 {
		text = fmt.Sprintf("until %s UTC: %s", time.Unix(b.Until, 0).UTC().Format("15:04"), text)
	}
	return text
}
