package consensus

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"pnode/planner/departures"
	"pnode/planner/plan"
)

// follows returns what is wrong with a state that came after another one by an entry.
func follows(s, next State, e Entry, refused error) error {
	counters := func(s State) State { // a refused proposal is counted, time has passed, and nothing else changes
		s.Departures.Clock, s.Members = departures.Clock{}, slices.Clone(s.Members)
		for i := range s.Members {
			s.Members[i].Counter, s.Members[i].Window = 0, 0
		}
		return s
	}
	_, back := e.(Rollback)
	_, blamed := e.(Blame)
	_, extended := e.(Extend)
	_, failed := e.(CopyFailed)
	present := func(m Member) bool { return m.State != Gone }
	switch {
	case refused != nil && !equalStates(counters(s), counters(next)):
		return fmt.Errorf("refused (%w), and it changes the state", refused)
	case next.Incarnation < s.Incarnation || next.Epoch < s.Epoch || next.LeaderTerm < s.LeaderTerm || next.PauseWanted < s.PauseWanted:
		return fmt.Errorf("a counter goes back: incarnation %d to %d, epoch %d to %d, term %d to %d", s.Incarnation, next.Incarnation, s.Epoch, next.Epoch, s.LeaderTerm, next.LeaderTerm)
	case failed && (next.Epoch != s.Epoch || !reflect.DeepEqual(next.Plan, s.Plan) || len(next.CopyFailures) > len(s.CopyFailures)+1):
		return fmt.Errorf("%+v changes the plan, or more than one pair: %+v", e, next.CopyFailures)
	case next.Plan.Generation < s.Plan.Generation || next.Plan.Generation > s.Plan.Generation+1:
		return fmt.Errorf("generation %d after %d", next.Plan.Generation, s.Plan.Generation)
	case next.Checkpoint.Step < s.Checkpoint.Step && !back && !blamed:
		return fmt.Errorf("the checkpoint goes back from step %d to %d", s.Checkpoint.Step, next.Checkpoint.Step)
	case (lineage{Recovery: next.Recovery}).number() < (lineage{Recovery: s.Recovery}).number():
		return fmt.Errorf("lineage %d after %d", next.Recovery.Number, s.Recovery.Number)
	case (lineage{Recovery: next.Recovery}).id() != (lineage{Recovery: s.Recovery}).id() && !slices.Equal(next.Partings, append(slices.Clone(s.Partings), plan.Parting{Recovery: next.Recovery.ID(), Generation: s.Plan.Generation})),
		(lineage{Recovery: next.Recovery}).id() == (lineage{Recovery: s.Recovery}).id() && !slices.Equal(next.Partings, s.Partings):
		return fmt.Errorf("partings %v after %v, in lineage %d", next.Partings, s.Partings, (lineage{Recovery: next.Recovery}).number())
	case s.Finished && !next.Finished && !extended || s.Run != nil && next.Run == nil || len(s.Owners) > 0 && len(next.Owners) == 0:
		return fmt.Errorf("the run, its end or its last owner is taken back")
	case s.Run != nil && next.Run.Train.Steps < s.Run.Train.Steps || next.Run != nil && next.Checkpoint.Step > next.Run.Train.Steps:
		return fmt.Errorf("the checkpoint of step %d in a run of %d steps", next.Checkpoint.Step, next.Run.Train.Steps)
	case next.Salvage != nil && next.Salvage.Generation != next.Plan.Generation:
		return fmt.Errorf("generation %d is salvaged while %d is the current one", next.Salvage.Generation, next.Plan.Generation)
	case next.Substitute != nil && !fitsPlan(*next.Substitute, next):
		return fmt.Errorf("%+v in generation %d with the checkpoint of step %d", *next.Substitute, next.Plan.Generation, next.Checkpoint.Step)
	case !slices.IsSortedFunc(next.Members, func(a, b Member) int { return strings.Compare(string(a.Peer), string(b.Peer)) }):
		return fmt.Errorf("the roster is not in order")
	case len(slices.DeleteFunc(slices.Clone(next.Members), func(m Member) bool { return !present(m) })) > MaxMembers:
		return fmt.Errorf("more than %d members", MaxMembers)
	}
	if err := errors.Join(followsSubstitute(s, next), followsDepartures(s, next), followsStored(s, next), followsHolders(s, next)); err != nil {
		return err
	}
	if next.Salvage != nil && next.Salvage != s.Salvage {
		if err := followsSalvage(next); err != nil {
			return err
		}
	}
	for _, m := range next.Members {
		if old, known := s.Member(m.Peer); known && m.Counter < old.Counter {
			return fmt.Errorf("%s is counted back from %d to %d", m.Peer, old.Counter, m.Counter)
		}
		if _, revoked := next.Revocation(m.Peer); revoked && present(m) {
			return fmt.Errorf("%s was removed and is %s", m.Peer, m.State)
		}
	}
	return nil
}

// fitsPlan reports whether a substitute could be of the current plan.
func fitsPlan(e Substitute, s State) bool {
	able := s.Plan.Substitutes(e.Lost)
	if e.Replays {
		able = s.Plan.Replayers(e.Lost)
	}
	return e.Generation == s.Plan.Generation && slices.Contains(able, e.By)
}

// followsSubstitute returns what is wrong with the substitute of the current plan after an entry: a plan has one at most, which stays until
// the next plan, and nothing else changes for the plan with it but who is gone.
func followsSubstitute(s, next State) error {
	was, is := s.Substitute, next.Substitute
	switch {
	case was == is || is == nil && next.Plan.Generation > s.Plan.Generation:
		return nil
	case was != nil || next.Plan.Generation != s.Plan.Generation:
		return fmt.Errorf("%+v in place of %+v, in generation %d after %d", is, was, next.Plan.Generation, s.Plan.Generation)
	}
	lost, _ := next.Member(is.Lost)
	by, _ := next.Member(is.By)
	coordinator := s.Plan.Coordinator().Peer
	if coordinator == is.Lost {
		coordinator = is.By
	}
	switch {
	case lost.State != Gone || lost.ProcessEpoch != is.ProcessEpoch:
		return fmt.Errorf("%+v, and %+v is not gone", *is, lost)
	case by.State != Active || next.Reborn(by) || is.By == is.Lost:
		return fmt.Errorf("%+v, and %+v does not carry out the plan", *is, by)
	case is.Coordinator(next.Plan) != coordinator:
		return fmt.Errorf("%+v, and %s coordinates the steps, not %s", *is, is.Coordinator(next.Plan), coordinator)
	case !reflect.DeepEqual(next.Plan, s.Plan) || !reflect.DeepEqual(next.Checkpoint, s.Checkpoint) || !reflect.DeepEqual(next.Pending, s.Pending):
		return fmt.Errorf("%+v changes the plan or what is saved", *is)
	case is.Replays && (is.From != s.Checkpoint.Step || is.From < s.Plan.Start):
		return fmt.Errorf("%+v after the checkpoint of step %d", *is, s.Checkpoint.Step)
	}
	return nil
}

// followsStored returns what is wrong with what members have in memory alone: who has stored a layer has it stored from then on, and what
// a process has in memory is lost with it, and makes no checkpoint secure.
func followsStored(s, next State) error {
	for _, c := range slices.Concat(Checkpoints(next), next.Pending) {
		for _, l := range c.Layers {
			for _, u := range l.Unstored {
				m, _ := next.Member(u.Peer)
				switch {
				case !slices.Contains(l.Holders, u.Peer):
					return fmt.Errorf("layer %d is in the memory of %s, which does not hold it", l.Layer, u.Peer)
				case m.ProcessEpoch != u.ProcessEpoch && slices.Contains(l.Holding(next), u.Peer):
					return fmt.Errorf("layer %d is held by process %d of %s, which is another one than %d", l.Layer, m.ProcessEpoch, u.Peer, u.ProcessEpoch)
				}
			}
			for _, was := range slices.Concat(Checkpoints(s), s.Pending) {
				if was.Step != c.Step || was.Generation != c.Generation {
					continue
				}
				for _, old := range was.Layers {
					for _, p := range old.Holders {
						if old.Layer == l.Layer && old.StoredBy(p) && slices.Contains(l.Holders, p) && !l.StoredBy(p) {
							return fmt.Errorf("layer %d of step %d was stored by %s", l.Layer, c.Step, p)
						}
					}
				}
			}
		}
	}
	return nil
}

// followsHolders returns what is wrong with who keeps the copies of a plan's stages after an entry: whoever is there and reached, and has room, keeps them,
// until the one that the plan names is back.
func followsHolders(s, next State) error {
	for _, c := range next.Successors {
		if _, ok := next.Plan.Find(c.at()); !ok || c.Holder == c.Before {
			return fmt.Errorf("%+v in generation %d", c, next.Plan.Generation)
		}
	}
	if next.Plan.Generation != s.Plan.Generation {
		return nil
	}
	for r, pipe := range next.Plan.Replicas {
		for st, place := range pipe.Stages {
			at := plan.StageID{Replica: plan.Replica(r), Stage: plan.Stage(st)}
			was, is := s.Holder(at), next.Holder(at)
			reached := func(in State) bool {
				return stays(in, was) && !in.CopyFailures.Between(in.Substitute.Carrier(place.Peer), was) && !full(in, at, was)
			}
			if is != was && is != place.Holder && reached(s) && reached(next) {
				return fmt.Errorf("copies of replica %d stage %d went from %q, which is there and reached, to %q", r, st, was, is)
			}
		}
	}
	return nil
}

// followsAuthor returns what is wrong with who proposed an entry that was accepted: once another member goes on in a lost one's place, that
// one alone saves its layers and ends the run in its name.
func followsAuthor(s State, by plan.PeerID, e Entry) error {
	switch e.(type) {
	case Finish:
		if coordinator := s.Substitute.Coordinator(s.Plan); by != coordinator {
			return fmt.Errorf("%s coordinates the steps", coordinator)
		}
	case StageSaved:
		if s.Substitute != nil && s.Substitute.Lost == by && s.Salvage == nil {
			return fmt.Errorf("%s computes its part", s.Substitute.By)
		}
	}
	return nil
}

// followsDepartures returns what is wrong with the departures that the log remembers after an entry.
func followsDepartures(s, next State) error {
	was, is := s.Departures, next.Departures
	ended := 0 // processes that have ended by the entry
	for _, m := range s.Members {
		if now, _ := next.Member(m.Peer); m.State != Gone && (now.State == Gone || now.ProcessEpoch != m.ProcessEpoch) {
			ended++
		}
	}
	switch {
	case is.Validate() != nil:
		return is.Validate()
	case is.Clock.Millis < was.Clock.Millis || is.Clock.Millis > was.Clock.Millis+18_000:
		return fmt.Errorf("the run's clock goes from %d to %d ms", was.Clock.Millis, is.Clock.Millis)
	case is.Lost < was.Lost || is.Lost > was.Lost+ended:
		return fmt.Errorf("%d members were lost after %d, and %d processes have ended", is.Lost, was.Lost, ended)
	case len(is.Newest) < len(was.Newest) || len(is.Newest) > len(was.Newest)+ended:
		return fmt.Errorf("%d departures after %d, and %d processes have ended", len(is.Newest), len(was.Newest), ended)
	}
	return nil
}

// followsSalvage returns what is wrong with a salvage that the log has just taken.
func followsSalvage(s State) error {
	saved := make([]int, s.Run.Model.Layers())
	for _, part := range s.Salvage.Parts {
		if m, _ := s.Member(part.By); m.State == "" || m.State == Gone {
			return fmt.Errorf("%s is to save layers, and is not in the run", part.By)
		}
		for l := part.Layers.First; l < part.Layers.End; l++ {
			saved[l]++
		}
	}
	if slices.ContainsFunc(saved, func(n int) bool { return n != 1 }) || s.Salvage.Step <= s.Checkpoint.Step {
		return fmt.Errorf("step %d after %d is saved, each layer so many times: %v", s.Salvage.Step, s.Checkpoint.Step, saved)
	}
	return nil
}
