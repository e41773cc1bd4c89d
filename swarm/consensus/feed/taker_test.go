package feed

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/plan"
)

// leaderless is a follower in a run that nobody leads: none of those it asks feeds it.
type leaderless struct {
	contacts []plan.PeerID
	asked    map[plan.PeerID]int
}

func (*leaderless) Follows() bool                        { return true }
func (*leaderless) Voters() ([]plan.PeerID, plan.PeerID) { return []plan.PeerID{"v1", "v2", "v3"}, "" }
func (l *leaderless) Contacts() []plan.PeerID            { return l.contacts }
func (*leaderless) Changed() <-chan struct{}             { return make(chan struct{}) }
func (*leaderless) End() uint64                          { return 0 }
func (l *leaderless) Members() int                       { return len(l.contacts) }
func (l *leaderless) Open(_ context.Context, p plan.PeerID, _ bool) (Session, []plan.PeerID, error) {
	l.asked[p]++
	time.Sleep(time.Millisecond) // virtual
	return nil, nil, errors.New("nobody is known to lead")
}

// TestWithoutALeaderFewAreAsked: a follower that no voter feeds asks about as few members in a large run as in a small one, and voters all the while.
func TestWithoutALeaderFewAreAsked(t *testing.T) {
	for _, members := range []int{10, 1000} {
		synctest.Test(t, func(t *testing.T) {
			l := &leaderless{asked: map[plan.PeerID]int{}}
			for i := range members {
				l.contacts = append(l.contacts, plan.PeerID(fmt.Sprint("m", i)))
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			NewTaker("self", l).Run(ctx)
			voters, others := 0, 0
			for p, n := range l.asked {
				if p[0] == 'v' {
					voters += n
				} else {
					others += n
				}
			}
			t.Logf("%d members: %d questions to voters, %d to others in a minute", members, voters, others)
			if voters < 30 || others < 30 || others > 120 {
				t.Errorf("%d members: %d questions to voters, %d to others in a minute", members, voters, others)
			}
		})
	}
}
