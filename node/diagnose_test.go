package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	libp2pswarm "github.com/libp2p/go-libp2p/p2p/net/swarm"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	"github.com/quic-go/quic-go"

	"pnode/node/config"
	"pnode/node/plain"
	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/diagnose"
)

// answering listens as a contact, with a certificate that begins at a time, and returns where.
func answering(t *testing.T, contact admission.Identity, begins time.Time, change func(*tls.Config)) string {
	t.Helper()
	id, err := libp2ptls.NewIdentity(contact.Key(), libp2ptls.WithCertTemplate(&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{SerialNumber: "1"}, NotBefore: begins, NotAfter: begins.Add(1000 * time.Hour),
	}))
	if err != nil {
		t.Fatal(err)
	}
	conf, _ := id.ConfigForPeer("")
	conf.VerifyPeerCertificate = nil
	change(conf)
	ln, err := quic.ListenAddr("127.0.0.1:0", conf, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			if _, err := ln.Accept(context.Background()); err != nil {
				return
			}
		}
	}()
	return ln.Addr().String()
}

// TestAFailedJoinNamesWhatIsInTheWay: by the tests made after it, with what to do, and without the invite's secret.
func TestAFailedJoinNamesWhatIsInTheWay(t *testing.T) {
	owner, contact := testOwner(t), testIdentity(t)
	nobody := func() string {
		c, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.LocalAddr().String()
	}
	for name, c := range map[string]struct {
		at   string
		want string
	}{
		"nobody listens": {nobody(), "(QUIC handshake): the machine there answers that nothing listens on the port, or a firewall answers in its place; what to do: start the node that made the invite"},
		"this clock is behind": {
			answering(t, contact, time.Now().Add(71*time.Hour), func(*tls.Config) {}),
			"(QUIC handshake): this machine's clock is behind the contact's by at least 3 days: it takes the contact's certificate for one of the future; what to do: set this machine's clock",
		},
		"this clock is ahead": {
			answering(t, contact, time.Now().Add(-time.Hour), func(conf *tls.Config) {
				conf.VerifyPeerCertificate = func([][]byte, [][]*x509.Certificate) error { return errors.New("not yet valid") }
			}),
			"the contact takes this machine's certificate for one of the future: the clocks differ by more than 1 hour, this one being ahead; what to do: set this machine's clock",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := netip.MustParseAddrPort(c.at)
			addr := fmt.Sprintf("/ip4/%s/udp/%d/quic-v1/p2p/%s", at.Addr(), at.Port(), contact.Peer())
			invite, err := owner.Invite(admission.InviteOptions{Run: "run", Addrs: []string{addr}, TTL: time.Hour, Uses: 1}, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			out, _ := told()
			err = Join(t.Context(), config.Config{Dir: t.TempDir()}, invite.String(), out)
			if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), invite.String()) {
				t.Errorf("%v\nwant ... %s", err, c.want)
			}
		})
	}
}

// TestAFailedJoinBlamesTheNameAndTheWayOverUDP: an address of a name that nobody knows, and one at which packets get no answer.
func TestAFailedJoinBlamesTheNameAndTheWayOverUDP(t *testing.T) {
	contact := testIdentity(t)
	deaf, err := net.ListenPacket("udp", "127.0.0.1:0") // takes packets and says nothing, as a firewall that drops them
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deaf.Close() })
	_, port, err := net.SplitHostPort(deaf.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ addr, want string }{
		"no such name": {"/dns/desk.invalid/udp/4001/quic-v1", "cannot reach the run: DNS desk.invalid (look the name up): the resolver"},
		"UDP dropped": {
			"/ip4/127.0.0.1/udp/" + port + "/quic-v1", "cannot reach the run: UDP 127.0.0.1:" + port + " (QUIC handshake): no answer in 5 s; " +
				"what to do: see that the machine there is on and its node runs; open UDP and TCP to that port there and on the way",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := slog.New(slog.DiscardHandler)
			err := contactError(t.Context(), errors.New("dial"), []string{c.addr + "/p2p/" + string(contact.Peer())}, log)
			if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v\nwant ... %s", err, c.want)
			}
		})
	}
}

// TestAnInviteThatIsRefused: the error says whether it was the invite or this machine's clock, and what to do; what says so by itself stays.
func TestAnInviteThatIsRefused(t *testing.T) {
	asked := "refused: "
	renew := "; what to do: ask for a new one (`pnode invite`)"
	for name, c := range map[string]struct {
		answer error
		want   string
	}{
		"used up":   {fmt.Errorf("swarm: claim invite: peer x: %w", admission.ErrInviteUsed), asked + "the contact says: invite is used up" + renew},
		"revoked":   {admission.ErrInviteRevoked, asked + "the contact says: invite was revoked" + renew},
		"another's": {fmt.Errorf("swarm: claim invite: peer x: %w", admission.ErrSignature), asked + "the contact's answer does not belong to this invite: not signed by an owner of this run" + renew},
		"unknown": {
			fmt.Errorf("%w: %w", admission.ErrUnknownInvite, errors.New("stream reset")),
			asked + "the contact does not know the invite: it was revoked and forgotten, or is of a run that is over" + renew,
		},
		"this clock is ahead": {
			fmt.Errorf("swarm: redeem invite: %w", admission.ErrCapabilityExpired),
			"refused: clock: the contact accepts the invite, and by this machine's clock the membership itself is over already; " +
				"what to do: set this machine's clock, or the contact's if that is the wrong one",
		},
		"removed":     {admission.Removed("removed from the run by desk"), "this node was removed from the run by desk"},
		"no majority": {admission.ErrNoMajority, admission.ErrNoMajority.Error()},
	} {
		err := refusedError(c.answer)
		if got := plain.Text(err); got != c.want || !errors.Is(err, ErrRefused) || !errors.Is(err, c.answer) {
			t.Errorf("%s: %q\nwant %q", name, got, c.want)
		}
	}
}

// TestAContactThatAnswersTheTestsAlone: why it did not answer before is told in words for people, on one line.
func TestAContactThatAnswersTheTestsAlone(t *testing.T) {
	contact := testIdentity(t)
	at := netip.MustParseAddrPort(answering(t, contact, time.Now(), func(*tls.Config) {}))
	addr := fmt.Sprintf("/ip4/%s/udp/%d/quic-v1/p2p/%s", at.Addr(), at.Port(), contact.Peer())
	raw := &libp2pswarm.DialError{Cause: errors.New("all dials failed"), DialErrors: []libp2pswarm.TransportError{
		{Cause: &quic.TransportError{ErrorCode: quic.InternalError, ErrorMessage: "write udp: sendmsg: operation not permitted"}},
	}}
	for want, err := range map[string]error{
		"the contact answers over QUIC, and did not let this node in: the connection is blocked by this machine's firewall; try again": raw,
		"it was revoked and forgotten, or is of a run that is over; what to do: ask for a new one (`pnode invite`)":                    fmt.Errorf("%w: %w", admission.ErrUnknownInvite, raw),
	} {
		told := contactError(t.Context(), fmt.Errorf("swarm: connect: peer x: %w", err), []string{addr}, slog.New(slog.DiscardHandler))
		if text := told.Error(); !strings.HasSuffix(text, want) || strings.Contains(text, "\n") || strings.Contains(text, "sendmsg") {
			t.Errorf("%q\nwant ... %q", text, want)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if text := contactError(ended, err, []string{addr}, slog.New(slog.DiscardHandler)).Error(); strings.Contains(text, "\n") || strings.Contains(text, "sendmsg") {
			t.Errorf("interrupted: %q", text)
		}
	}
}

// TestJoinedOver: one line says how the contact was reached, but for QUIC, also where nothing was in the way of a relay.
func TestJoinedOver(t *testing.T) {
	works := func(p diagnose.Part) diagnose.Test {
		return diagnose.Test{Part: p, Target: "198.51.100.7:4001", Result: diagnose.OK, Finding: diagnose.Works}
	}
	silent := diagnose.Test{Part: diagnose.UDP, Target: "198.51.100.7:4001", Result: diagnose.Fails, Finding: diagnose.Silent, Do: "open it"}
	for _, tt := range []struct {
		over  plan.Transport
		tests []diagnose.Test
		want  string
	}{
		{plan.TCP, []diagnose.Test{silent, works(diagnose.TCP)}, "joined over TCP: UDP to 198.51.100.7:4001 gets no answer; open it"},
		{plan.TCP, []diagnose.Test{works(diagnose.UDP)}, ""},
		{
			plan.Relay,
			[]diagnose.Test{works(diagnose.UDP), works(diagnose.Relay)},
			"joined through a relay: UDP to the relay at 198.51.100.7:4001 works; data will go past it where the NATs let that be, else through it",
		},
		{
			plan.Relay,
			[]diagnose.Test{silent, works(diagnose.TCP), works(diagnose.Relay)},
			"joined through a relay: UDP to 198.51.100.7:4001 gets no answer, TCP to the relay at 198.51.100.7:4001 works; " +
				"data will go past it where the NATs let that be, else through it",
		},
		{
			plan.Relay,
			[]diagnose.Test{works(diagnose.UDP)},
			"joined through a relay: the contact did not answer directly; data goes past the relay where that works, else through it",
		},
	} {
		if got := joinedOver(tt.over, diagnose.Judge(tt.tests)); got != tt.want {
			t.Errorf("over %s: %q, want %q", tt.over, got, tt.want)
		}
	}
}
