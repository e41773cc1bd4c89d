package mesh

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"golang.org/x/sync/errgroup"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/host"
)

// ErrSelf is returned when an address is this node's own.
var ErrSelf = errors.New("this node's own address")

// Connect dials the addresses, each with /p2p/, at most 8 peers at a time, and blocks until one of the peers has
// admitted this node and was admitted by it: one whose machine is off is not waited for. The error gives
// each peer's reason, or those of the peers that refuse only. A refusal unwraps to its sentinel and is
// final (admission.IsRefusal). A connection that vanishes before there is a verdict is made again, for some
// seconds: then the error wraps admission.ErrNotMember. So is one that a machine refuses on which nobody listens: the
// node there may be starting again.
func (m *Mesh) Connect(ctx context.Context, addrs ...string) error {
	infos, err := admission.ParseAddrs(addrs)
	if err != nil {
		return fmt.Errorf("swarm: connect: %w", err)
	}
	if len(infos) == 0 {
		return fmt.Errorf("swarm: connect: no addresses")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	outcomes := make([]error, len(infos))
	var dials errgroup.Group
	dials.SetLimit(maxDials)
	for i, info := range infos {
		m.Store.Seed(info.ID, info.Addrs)
		dials.Go(func() error {
			outcomes[i] = host.ConnectAgain(ctx, m.Host.Network(), info.ID, func(ctx context.Context) error { return m.connect(ctx, info) })
			if outcomes[i] == nil {
				cancel()
			}
			return nil
		})
	}
	dials.Wait()
	if slices.Contains(outcomes, nil) {
		return nil
	}
	refusals := slices.DeleteFunc(slices.Clone(outcomes), func(err error) bool { return !admission.IsRefusal(err) })
	if len(refusals) > 0 {
		outcomes = refusals // that others do not answer has nothing to do with it
	}
	return fmt.Errorf("swarm: connect: %w", errors.Join(outcomes...))
}

// connect dials one peer, again when its connection vanishes before there is a verdict, for at most
// admission.TimeLimit.
func (m *Mesh) connect(ctx context.Context, info peer.AddrInfo) error {
	began := time.Now()
	err := m.dial(ctx, info)
	for pause := firstPause; errors.Is(err, admission.ErrNotMember) && time.Since(began) < admission.TimeLimit; pause = min(2*pause, longestPause) {
		select {
		case <-time.After(pause/2 + rand.N(pause)): // the other end may be doing the same
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, ctx.Err())
		}
		err = m.dial(ctx, info)
	}
	return err
}

// dial dials one peer and blocks until the verdict. The error wraps admission.ErrNotMember when there was none before
// the connection vanished.
func (m *Mesh) dial(ctx context.Context, info peer.AddrInfo) error {
	if m.Peers.Member(info.ID) {
		return nil
	}
	if info.ID == m.Host.ID() {
		return fmt.Errorf("peer %s: %w", info.ID, ErrSelf)
	}
	m.Store.Refused(info.ID, nil)
	// A relayed connection will do; libp2p tries to punch through and replace it.
	err := m.Host.Connect(network.WithAllowLimitedConn(ctx, "member"), info)
	if errors.Is(err, swarm.ErrNoAddresses) && len(info.Addrs) > 0 {
		// The host forgets the addresses of a stranger when its connection ends: one that called here did so just now.
		err = fmt.Errorf("%w: %w", admission.ErrNotMember, err)
	}
	if err != nil {
		return fmt.Errorf("peer %s: %w", info.ID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, admission.TimeLimit)
	defer cancel()
	err = m.Peers.Wait(ctx, info.ID)
	if errors.Is(err, admission.ErrNotMember) {
		// Gone already: it may have said why before.
		if why := m.Store.Refusal(info.ID); why != nil {
			err = why
		}
	}
	if err != nil {
		return fmt.Errorf("peer %s: %w", info.ID, err)
	}
	return nil
}

// Reach connects to p, unless it is, blocks until it is a member, and returns its libp2p ID.
func (m *Mesh) Reach(ctx context.Context, p plan.PeerID) (peer.ID, error) {
	id, err := peer.Decode(string(p))
	if err != nil {
		return "", fmt.Errorf("peer ID %q: %w", string(p), err)
	}
	if m.Peers.Use(id) {
		return id, nil
	}
	if m.Peers.Blocked(id) {
		return "", admission.ErrBlocked
	}
	addrs := m.Store.Addrs(id)
	if len(addrs) == 0 && m.Host.Network().Connectedness(id) == network.NotConnected {
		return "", fmt.Errorf("peer %s: %w, and no address of it is known", id, admission.ErrNotMember)
	}
	return id, m.connect(ctx, peer.AddrInfo{ID: id, Addrs: addrs})
}
