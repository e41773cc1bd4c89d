package leader

import (
	"slices"

	"pnode/node/dataset"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/planner/rounds"
	"pnode/swarm/consensus"
)

// processBytes is the host memory of a node besides its stages and the text: the program, the
// network, the store. 61 and 63 MiB were measured with stages of 60 and 337 MiB.
const processBytes = 62 << 20

// FirstInput returns what a run's first plan depends on, without the members.
func FirstInput(run plan.RunSpec) planner.Input {
	in := planner.InputOf(run)
	in.NodeBytes = processBytes + min(run.Data.SizeBytes, dataset.CacheBytes)
	return in
}

// SettleSums fixes the sum groups of a run that begins on a machine whose roomiest device has so much memory. It
// returns for people what they are.
func SettleSums(run *plan.RunSpec, roomBytes int64) (text string, err error) {
	run.Train.SumGroups, text, err = planner.SumGroups(FirstInput(*run), roomBytes)
	return text, err
}

// NextInput returns the planner's input for the generation after the current one. An asked
// number of replicas or stages yields when there are fewer devices: the run goes on.
func NextInput(state consensus.State) planner.Input {
	in := FirstInput(*state.Run)
	in.Start, in.Generation = state.Checkpoint.Step, state.Plan.Generation+1
	in.Stream, in.Own = state.Checkpoint.Stream, ownStates(state)
	if state.Plan.Generation != 0 {
		previous := state.Plan
		in.Previous = &previous
	}
	names := consensus.NamesOf(state)
	for _, c := range state.Counted() {
		m, _ := state.Member(c.Peer)
		in.Members = append(in.Members, planner.Member{
			Peer: m.Peer, Name: names[m.Peer], Profile: c.Profile, Claim: c.Text(), Draining: m.State == consensus.Draining, Ties: state.Ties(m.Peer), Whole: state.Owner(m.Peer), Apart: state.CopyFailures.Of(m.Peer),
		})
	}
	train, there := &in.Run.Train, devicesOf(in)
	if devicesAsked(*train) > there {
		train.Stages = 0
	}
	if train.Replicas > there {
		train.Replicas = 0
	}
	return in
}

// ownStates returns what replicas with local steps had for themselves at the newest checkpoint, where members that stay have all of it. What a member alone has that
// leaves goes with it, since nobody has a copy: a plan that began with it could wait for it in vain. Where nobody stays who has any it counts all the same.
func ownStates(s consensus.State) (all []rounds.Own) {
	var leave []rounds.Own
	for _, o := range s.Checkpoint.Own {
		own, stays := rounds.Own{Replica: o.Replica, Holders: make([][]plan.PeerID, s.Run.Model.Layers())}, true
		lost := slices.ContainsFunc(o.Layers, func(l consensus.LayerRef) bool {
			own.Holders[l.Layer] = l.Holding(s)
			stays = stays && slices.ContainsFunc(own.Holders[l.Layer], func(p plan.PeerID) bool {
				m, _ := s.Member(p)
				return m.State != consensus.Draining
			})
			return len(own.Holders[l.Layer]) == 0
		})
		switch {
		case lost || !o.Whole(*s.Run):
		case stays:
			all = append(all, own)
		default:
			leave = append(leave, own)
		}
	}
	if len(all) == 0 {
		return leave
	}
	return all
}

// devicesAsked returns how many devices the replicas and stages take that the user asked for.
func devicesAsked(t plan.TrainSpec) int { return max(1, t.Replicas) * max(1, t.Stages) }

// devicesOf counts what can get a stage.
func devicesOf(in planner.Input) int {
	in = in.Afresh()
	in.Run.Train.Stages, in.Run.Train.Replicas = 0, 0 // which may want more than there is
	n, err := planner.Devices(in)
	if err != nil {
		return 0 // nothing can be planned
	}
	return n
}

// OnlyHolder reports whether self is the only member, and no node that is away holds any of the
// newest checkpoint either.
func OnlyHolder(s consensus.State, self plan.PeerID) bool {
	for _, m := range s.Members {
		if m.Peer != self && m.State != consensus.Gone {
			return false
		}
	}
	for _, l := range s.Checkpoint.Layers {
		if slices.ContainsFunc(l.Holders, func(p plan.PeerID) bool { return p != self }) {
			return false
		}
	}
	return true
}

// orphaned reports whether some layer of the newest checkpoint was with members alone that have left the run.
func orphaned(s consensus.State) bool {
	return slices.ContainsFunc(s.Checkpoint.Layers, func(l consensus.LayerRef) bool {
		return !slices.ContainsFunc(l.Holders, func(p plan.PeerID) bool {
			m, known := s.Member(p)
			return known && (m.State != consensus.Gone || m.Reason != consensus.ReasonLeft)
		})
	})
}
