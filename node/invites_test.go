package node

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/api"
	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/consensus"
)

// named state: two machines of one name, one that was removed, an owner, and two invites.
func invited(t *testing.T) (s consensus.State, text string) {
	t.Helper()
	owner, err := admission.CreateOwner(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	id, err := admission.LoadIdentity(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	v, err := owner.Invite(admission.InviteOptions{Run: "run", Addrs: []string{"/ip4/192.0.2.1/udp/9/quic-v1/p2p/" + string(id.Peer())}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	member := func(p plan.PeerID, name string) consensus.Member {
		return consensus.Member{Peer: p, Label: name, State: consensus.Active}
	}
	return consensus.State{
		Owners: []plan.PeerID{"peer-own1"},
		Members: []consensus.Member{
			member("peer-aaa1", "ada"), member("peer-aaa2", "ada"), member("peer-bob1", "bob"), member("peer-own1", "desk"),
		},
		Grants: []consensus.Grant{
			{Serial: 0x3f9a01 << 40, Uses: 2, Peers: []plan.PeerID{"peer-aaa1", "peer-gone"}, Bearer: v.Bearer(), RedeemBefore: 1 << 40},
			{Serial: 0x3f9b02 << 40, Uses: 2, Peers: []plan.PeerID{"peer-bob1"}, RedeemBefore: 1 << 40, Owner: true},
		},
		Revoked: []consensus.Revocation{{Peer: "peer-bob1", By: "peer-own1", Reason: "spam"}},
	}, v.String()
}

// A node is named by its name, peer ID or its end, an invite by its text or serial or its beginning; what may mean two is
// refused with both.
func TestWhatARevocationNames(t *testing.T) {
	s, text := invited(t)
	for target, want := range map[string]string{
		"desk":             "peer peer-own1",
		"ada":              `"ada" may mean peer-aaa1 or peer-aaa2: name one of them`,
		"peer-aaa2":        "peer peer-aaa2",
		"aaa2":             "peer peer-aaa2",
		"…aaa2":            "peer peer-aaa2",
		"aa2":              "no node and no invite",
		"gone":             "peer peer-gone",
		"bob":              "bob was removed from the run by desk: spam already",
		"3f9a":             "invite 3f9a010000000000",
		"3F9B02":           "invite 3f9b020000000000",
		"3f9":              "no node and no invite",
		"3f9a010000000000": "invite 3f9a010000000000",
		text:               "invite 3f9a010000000000",
		" ":                "no node and no invite",
		"/ip4/127.0.0.1":   "no node and no invite",
	} {
		e, err := revocation(s, api.RevokeRequest{Target: target, Reason: "why"})
		got := "peer " + string(e.Peer)
		if e.Serial != 0 {
			got = "invite " + serialText(e.Serial)
		}
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", target, got, want)
		}
	}
	if _, err := revocation(s, api.RevokeRequest{Target: "desk", Members: true}); err == nil || !strings.Contains(err.Error(), "--members is for an invite") {
		t.Errorf("a node's members: %v", err)
	}
}

// A revocation that would take the run's majority is refused, with what to do.
func TestRevocationKeepsAMajority(t *testing.T) {
	s, _ := invited(t)
	vote := func(peers ...plan.PeerID) (servers []consensus.Server) {
		for _, p := range peers {
			servers = append(servers, consensus.Server{Peer: p, Voter: true})
		}
		return append(servers, consensus.Server{Peer: "peer-new1"})
	}
	for name, c := range map[string]struct {
		servers []consensus.Server
		e       consensus.Revoke
		ok      bool
	}{
		"the only voter":        {vote("peer-aaa1"), consensus.Revoke{Peer: "peer-aaa1"}, false},
		"no voter":              {vote("peer-own1"), consensus.Revoke{Peer: "peer-aaa1"}, true},
		"one of two":            {vote("peer-own1", "peer-aaa1"), consensus.Revoke{Peer: "peer-aaa1"}, false},
		"one of three":          {vote("peer-own1", "peer-aaa1", "peer-aaa2"), consensus.Revoke{Peer: "peer-aaa1"}, true},
		"who came by an invite": {vote("peer-own1", "peer-aaa1", "peer-gone"), consensus.Revoke{Serial: 0x3f9a01 << 40, Members: true}, false},
		"an invite alone":       {vote("peer-own1", "peer-aaa1", "peer-gone"), consensus.Revoke{Serial: 0x3f9a01 << 40}, true},
		"its own vote stays":    {vote("peer-aaa1"), consensus.Revoke{Serial: 0x3f9a01 << 40, Members: true, By: "peer-aaa1"}, true},
	} {
		if err := majorityWithout(c.servers, s, c.e); (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "pnode leave") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Elsewhere it is said whose node can do it.
func TestOnlyOwnersAreNamed(t *testing.T) {
	s, _ := invited(t)
	if err := onlyOwners(s, "make invites"); err.Error() != "only desk can make invites: a node of the run's owner" {
		t.Error(err)
	}
	s.Owners = append(s.Owners, "peer-aaa1")
	if err := onlyOwners(s, "revoke"); !strings.HasPrefix(err.Error(), "only desk or ada ") {
		t.Error(err)
	}
	s.Members = nil
	if err := onlyOwners(s, "revoke"); !strings.Contains(err.Error(), "none of their nodes is here") {
		t.Error(err)
	}
}

// A node that is removed knows the secret of the invite that it came by: the answer says that it is closed.
func TestAnswerToARevocation(t *testing.T) {
	grant := func(serial uint64, uses int, until int64) consensus.Grant {
		return consensus.Grant{Serial: serial, Uses: uses, Peers: []plan.PeerID{"peer-ada1"}, RedeemBefore: until}
	}
	later := time.Now().Add(time.Hour).Unix()
	for name, c := range map[string]struct {
		grant consensus.Grant
		said  bool
	}{
		"open": {grant(0x3a52, 2, later), true}, "used up": {grant(0x3a52, 1, later), false}, "expired": {grant(0x3a52, 2, 1), false},
	} {
		s := consensus.State{Grants: []consensus.Grant{c.grant}}
		got := said(s, s, consensus.Revoke{Peer: "peer-ada1"})
		if closed := strings.Contains(got, "invite 0000000000003a52 that it came by is closed too"); !strings.Contains(got, "cannot come back") || closed != c.said {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestStateOfAnInvite(t *testing.T) {
	now := time.Unix(1000, 0)
	two := []plan.PeerID{"a", "b"}
	for want, g := range map[string]consensus.Grant{
		"open":    {Uses: 3, Peers: two, RedeemBefore: 1001},
		"used up": {Uses: 2, Peers: two, RedeemBefore: 1},
		"expired": {Uses: 3, Peers: two, RedeemBefore: 1000},
		"revoked": {Uses: 2, Peers: two, RedeemBefore: 1, Revoked: true},
	} {
		if got := stateOf(g, now); got != want {
			t.Errorf("%+v is %s, want %s", g, got, want)
		}
	}
}

// A node that comes back lets in who belonged to the run: the owners and the roster, but nobody who was removed.
func TestWhoIsKept(t *testing.T) {
	s, _ := invited(t)
	before := []plan.PeerID{"peer-old1"}
	if got := admittedOf(s, before); !slices.Equal(got, before) {
		t.Errorf("without the log: %v", got)
	}
	s.Run = &plan.RunSpec{}
	if got := admittedOf(s, before); !slices.Equal(got, []plan.PeerID{"peer-own1", "peer-aaa1"}) {
		t.Errorf("with the log: %v", got)
	}
}

// An invite that cannot be made is told and does not end the node; the end of the node does.
func TestNodeGoesOnWithoutAnInvite(t *testing.T) {
	var notices []string
	out := Output{Notice: func(line string) { notices = append(notices, line) }, Log: slog.New(slog.DiscardHandler)}
	for _, cause := range []error{consensus.ErrNoLeader, errors.New("the run has 1024 invites")} {
		notices = nil
		err := out.tellInvite(t.Context(), time.Minute, func(context.Context) (string, error) { return "", cause })
		if err != nil || len(notices) != 1 || !strings.Contains(notices[0], cause.Error()) || !strings.Contains(notices[0], "`pnode invite`") {
			t.Errorf("%v: got %v and said %q", cause, err, notices)
		}
	}
	notices = nil
	if err := out.tellInvite(t.Context(), time.Minute, func(context.Context) (string, error) { return "pnode1-x", nil }); err != nil || !strings.Contains(notices[0], "pnode join pnode1-x") {
		t.Errorf("got %v and said %q", err, notices)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := out.tellInvite(ended, time.Minute, func(ctx context.Context) (string, error) { return "", ctx.Err() }); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupted node: %v", err)
	}
}

// TestWhoLetsAMachineInEarlyWaits: until this node is in the run, and not for good.
func TestWhoLetsAMachineInEarlyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		change := make(chan struct{})
		changed := func() <-chan struct{} { return change }
		began := time.Now()
		if err := awaitReady(t.Context(), changed, func() error { return notInRun }); !errors.Is(err, api.ErrNotReady) || time.Since(began) != readyTime {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		looks := 0
		err := awaitReady(t.Context(), changed, func() error {
			if looks++; looks == 1 {
				time.AfterFunc(time.Second, func() { close(change) })
				return notInRun
			}
			return nil
		})
		if err != nil || looks != 2 {
			t.Errorf("%v after %d looks", err, looks)
		}
	})
}
