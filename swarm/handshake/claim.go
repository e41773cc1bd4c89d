package handshake

import (
	"context"
	"errors"
	"fmt"
	"time"

	corehost "github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/host"
	"pnode/swarm/streams"
	"pnode/swarm/version"
)

const (
	claimProtocol = protocol.ID("/pnode/invite/1")
	// claimTime bounds how long a contact is asked again that does not answer.
	claimTime = 5 * time.Second
)

// answerClaim tells a newcomer the run and the grant of the invite whose secret it knows. Whoever does not know the
// secret of an invite of this run is told nothing.
func (g *Greeter) answerClaim(st network.Stream) {
	defer st.Close()
	offer, err := g.offer(st)
	if err == nil {
		err = streams.WriteMessage(st, offer.Append(nil))
	}
	if err != nil {
		g.Log.Debug("swarm: claim", "peer", st.Conn().RemotePeer(), "err", err)
		st.Reset()
	}
}

func (g *Greeter) offer(st network.Stream) (admission.Offer, error) {
	b, err := readFirst(st, admission.MaxClaimBytes)
	if err != nil {
		return admission.Offer{}, err
	}
	claim, err := admission.DecodeClaim(b)
	if err != nil {
		return admission.Offer{}, err
	}
	newcomer := st.Conn().RemotePeer()
	offer, known := g.Offer(plan.PeerID(newcomer.String()), claim.Bearer[:])
	if !known || !claim.By(newcomer, g.Host.ID()) {
		return admission.Offer{}, admission.ErrNeedsInvite
	}
	return offer, nil
}

// Claim asks the contact of an invite, whom the host reaches at its addresses, for the run and the grant, and returns the
// invite with them. The error is a refusal (admission.IsRefusal) when the contact, or the invite itself, says no.
func Claim(ctx context.Context, h corehost.Host, v admission.Invite, now time.Time) (admission.Invite, error) {
	infos, err := admission.ParseAddrs(v.Addrs)
	if err == nil && len(infos) != 1 {
		err = fmt.Errorf("%w: addresses of %d peers, want one", admission.ErrMalformed, len(infos))
	}
	if err != nil {
		return v, err
	}
	contact := infos[0]
	claim, err := v.Claim(h.ID(), contact.ID)
	if err != nil {
		return v, err
	}
	connect := func(ctx context.Context) error { return h.Connect(network.WithAllowLimitedConn(ctx, "claim"), contact) }
	if err := host.ConnectAgain(ctx, h.Network(), contact.ID, connect); err != nil {
		return v, fmt.Errorf("peer %s: %w", contact.ID, err)
	}
	offer, err := ask(ctx, h, contact.ID, claim)
	for pause, began := firstPause, time.Now(); err != nil && !admission.IsRefusal(err); pause = min(2*pause, longestPause) {
		if time.Since(began) > claimTime || ctx.Err() != nil {
			return v, fmt.Errorf("peer %s: %w: %w", contact.ID, admission.ErrUnknownInvite, err)
		}
		wait(ctx, pause) // it may have had no place for a stranger
		offer, err = ask(ctx, h, contact.ID, claim)
	}
	if err != nil {
		return v, fmt.Errorf("peer %s: %w", contact.ID, err)
	}
	return v.Accept(offer, now)
}

// ask sends a claim and reads the offer.
func ask(ctx context.Context, h corehost.Host, contact peer.ID, claim admission.Claim) (admission.Offer, error) {
	st, err := h.NewStream(network.WithAllowLimitedConn(ctx, "claim"), contact, claimProtocol)
	if err != nil {
		if err = streams.Versions(h, contact, claimProtocol, err); errors.Is(err, version.Err) {
			err = fmt.Errorf("%w: %w", admission.ErrRefused, err)
		}
		return admission.Offer{}, err
	}
	defer st.Close()
	stop := context.AfterFunc(ctx, func() { st.Reset() }) // ends a blocked read too
	defer stop()
	if err := streams.WriteMessage(st, claim.Append(nil)); err != nil {
		return admission.Offer{}, err
	}
	b, err := streams.ReadMessage(st, admission.MaxOfferBytes)
	if err != nil {
		return admission.Offer{}, err
	}
	return admission.DecodeOffer(b)
}

// wait blocks for a time, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
