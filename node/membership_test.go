package node

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/consensus"
)

// TestAMembershipWithTooManyAddressesIsReadAgain: whatever others told of, a node finds back to its run.
func TestAMembershipWithTooManyAddressesIsReadAgain(t *testing.T) {
	owner, identity := testOwner(t), testIdentity(t)
	capability, err := owner.Capability("run", identity, time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	var all []plan.PeerID
	for p := range 1024 {
		all = append(all, testPeer(p))
		for a := range 16 {
			known = append(known, fmt.Sprintf("/ip4/192.0.2.%d/udp/%d/quic-v1/p2p/%s", a, 1024+p, all[p]))
		}
	}
	known = append(known, "/dns4/x\x1b[31m/tcp/4001/p2p/"+string(all[0])) // which an older program may have kept
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
		if _, err := admission.ParseAddrs(got.Known); err != nil {
			t.Errorf("%s: the next start fails: %v", name, err)
		}
	}
}

// testPeer returns the ID of a peer that nobody has the key of.
func testPeer(number int) plan.PeerID {
	id := append([]byte{0x00, 0x24, 0x08, 0x01, 0x12, 0x20}, make([]byte, 32)...) // the identity hash of an Ed25519 key
	binary.LittleEndian.PutUint32(id[6:], uint32(number))
	return plan.PeerID(peer.ID(id).String())
}

// TestAStoppedNodeKnowsNames of its own machine and of owners; all others have the ends of their peer IDs.
func TestAStoppedNodeKnowsNames(t *testing.T) {
	owner, identity := testOwner(t), testIdentity(t)
	capability, err := owner.Capability("run", identity, time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	m := membership{Capability: capability, Name: "laptop", Owners: []plan.PeerID{testPeer(1), testPeer(2)}, OwnerNames: []string{"desk", "attic"}}
	for p, want := range map[plan.PeerID]string{identity.Peer(): "laptop", testPeer(1): "desk", testPeer(2): "attic", testPeer(3): testPeer(3).Short()} {
		if got := m.nameOf(p); got != want {
			t.Errorf("%s is called %q, want %q", p, got, want)
		}
	}
	m.Name, m.OwnerNames = "", nil
	if got, want := m.nameOf(testPeer(1))+m.nameOf(identity.Peer()), testPeer(1).Short()+identity.Peer().Short(); got != want {
		t.Errorf("without names %q, want %q", got, want)
	}
}

// TestWhoBelongsToTheRun: the log tells once this node is in its roster, and before what was known at the last start.
func TestWhoBelongsToTheRun(t *testing.T) {
	log := consensus.State{
		Run: &plan.RunSpec{}, Owners: []plan.PeerID{"owner"}, Members: []consensus.Member{{Peer: "self"}},
		Grants: []consensus.Grant{{Serial: 1, Uses: 2, Peers: []plan.PeerID{"self", "guest"}}},
	}
	for _, tt := range []struct {
		state         consensus.State
		led           bool
		kept          []plan.PeerID
		peer          plan.PeerID
		belongs, told bool
	}{
		{consensus.State{}, false, nil, "guest", false, false},
		{consensus.State{}, false, []plan.PeerID{"guest"}, "guest", true, true},
		{consensus.State{}, false, []plan.PeerID{"guest"}, "ghost", false, true},
		{log, true, nil, "guest", true, true},
		{log, true, nil, "owner", true, true},
		{log, true, []plan.PeerID{"ghost"}, "ghost", false, true},
		{log, false, []plan.PeerID{"later"}, "later", true, true},
		{log, false, []plan.PeerID{"later"}, "guest", true, true},
		{log, false, []plan.PeerID{"later"}, "ghost", false, true},
	} {
		belongs, told := belongsTo(tt.state, tt.led, "self", tt.kept, tt.peer)
		if belongs != tt.belongs || told != tt.told {
			t.Errorf("%s: belongs %v, told %v", tt.peer, belongs, told)
		}
	}
}

// TestEpochsGrow wants each start to have a larger epoch than the one before, whatever the clock says, with room for the
// messages between.
func TestEpochsGrow(t *testing.T) {
	dir, now := t.TempDir(), time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	last := uint64(0)
	for _, step := range []struct {
		clock  time.Duration
		damage bool
	}{
		{0, false},
		{-24 * time.Hour, false},
		{-24 * time.Hour, false},
		{365 * 24 * time.Hour, false},
		{0, false},
		{-100 * 365 * 24 * time.Hour, false},
		{2 * 365 * 24 * time.Hour, true},
	} {
		if step.damage {
			for _, name := range []string{epochFile, epochFile + ".copy"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte("?"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		epoch, err := nextEpoch(dir, now.Add(step.clock))
		if err != nil {
			t.Fatal(err)
		}
		if epoch < last+epochRoom {
			t.Errorf("with the clock off by %v the epoch is %d after %d", step.clock, epoch, last)
		}
		last = epoch
	}
	if _, err := nextEpoch(dir, time.Date(2400, 1, 1, 0, 0, 0, 0, time.UTC)); err == nil {
		t.Error("a clock in the year 2400 gives an epoch that is not exact in JSON")
	}
}
