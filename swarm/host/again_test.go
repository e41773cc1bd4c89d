package host

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/test"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"pnode/swarm/neterr"
)

// A machine on which nobody listens is asked again until somebody does, or time is up; every other answer is final.
func TestConnectAgainWhileNobodyListens(t *testing.T) {
	other := errors.New("another error")
	for _, tt := range []struct {
		name        string
		answers     []error // of each dial; the last one's for ever
		dials, most int
		want        error
	}{
		{"somebody listens", []error{nil}, 1, 1, nil},
		{"another error", []error{other}, 1, 1, other},
		{"restarted", []error{syscall.ECONNREFUSED, syscall.ECONNREFUSED, nil}, 3, 3, nil},
		{"restarted as another", []error{syscall.ECONNREFUSED, other}, 2, 2, other},
		{"gone", []error{syscall.ECONNREFUSED}, 8, 20, syscall.ECONNREFUSED},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, dials := time.Now(), 0
				err := ConnectAgain(t.Context(), nil, "", func(context.Context) error {
					dials++
					return tt.answers[min(dials, len(tt.answers))-1]
				})
				if !errors.Is(err, tt.want) || dials < tt.dials || dials > tt.most || time.Since(began) > restartTime {
					t.Errorf("%v after %d dials in %v", err, dials, time.Since(began))
				}
				if tt.name == "gone" && !strings.HasPrefix(err.Error(), "nobody listens there, asked again for 8 s") {
					t.Error(err)
				}
			})
		})
	}
}

// libp2p dials again at once, though it keeps away from an address that failed for 5 s.
func TestConnectAgainDials(t *testing.T) {
	h, err := libp2p.New(libp2p.NoListenAddrs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at, err := manet.FromNetAddr(l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	there := peer.AddrInfo{ID: test.RandPeerIDFatal(t), Addrs: []ma.Multiaddr{at}}
	again := errors.New("dialed again")
	dials := 0
	err = ConnectAgain(t.Context(), h.Network(), there.ID, func(ctx context.Context) error {
		err := h.Connect(ctx, there)
		if dials++; dials > 1 && neterr.Refused(err) && !errors.Is(err, swarm.ErrDialBackoff) {
			return again
		}
		return err
	})
	if !errors.Is(err, again) {
		t.Errorf("%v after %d dials", err, dials)
	}
}
