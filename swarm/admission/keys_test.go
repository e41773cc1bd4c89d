package admission

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"pnode/planner/plan"
	"pnode/swarm/twofold"
)

const testRun plan.RunID = "testrun"

// testOwner is an owner key in a folder of its own.
func testOwner(t testing.TB) Owner {
	t.Helper()
	o, err := CreateOwner(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func testIdentity(t testing.TB) Identity {
	t.Helper()
	id, err := LoadIdentity(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestIdentityPersists(t *testing.T) {
	dir := t.TempDir() + "/new"
	a, err := LoadIdentity(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := LoadIdentity(dir)
	if err != nil || a.Peer() != b.Peer() {
		t.Fatalf("second load: %s %v, want %s", b.Peer(), err, a.Peer())
	}
	info, err := os.Stat(dir + "/" + IdentityFile)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("key file: %v %v", info, err)
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 2 {
		t.Errorf("folder holds %v, want the key and its copy only", names)
	}
	spoil := func(name string) {
		if err := os.WriteFile(dir+"/"+name, []byte("nonsense"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range names { // one at a time
		written, err := os.ReadFile(dir + "/" + n.Name())
		if err != nil {
			t.Fatal(err)
		}
		spoil(n.Name())
		if b, err := LoadIdentity(dir); err != nil || a.Peer() != b.Peer() {
			t.Errorf("%s is damaged: %s %v, want %s", n.Name(), b.Peer(), err, a.Peer())
		}
		if err := os.WriteFile(dir+"/"+n.Name(), written, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range names {
		spoil(n.Name())
	}
	if _, err := LoadIdentity(dir); !errors.Is(err, twofold.ErrDamaged) || !strings.Contains(err.Error(), "--dir") {
		t.Errorf("both are damaged: %v", err)
	}
}

func TestOwnerKeyStays(t *testing.T) {
	dir := t.TempDir()
	if _, err := LoadOwner(dir); !errors.Is(err, ErrNoOwnerKey) {
		t.Fatalf("no owner key: %v", err)
	}
	a, err := CreateOwner(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := CreateOwner(dir)
	if err != nil || !a.PublicKey().Equal(b.PublicKey()) {
		t.Fatalf("second create: %v", err)
	}
	if _, err := (Owner{}).Invite(InviteOptions{Run: testRun}, time.Now()); !errors.Is(err, ErrNoOwnerKey) {
		t.Errorf("invite without owner key: %v", err)
	}
}

// A key signs under one name: another spelling of the peer ID would be another member.
func TestSpellingsOfAPeerID(t *testing.T) {
	id := testIdentity(t)
	signature, err := id.Sign([]byte("message"))
	if err != nil {
		t.Fatal(err)
	}
	if err := id.Verify(id.Peer(), []byte("message"), signature); err != nil {
		t.Error(err)
	}
	other := plan.PeerID(peer.ToCid(id.ID()).String())
	if back, err := peer.Decode(string(other)); err != nil || back != id.ID() {
		t.Fatalf("%s is no spelling of %s: %v", other, id.Peer(), err)
	}
	if err := id.Verify(other, []byte("message"), signature); err == nil {
		t.Errorf("%s signs as %s", id.Peer(), other)
	}
}
