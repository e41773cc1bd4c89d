package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/consensus"
)

// TestAMembershipWithTooManyAddressesIsReadAgain: whatever others told of, a node finds back to its run.
func TestAMembershipWithTooManyAddressesIsReadAgain(t *testing.T) {
	owner, err := admission.CreateOwner(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	identity, err := admission.LoadIdentity(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	capability, err := owner.Capability("run", identity, time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	var all []plan.PeerID
	for p := range 1024 {
		all = append(all, plan.PeerID(fmt.Sprintf("12D3KooWGzxzKZYveHXtpG6AsrUJBcWxHBFS2HsEoGTxrMLv%04d", p)))
		for a := range 16 {
			known = append(known, fmt.Sprintf("/ip4/192.0.2.%d/udp/%d/quic-v1/p2p/%s", a, 1024+p, all[p]))
		}
	}
	for name, tt := range map[string]struct {
		admitted []plan.PeerID
		peers    int
	}{
		"nobody knows who belongs": {nil, 1024},
		"all belong":               {all, 1024},
		"two belong":               {all[:2], 2},
	} {
		dir := t.TempDir()
		m := membership{Run: "run", OwnerKey: owner.PublicKey(), Capability: capability, Known: known, Admitted: tt.admitted}
		if err := m.save(dir); err != nil {
			t.Fatal(err)
		}
		got, err := loadMembership(dir)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		peers := map[string]bool{}
		for _, a := range got.Known {
			peers[a[strings.LastIndexByte(a, '/')+1:]] = true
		}
		if len(peers) != tt.peers {
			t.Errorf("%s: addresses of %d peers, want %d", name, len(peers), tt.peers)
		}
	}
}

// Who belongs to the run is told by the log once this node is in its roster, and before by what was known at the last start.
func TestWhoBelongsToTheRun(t *testing.T) {
	log := consensus.State{
		Run: &plan.RunSpec{}, Owners: []plan.PeerID{"owner"}, Members: []consensus.Member{{Peer: "self"}},
		Grants: []consensus.Grant{{Serial: 1, Uses: 2, Peers: []plan.PeerID{"self", "guest"}}},
	}
	for _, tt := range []struct {
		state         consensus.State
		kept          []plan.PeerID
		peer          plan.PeerID
		belongs, told bool
	}{
		{consensus.State{}, nil, "guest", false, false},
		{consensus.State{}, []plan.PeerID{"guest"}, "guest", true, true},
		{consensus.State{}, []plan.PeerID{"guest"}, "ghost", false, true},
		{log, nil, "guest", true, true},
		{log, nil, "owner", true, true},
		{log, []plan.PeerID{"ghost"}, "ghost", false, true},
	} {
		belongs, told := belongsTo(tt.state, "self", tt.kept, tt.peer)
		if belongs != tt.belongs || told != tt.told {
			t.Errorf("%s: belongs %v, told %v", tt.peer, belongs, told)
		}
	}
}
