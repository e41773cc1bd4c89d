package node

import (
	"context"
	"fmt"
	"strings"

	"pnode/node/api"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

func namesIn(state consensus.State, peers []plan.PeerID) []string {
	names := make([]string, len(peers))
	for i, p := range peers {
		names[i] = state.NameOf(p)
	}
	return names
}

// followLineage acts on a change to another lineage of the log, once its state has come: what this node did by the log of before
// may not count any more.
func (l *loop) followLineage(ctx context.Context, state consensus.State) {
	change, ok := l.raft.ChangedOver()
	if !ok || lineageOf(change.Recovery) == l.lineage {
		return
	}
	if change.Discarded { // the leader knows of this node again when it has joined
		l.tasks.rejoin.start(&l.group, func() { l.rejoin(ctx, "the run was recovered") })
	}
	if lineageOf(state.Recovery) != lineageOf(change.Recovery) {
		return
	}
	l.lineage = lineageOf(change.Recovery)
	if change.Discarded {
		l.stopGeneration(errReplaced)
		l.followed = 0 // generations are counted anew from where the lineages parted
	}
	l.monitor.Publish(api.Event{Kind: api.KindError, Generation: state.Plan.Generation, Step: state.Checkpoint.Step, Message: changeText(change, state, l.kept.Step)})
}

func lineageOf(r *consensus.Recovery) string {
	if r == nil {
		return ""
	}
	return r.ID()
}

// changeText says what a change to another lineage means. saved is the newest checkpoint that was committed here.
func changeText(c consensus.ChangeOver, now consensus.State, saved plan.Step) string {
	text := "the run went on without the recovery that this node knew"
	if r := c.Recovery; r != nil {
		text = fmt.Sprintf("the run was recovered by %s without %s", now.NameOf(r.By), strings.Join(namesIn(now, r.Dead), ", "))
	}
	text += fmt.Sprintf(": incarnation %d goes on from the checkpoint of step %d", now.Incarnation, now.Checkpoint.Step)
	if c.Discarded {
		text += fmt.Sprintf(". What this node did in incarnation %d since the two parted does not count (its newest checkpoint was of step %d)",
			c.Before.Incarnation, max(saved, c.Before.Checkpoint.Step))
	}
	return text
}
