package node

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"pnode/node/api"
	"pnode/node/config"
	"pnode/swarm/admission"
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
