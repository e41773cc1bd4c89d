package node

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// lie has a member say another newest commit of a lost coordinator than came to it.
func (m *member) lie(change func(*wire.Commit)) {
	n := m.node()
	n.requests.Serve("/pnode/lastcommit/1", func(ctx context.Context, _ plan.PeerID, _ []byte) ([]byte, error) {
		last, err := n.parts.Commits.Settled(ctx, n.raft.State().Plan.Generation)
		if err != nil {
			return nil, err
		}
		commit, err := wire.DecodeCommit(last)
		change(&commit)
		return wire.AppendCommit(nil, commit), err
	})
}

// TestALieAboutALostCoordinatorsCommit: of a line of three the coordinator is lost, and the one of the others that does not go on in its
// place lies about the newest commit. Where it is about a step that both have, one word stands against another: nobody is blamed, the generation
// ends, and no step that they have is done again. A commit of a step that was not made is found out when the step is, and the liar is blamed. The run
// goes on to its end with the same losses.
func TestALieAboutALostCoordinatorsCommit(t *testing.T) {
	known := undisturbed(t, inLine)
	for name, c := range map[string]struct {
		change func(*wire.Commit)
		blamed bool
	}{
		"of a step that was made": {func(c *wire.Commit) { c.Loss *= 2 }, false},
		"of one that was not":     {func(c *wire.Commit) { c.Step, c.Loss = c.Step+1, c.Loss*2 }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := choose(t, inLine, known, betweenCheckpoints(places["the coordinator"]))
				for _, m := range l.others(l.lost) { // the substitute asks the other one alone
					m.lie(c.change)
				}
				l.kill()
				by := l.substitute().Substitute.By
				var ruling *consensus.Blame
				l.until("another plan", time.Hour, func() bool {
					for _, m := range l.others(l.lost) {
						if n := m.node(); n != nil {
							state := n.raft.State()
							for _, b := range state.Blames {
								if b.Kind == plan.BadCommit {
									ruling = &b
								}
							}
							if state.Plan.Generation > l.before.Plan.Generation {
								return true
							}
						}
					}
					return l.over()
				})
				switch redone := l.finish(); {
				case !c.blamed && (ruling != nil || redone > 1): // the lost one may have made a step that nobody has heard of
					t.Errorf("%d steps were computed again, the ruling is %+v", redone, ruling)
				case c.blamed && (ruling == nil || ruling.Accuser != by || ruling.Peer == by || ruling.Peer == l.lost.self):
					t.Errorf("%s goes on in the place of %s, the ruling is %+v", by, l.lost.self, ruling)
				}
			})
		})
	}
}
