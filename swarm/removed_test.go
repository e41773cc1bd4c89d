package swarm

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/peerstore"
)

// One member says that a node was removed from the run, and is all that this node reaches: it ends nothing while more
// peers belong to the run, if it is no owner.
func TestVirtualOneMemberSaysThatANodeWasRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVirtualNet(t)
		both := n.cluster(t, 2)
		liar, node := both[0], both[1]
		liar.Block(node.ID(), admission.Removed("removed from the run"))
		waitMembers(t, testContext(t), node, 0)
		other := testIdentity(t).Peer()
		three, two := []plan.PeerID{node.ID(), liar.ID(), other}, []plan.PeerID{node.ID(), liar.ID()}
		said := false
		for range 120 {
			time.Sleep(time.Second) // virtual
			if err := node.Removed(nil, three); err != nil {
				t.Fatalf("one of two others is believed: %v", err)
			}
			if err := node.Removed([]plan.PeerID{other}, nil); err != nil {
				t.Fatalf("a peer that is not known is believed: %v", err)
			}
			said = said || node.Removed([]plan.PeerID{liar.ID()}, three) != nil
		}
		if !said {
			t.Error("an owner is not believed")
		}
		for tries := 0; node.Removed(nil, two) == nil; tries++ {
			if tries > 120 {
				t.Fatal("the only other peer is not believed")
			}
			time.Sleep(time.Second) // virtual
		}
	})
}

// Who is believed, when, that says that this node was removed.
func TestWhoIsBelievedAboutARemoval(t *testing.T) {
	now := time.Now()
	a, b, c := testIdentity(t), testIdentity(t), testIdentity(t)
	old, fresh := now.Add(-2*time.Minute), now.Add(-time.Second)
	said := func(at time.Time, by ...admission.Identity) (out []peerstore.Refusal) {
		for _, p := range by {
			out = append(out, peerstore.Refusal{Peer: p.ID(), Err: admission.ErrBlocked, At: at})
		}
		return out
	}
	peers := func(of ...admission.Identity) (out []plan.PeerID) {
		for _, p := range of {
			out = append(out, p.Peer())
		}
		return out
	}
	for name, tt := range map[string]struct {
		said           []peerstore.Refusal
		owners, others []plan.PeerID
		alone          time.Duration
		want           bool
	}{
		"an owner, at once":                 {said(fresh, a), peers(a), peers(a, b, c), time.Second, true},
		"one of three":                      {said(fresh, a), nil, peers(a, b, c), time.Minute, false},
		"two of three":                      {said(fresh, a, b), nil, peers(a, b, c), time.Minute, true},
		"two of three, too early":           {said(fresh, a, b), nil, peers(a, b, c), 20 * time.Second, false},
		"two of three, before it was so":    {said(old, a, b), nil, peers(a, b, c), time.Minute, false},
		"the only other":                    {said(fresh, a), nil, peers(a), time.Minute, true},
		"the only other, too early":         {said(fresh, a), nil, peers(a), time.Second, false},
		"two that do not belong to it":      {said(fresh, a, b), nil, peers(c), time.Minute, false},
		"somebody, while nobody is known":   {said(fresh, a, b), nil, nil, time.Minute, false},
		"nobody":                            {nil, peers(a), peers(a, b), time.Minute, false},
		"one that does not belong, and one": {said(fresh, a, b), nil, peers(b, c), time.Minute, false},
	} {
		err := believed(tt.said, tt.owners, tt.others, now.Add(-tt.alone), now)
		if errors.Is(err, admission.ErrBlocked) != tt.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
