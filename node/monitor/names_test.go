package monitor

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"testing"

	"pnode/node/api"
	"pnode/node/plain"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestNamesInTheLog: a line of the log says who, by a name where one is known.
func TestNamesInTheLog(t *testing.T) {
	const b, stranger plan.PeerID = "12D3KooWADYC8MqvtEzAp1KpV18QJnocd5RpvJjG16J35F4EaFEV", "12D3KooWLzfvwHJtNGmQT4LJgByanoQYbgzE1Xo5F8oBWp7ZFP6G"
	var names Names
	lines := func(level slog.Level, v any) string {
		var out bytes.Buffer
		log := names.Log(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})))
		log.With("with", 1).Warn("consensus: a node is gone", "peer", v)
		_, line, _ := strings.Cut(strings.TrimSpace(out.String()), "msg=")
		return line
	}
	if got := lines(slog.LevelWarn, b); !strings.Contains(got, string(b)) {
		t.Errorf("before names are known: %s", got)
	}
	names.Know(func(p plan.PeerID) string {
		if p == b || string(p) == b.Short() {
			return "lab"
		}
		return string(p)
	})
	for _, c := range []struct {
		v    any
		want string
	}{
		{b, "peer=lab"},
		{string(b), "peer=lab"},
		{[]plan.PeerID{b, stranger}, `peer="lab, ` + string(stranger) + `"`},
		{errors.New("ask " + string(b) + ": gone"), `peer="ask lab: gone"`},
		{errors.New("ask " + b.Short() + ", not " + stranger.Short()), `peer="ask lab, not ` + stranger.Short() + `"`},
		{"/ip4/10.0.0.1/tcp/7/p2p/" + string(b), "peer=/ip4/10.0.0.1/tcp/7/p2p/" + string(b)},
		{7, "peer=7"},
		{(*url.URL)(nil), "peer=<nil>"},
		{fmt.Errorf("checkpointer: ask: %w", errors.New("link: peer lost")), `peer="ask: peer lost"`},
	} {
		if got, want := lines(slog.LevelWarn, c.v), `"a node is gone" with=1 `+c.want; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	cause := errors.New("link: dial " + string(b) + ": gone")
	err := names.Error(fmt.Errorf("node: %w", cause))
	if got := plain.Text(err); got != "dial lab: gone" || !errors.Is(err, cause) {
		t.Errorf("an error with a name: %q", got)
	}
	if other := errors.New("node: ask " + string(stranger)); names.Error(other) != other || names.Error(nil) != nil { //nolint:errorlint // the same
		t.Error("an error without a name became another one")
	}
	if got := lines(slog.LevelDebug, b); !strings.Contains(got, string(b)) {
		t.Errorf("a log for debugging: %s", got)
	}
}

// TestAStatusHasNamesBesideIDs: two machines with one name, and two like cards of one machine, are told apart.
func TestAStatusHasNamesBesideIDs(t *testing.T) {
	cards := plan.Profile{Devices: []plan.DeviceProfile{{Name: "cuda:0", Model: "NVIDIA H200"}, {Name: "cuda:1", Model: "NVIDIA H200"}}}
	processor := plan.Profile{Devices: []plan.DeviceProfile{{Name: "cpu", Model: "AMD EPYC 7763 64-Core Processor"}}}
	state := consensus.State{Members: []consensus.Member{
		{Peer: "a", Label: "rig", State: consensus.Active, Profile: cards},
		{Peer: "b", Label: "rig", State: consensus.Active, Profile: processor},
		{Peer: "c", Label: "lab", State: consensus.Active, Profile: processor},
	}}
	s := api.Status{
		Peer: "c", Leader: "a",
		Plan:       []api.StageStatus{{Peer: "a", Device: "cuda:1"}, {Peer: "c", Device: "cpu"}},
		Seats:      []api.SeatStatus{{Peer: "b", Device: "cpu"}},
		Links:      []api.LinkStatus{{From: "a", To: "c"}},
		Replicas:   []api.ReplicaStatus{{Peer: "b"}},
		Substitute: &api.Substitute{Lost: "b", By: "c"},
	}
	fillNames(&s, state)
	got := []string{
		s.Name, s.LeaderName, s.Plan[0].Name, s.Plan[0].Title, s.Plan[1].Name, s.Plan[1].Title, s.Seats[0].Name, s.Seats[0].Title,
		s.Links[0].FromName, s.Links[0].ToName, s.Replicas[0].Name, s.Substitute.LostName, s.Substitute.ByName,
	}
	want := []string{
		"lab", "rig a", "rig a", "NVIDIA H200 cuda:1", "lab", "AMD EPYC 7763", "rig b", "AMD EPYC 7763",
		"rig a", "lab", "rig b", "rig b", "lab",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
