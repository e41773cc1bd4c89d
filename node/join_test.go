package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"pnode/checkpoint"
	"pnode/node/api"
	"pnode/node/config"
	"pnode/swarm/admission"
	"pnode/swarm/pairing"
)

// TestJoinTellsABadInviteFromARefusedOne: the first is a slip of the user, the second needs
// another invite.
func TestJoinTellsABadInviteFromARefusedOne(t *testing.T) {
	out := Output{Events: func(api.Event) {}, Notice: func(string) {}, Log: slog.New(slog.DiscardHandler)}
	for _, tt := range []struct {
		target string
		want   error
		text   string
	}{
		{"hello", ErrBadInvite, `"hello" is no invite: one begins with`},
		{"pnode1-AAAA", ErrBadInvite, "the invite is damaged: copy"},
		{"/ip4/nowhere", ErrBadInvite, "nowhere"},
		{"/ip4/127.0.0.1/udp/9/quic-v1/p2p/12D3KooWGzxzKZYveHXtpG6AsrUJBcWxHBFS2HsEoGTxrMLvKXtf", ErrRefused, "pnode invite"},
	} {
		err := Join(t.Context(), config.Config{Dir: t.TempDir()}, tt.target, out)
		if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: got %v, want %v with %q", tt.target, err, tt.want, tt.text)
		}
		if strings.Contains(err.Error(), "malformed") || strings.Contains(err.Error(), "parse") {
			t.Errorf("%s: how it is read is nobody's business: %v", tt.target, err)
		}
		if other := map[error]error{ErrBadInvite: ErrRefused, ErrRefused: ErrBadInvite}[tt.want]; errors.Is(err, other) {
			t.Errorf("%s: also %v", tt.target, other)
		}
	}
	err := error(marked{admission.ErrInviteExpired, ErrRefused})
	if !errors.Is(err, ErrRefused) || !errors.Is(err, admission.ErrInviteExpired) || strings.Count(err.Error(), "pnode invite") != 1 {
		t.Errorf("an expired invite: %v", err)
	}
}

// A membership that has ended, or ends soon, is renewed by an invite in its folder; one that lasts costs no place of the
// invite, unless it makes an owner of a member.
func TestMembershipsAreRenewed(t *testing.T) {
	now := time.Now()
	grant := func(r admission.Role, days int) admission.Grant {
		return admission.Grant{Role: r, Expires: now.Add(time.Duration(days) * 24 * time.Hour)}
	}
	member, owner := admission.RoleMember, admission.RoleOwner
	for name, tt := range map[string]struct {
		offered, own admission.Grant
		want         bool
	}{
		"ended":                        {grant(member, 365), grant(member, -1), true},
		"ends soon":                    {grant(member, 365), grant(member, 3), true},
		"lasts":                        {grant(member, 365), grant(member, 300), false},
		"the same invite again":        {grant(member, 3), grant(member, 3), false},
		"a member becomes an owner":    {grant(owner, 100), grant(member, 300), true},
		"an owner's ended":             {grant(owner, 365), grant(owner, -1), true},
		"no owner becomes a member":    {grant(member, 365), grant(owner, -1), false},
		"an owner whose own one lasts": {grant(owner, 365), grant(owner, 300), false},
	} {
		if got := better(tt.offered, tt.own, now); got != tt.want {
			t.Errorf("%s: renewed: %v, want %v", name, got, tt.want)
		}
	}
}

// TestAnInterruptBeforeTakingPartIsNoFailure: whatever the start was doing, nothing is lost and the sentence says that.
func TestAnInterruptBeforeTakingPartIsNoFailure(t *testing.T) {
	asked, cancel := context.WithCancel(t.Context())
	cancel()
	for name, err := range map[string]error{
		"its text was read":   early(asked, fmt.Errorf("dataset: read: %w", context.Canceled)),
		"a contact was tried": contactError(asked, errors.New("dial"), nil, slog.New(slog.DiscardHandler)),
	} {
		if !errors.Is(err, ErrInterrupted) || err.Error() != ErrInterrupted.Error() {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, err := range []error{nil, ErrFinished, os.ErrPermission} {
		if got := early(asked, err); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
	if err := early(t.Context(), context.Canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody interrupted: %v", err)
	}
}

// TestAskingNamesFewAddresses of many, each once, without the peer's key.
func TestAskingNamesFewAddresses(t *testing.T) {
	const peer = "/p2p/12D3KooWGzxzKZYveHXtpG6AsrUJBcWxHBFS2HsEoGTxrMLvKXtf"
	for want, addrs := range map[string][]string{
		"asking to be let in at /dns/desk/udp/1/quic-v1, for 30 s at most":               {"/dns/desk/udp/1/quic-v1" + peer, "/dns/desk/udp/1/quic-v1"},
		"asking to be let in at /dns/a/tcp/1, /dns/b/tcp/1 and 2 more, for 30 s at most": {"/dns/d/tcp/1", "/dns/c/tcp/1", "/dns/b/tcp/1", "/dns/a/tcp/1"},
	} {
		if got := askingText(addrs); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

// TestASecondNodeInAFolderNamesTheFirst: what shows it, what ends it, and how both run.
func TestASecondNodeInAFolderNamesTheFirst(t *testing.T) {
	cfg, log := config.Default(), slog.New(slog.DiscardHandler)
	cfg.Dir = t.TempDir()
	first, second := opening{cfg: cfg}, opening{cfg: cfg}
	if err := first.prepare(log); err != nil {
		t.Fatal(err)
	}
	defer first.store.Close()
	err := second.prepare(log)
	if !errors.Is(err, ErrRunning) || !errors.Is(err, checkpoint.ErrLocked) {
		t.Fatal(err)
	}
	for _, want := range []string{"pnode status --dir " + cfg.Dir, "pnode leave --dir " + cfg.Dir, "another folder with --dir", fmt.Sprintf("process %d", os.Getpid())} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
}

// TestChooseInTheLocalNetwork: the only run, or the one that is named by its machine or by its ID; else there is an error that says how to go on.
func TestChooseInTheLocalNetwork(t *testing.T) {
	desk, rack, second := pairing.Run{ID: "zy6g6la", Name: "desk"}, pairing.Run{ID: "k2v9qqq", Name: "rack"}, pairing.Run{ID: "k2v7aaa", Name: "desk"}
	for name, c := range map[string]struct {
		named   string
		runs    []pairing.Run
		want    pairing.Run
		problem error
		says    string
	}{
		"the only one":        {runs: []pairing.Run{desk}, want: desk},
		"by its machine":      {named: "rack", runs: []pairing.Run{desk, rack}, want: rack},
		"by its ID":           {named: "k2v7", runs: []pairing.Run{desk, rack, second}, want: second},
		"several":             {runs: []pairing.Run{desk, rack}, problem: ErrSeveralRuns, says: "choose one: `pnode join --lan=zy6g6la` (on desk), `pnode join --lan=k2v9qqq` (on rack)"},
		"two of that machine": {named: "desk", runs: []pairing.Run{desk, rack, second}, problem: ErrSeveralRuns, says: "--lan=k2v7aaa` (on desk)"},
		"not that one":        {named: "attic", runs: []pairing.Run{desk}, problem: config.ErrNoRun, says: "there are: `pnode join --lan=zy6g6la` (on desk)"},
		"none":                {problem: config.ErrNoRun, says: "start one there with `pnode train --lan`"},
	} {
		got, err := LocalAsk{Run: c.named}.choose(c.runs)
		if got.ID != c.want.ID || !errors.Is(err, c.problem) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestWhoMayAnswerTheLocalNetwork: an owner's node that was told to, and no other.
func TestWhoMayAnswerTheLocalNetwork(t *testing.T) {
	var o ownership
	if err := o.openLAN("desk", false, Output{}); !errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), "--lan") {
		t.Errorf("a member's node: %v", err)
	}
	if _, err := o.Newcomers(); !errors.Is(err, errNoLAN) {
		t.Errorf("newcomers: %v", err)
	}
	if _, err := o.Admit(t.Context(), "123456"); !errors.Is(err, errNoLAN) || o.closeLAN() != nil {
		t.Errorf("admit: %v", err)
	}
}
