package node

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pnode/node/api"
	"pnode/node/config"
	"pnode/swarm/admission"
)

// told returns an output and the lines that it gets.
func told() (Output, *[]string) {
	var lines []string
	notice := func(line string) { lines = append(lines, line) }
	return Output{Events: func(api.Event) {}, Notice: notice, Log: slog.New(slog.DiscardHandler)}, &lines
}

// testOwner returns the owner of a run, from a folder of its own.
func testOwner(t *testing.T) admission.Owner {
	t.Helper()
	owner, err := admission.CreateOwner(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return owner
}

// testIdentity returns the identity of a node, from a folder of its own.
func testIdentity(t *testing.T) admission.Identity {
	t.Helper()
	id, err := admission.LoadIdentity(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestFirstLinesSayWhatMembersSee: before anything else of a run that others can join, and never of one on loopback.
func TestFirstLinesSayWhatMembersSee(t *testing.T) {
	for listen, says := range map[string]bool{
		"": false, "127.0.0.1:0": false, "localhost:4001": false, "[::1]:0": false,
		"0.0.0.0:0": true, ":4001": true, "[::]:0": true, "192.0.2.7:4001": true,
	} {
		out, lines := told()
		cfg := config.Default()
		cfg.Dir, cfg.Listen, cfg.Data = t.TempDir(), listen, []string{filepath.Join(t.TempDir(), "missing")} // ends before it listens
		if err := Train(t.Context(), cfg, out); err == nil {
			t.Fatal("a run without text began")
		}
		if got := slices.Equal(*lines, config.TellOwner()); got != says || !says && len(*lines) > 0 {
			t.Errorf("with --listen %q it says %q", listen, *lines)
		}
	}
}

// TestMembersAreToldWhatOthersSee: of a run that reaches beyond this machine, a node that comes back included.
func TestMembersAreToldWhatOthersSee(t *testing.T) {
	owner, id := testOwner(t), testIdentity(t)
	own, err := owner.Capability("run", id, time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	near, away := "/ip4/127.0.0.1/udp/9/quic-v1", "/ip4/192.0.2.7/udp/9/quic-v1"
	for name, tt := range map[string]struct {
		o    opening
		want []string
	}{
		"on loopback":            {opening{membership: membership{Known: []string{near, "/ip6/::1/udp/9/quic-v1"}}}, nil},
		"of another machine":     {opening{membership: membership{Known: []string{near, away}}}, config.TellMember()},
		"that listens":           {opening{membership: membership{Listen: "0.0.0.0:0", Known: []string{near}}}, config.TellMember()},
		"of an owner":            {opening{membership: membership{Capability: own, Known: []string{away}}}, config.TellOwner()},
		"of an owner, alone":     {opening{membership: membership{Capability: own}}, nil},
		"of an owner, by itself": {opening{membership: membership{Capability: own, Listen: ":4001"}}, config.TellOwner()},
	} {
		out, lines := told()
		if tt.o.tellVisible(out); !slices.Equal(*lines, tt.want) {
			t.Errorf("a node %s says %q, want %q", name, *lines, tt.want)
		}
	}
}

// TestNewMemberIsToldBeforeItContactsAnybody: the first contact sees this machine's address. One that is dead keeps it waiting.
func TestNewMemberIsToldBeforeItContactsAnybody(t *testing.T) {
	owner, contact := testOwner(t), testIdentity(t)
	addr := "/ip4/192.0.2.7/udp/9/quic-v1/p2p/" + string(contact.Peer())
	invite, err := owner.Invite(admission.InviteOptions{Run: "run", Addrs: []string{addr}, TTL: time.Hour, Uses: 1}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nothing is sent
	out, lines := told()
	err = Join(ctx, config.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"}, invite.String(), out)
	want := append(config.TellMember(), "asking to be let in at /ip4/192.0.2.7/udp/9/quic-v1, for 30 s at most")
	if err == nil || !slices.Equal(*lines, want) {
		t.Errorf("%v; it says %q", err, *lines)
	}
}

// TestFirstLinesNameWhatIsSeen: all of it, in lines that fit a terminal of 120 columns.
func TestFirstLinesNameWhatIsSeen(t *testing.T) {
	for _, lines := range [][]string{config.TellOwner(), config.TellMember()} {
		text := strings.Join(lines, "\n")
		for _, want := range []string{"text", "weights", "address", "name", "devices", "whom you trust", "pnode help trust"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q lacks %q", text, want)
			}
		}
		for _, line := range lines {
			if len(line) > 120 {
				t.Errorf("%d bytes: %q", len(line), line)
			}
		}
	}
}
