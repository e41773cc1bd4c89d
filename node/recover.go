package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"pnode/node/api"
	"pnode/node/checkpointer"
	"pnode/node/config"
	"pnode/node/generation"
	"pnode/node/gossip"
	"pnode/node/inventory"
	"pnode/node/plain"
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
// may not count any more. It returns true while the state is on its way, and none that is here is to be acted upon.
func (l *loop) followLineage(ctx context.Context, state consensus.State) (changing bool) {
	change, ok := l.raft.ChangedOver()
	if !ok || lineageOf(change.Recovery) == l.lineage {
		return false
	}
	if change.Discarded { // the leader knows of this node again when it has joined
		l.tasks.rejoin.start(&l.group, func() { l.rejoin(ctx) })
	}
	if lineageOf(state.Recovery) != lineageOf(change.Recovery) {
		return change.Discarded
	}
	l.lineage = lineageOf(change.Recovery)
	if change.Discarded {
		l.stopGeneration(generation.ErrReplaced)
		l.remains.Close() // its steps do not count
		l.remains = nil
		l.followed = 0 // generations are counted anew from where the lineages parted
	}
	l.followPartings(state)
	l.monitor.Publish(api.Event{Kind: api.KindRecovery, Generation: state.Plan.Generation, Step: state.Checkpoint.Step, Message: changeText(change, state, l.kept.Step)})
	if change.Discarded {
		l.kept = checkpointer.ID{} // nothing went back from it
	}
	return false
}

// followPartings gives up what the ledger and the store have of another lineage than the state's, also where this node was started again
// before it had.
func (l *loop) followPartings(state consensus.State) {
	if shared, parted := l.ledger.Follow(state.Partings); parted {
		l.inOrder(func() error { return l.checkpointer.Discard(shared, state) })
	}
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
	if oldest, ok := consensus.NewestWhole(now); ok {
		text += fmt.Sprintf(": incarnation %d goes on from the newest state that its members hold, the checkpoint of step %d at the oldest", now.Incarnation, oldest.Step)
	} else {
		text += fmt.Sprintf(": incarnation %d goes on as soon as its members have all of a state. No checkpoint is whole with them: of that of step %d they lack %d of %s",
			now.Incarnation, now.Checkpoint.Step, len(now.Checkpoint.Lost(now)), plan.Count(len(now.Checkpoint.Layers), "layer"))
	}
	if c.Discarded {
		text += fmt.Sprintf(". What this node did in incarnation %d since the two parted does not count (its newest checkpoint was of step %d)",
			c.Before.Incarnation, max(saved, c.Before.Checkpoint.Step))
	}
	return text
}

const (
	// leaderlessAfter is how long no leader may be known before a node believes others that the run went on without it: an
	// election takes less.
	leaderlessAfter = 10 * time.Second
	// freshFor is how long a member's newest heartbeat counts for that.
	freshFor = 5 * gossip.Every
)

// cutOff notes that this node was cut off from the run, which went on without it. Who was counted as gone gets no entries of
// the log any more, not even the one that says so.
type cutOff struct {
	leaderless time.Time // since when no leader is known; zero while one is
}

// heardBeat is a member's newest heartbeat and its age.
type heardBeat struct {
	gossip.Heartbeat
	ago time.Duration
}

// look reports whether a node with a state has to join again.
func (c *cutOff) look(leader plan.PeerID, state consensus.State, heard []heardBeat, now time.Time) bool {
	switch {
	case leader != "":
		c.leaderless = time.Time{}
		return false
	case c.leaderless.IsZero():
		c.leaderless = now
	}
	if now.Sub(c.leaderless) < leaderlessAfter {
		return false
	}
	for _, b := range heard {
		if b.ago <= freshFor && (b.Generation > state.Plan.Generation || b.Finished > 0 && !state.Finished) {
			return true
		}
	}
	return false
}

// followOthers joins the run again where it went on without this node.
func (l *loop) followOthers(ctx context.Context, state consensus.State, now time.Time) {
	var heard []heardBeat
	for _, m := range state.Members {
		if b, ok := l.heartbeats.Last(m.Peer); ok && m.Peer != l.self {
			ago, _ := l.heartbeats.Ago(m.Peer, now)
			heard = append(heard, heardBeat{b, max(0, ago-l.heartbeats.Slack(m.Peer))})
		}
	}
	leader, _, _ := l.raft.Leader()
	if l.cutOff.look(leader, state, heard, now) {
		l.comeBack(ctx, "it was cut off, and the run went on")
	}
}

// StartAgain returns the command that starts the node of a folder again.
func StartAgain(dir string) string {
	m, err := loadMembership(dir)
	own, _ := m.owner()
	return config.WayBack(dir, err == nil && own)
}

// Look returns what the folder of a node says of the run that it belongs to.
func Look(dir string) (inventory.Membership, error) {
	m, err := loadMembership(dir)
	if err != nil {
		return inventory.Membership{}, err
	}
	own, _ := m.owner()
	left := inventory.Membership{Run: m.Run, Name: m.Name, Finished: m.Finished, Next: config.WayBack(dir, own)}
	if spec, err := LoadRun(dir); err == nil { // else the node has not begun to train
		left.Steps = spec.Train.Steps
	}
	if m.Finished > 0 {
		left.Next = fmt.Sprintf("pnode generate --prompt TEXT --dir %s", plain.Quote(dir))
	}
	if m.Finished > 0 && own {
		left.Next = strings.Replace(config.WayBack(dir, own), "--resume", fmt.Sprintf("--resume --steps %d", furtherSteps(m.Finished)), 1)
	}
	return left, nil
}

// RecoverStopped says what helps where the node in a folder does not run. One that ended in good order is started as always, and
// says itself whom it waits for in vain; one that was killed may be left alone.
func RecoverStopped(dir string) error {
	if m, err := Look(dir); err == nil && m.Finished > 0 {
		return fmt.Errorf("%w in %s: its run is finished at step %d: go on with `%s`", api.ErrNoNode, dir, m.Finished, m.Next)
	}
	if _, err := os.Stat(filepath.Join(dir, api.AddressFile)); err != nil {
		return fmt.Errorf("%w in %s: it ended in good order, so start it again with `%s`; it says whom it waits for, and when `pnode recover` helps",
			api.ErrNoNode, dir, StartAgain(dir))
	}
	return fmt.Errorf("%w in %s any more: start it with `pnode train --resume --on-lost-majority recover-after=10m --dir %s`: it recovers the run once it has not heard of the others for 10 minutes", api.ErrNoNode, dir, plain.Quote(dir))
}
