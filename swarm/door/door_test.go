package door

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/consensus"
)

// fakeLog is a log with a state that takes no entry.
type fakeLog struct {
	state consensus.State
	err   error
	asked int
}

func (l *fakeLog) State() consensus.State { return l.state }

func (l *fakeLog) Propose(context.Context, consensus.Entry) error {
	l.asked++
	return l.err
}

// newcomer returns an owner's invite for owners, and what a node gets by it.
func newcomer(t *testing.T) (admission.Invite, admission.Capability) {
	t.Helper()
	owner, err := admission.CreateOwner(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	id, err := admission.LoadIdentity(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	v, err := owner.Invite(admission.InviteOptions{Run: "run", Owner: true, Addrs: []string{"/ip4/192.0.2.1/udp/9/quic-v1/p2p/" + string(id.Peer())}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	b, err := v.Redeem(id, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c, err := admission.DecodeCapability(b)
	if err != nil {
		t.Fatal(err)
	}
	return v, c
}

// Who belongs to the run comes in though the log does not make it an owner: without a leader, or when its invite for owners
// is used up. One that was removed, or is new, does not.
func TestWhoBelongsComesInWithoutTheLog(t *testing.T) {
	v, c := newcomer(t)
	before := consensus.Grant{Serial: 1, Uses: 1, Peers: []plan.PeerID{c.Peer}}
	used := consensus.Grant{
		Serial: uint64(v.Grant.Serial), Owner: true, Uses: 1, Peers: []plan.PeerID{"another"}, Signed: v.Grant.Encode(),
		RedeemBefore: v.Grant.RedeemBefore.Unix(),
	}
	removed := []consensus.Revocation{{Peer: c.Peer, By: "owner"}}
	rejected := fmt.Errorf("%w: the invite is used up", consensus.ErrRejected)
	for name, tt := range map[string]struct {
		grants  []consensus.Grant
		revoked []consensus.Revocation
		err     error
		want    error
		kept    []plan.PeerID
	}{
		"no leader":             {grants: []consensus.Grant{before}, err: consensus.ErrNoLeader},
		"its invite is used up": {grants: []consensus.Grant{before, used}, err: rejected},
		"removed":               {grants: []consensus.Grant{before}, revoked: removed, err: consensus.ErrNoLeader, want: admission.ErrBlocked},
		"new, without a leader": {err: consensus.ErrNoLeader, want: admission.ErrNoMajority},
		"new, by a used invite": {grants: []consensus.Grant{used}, err: rejected, want: admission.ErrInviteUsed},
		"new, and is rejected":  {err: rejected, want: admission.ErrRefused},
		"newer than the state":  {err: consensus.ErrNoLeader, kept: []plan.PeerID{c.Peer}},
		"that, and removed":     {revoked: removed, err: consensus.ErrNoLeader, kept: []plan.PeerID{c.Peer}, want: admission.ErrBlocked},
	} {
		d, log := New(admission.Run{ID: "run", OwnerKey: v.OwnerKey}, tt.kept, time.Now), &fakeLog{err: tt.err}
		log.state = consensus.State{Run: &plan.RunSpec{}, Owners: []plan.PeerID{"owner"}, Grants: tt.grants, Revoked: tt.revoked}
		d.Open(log)
		if err := d.Admit(t.Context(), c); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
		if tt.want == nil && log.asked == 0 {
			t.Errorf("%s: the log was not asked to make it an owner", name)
		}
	}
}
