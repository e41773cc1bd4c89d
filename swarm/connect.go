package swarm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/sync/errgroup"

	"pnode/planner/plan"
)

// Connect dials the addresses, each with /p2p/, at once, and waits until one of their peers has
// admitted this node and was admitted by it. The error says of each why not, or of those that
// refuse only; a refusal unwraps to its sentinel and is final (IsRefusal). A connection that
// vanishes before there is a verdict is made again, for some seconds: then the error is
// ErrNotMember.
func (s *Swarm) Connect(ctx context.Context, addrs ...string) error {
	infos, err := parseAddrs(addrs)
	if err != nil {
		return fmt.Errorf("swarm: connect: %w", err)
	}
	if len(infos) == 0 {
		return fmt.Errorf("swarm: connect: no addresses")
	}
	for _, info := range infos {
		s.book.seed(info.ID, info.Addrs)
	}
	if err := s.connectAny(ctx, infos); err != nil {
		return fmt.Errorf("swarm: connect: %w", err)
	}
	return nil
}

// connectAny dials the peers, at most maxDials at a time, until one is a member: one whose
// machine is off is not waited for.
func (s *Swarm) connectAny(ctx context.Context, infos []peer.AddrInfo) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	outcomes := make([]error, len(infos))
	var dials errgroup.Group
	dials.SetLimit(maxDials)
	for i, info := range infos {
		dials.Go(func() error {
			if outcomes[i] = s.connect(ctx, info); outcomes[i] == nil {
				cancel()
			}
			return nil
		})
	}
	dials.Wait()
	if slices.Contains(outcomes, nil) {
		return nil
	}
	if refusals := slices.DeleteFunc(slices.Clone(outcomes), func(err error) bool { return !IsRefusal(err) }); len(refusals) > 0 {
		return errors.Join(refusals...) // that others do not answer has nothing to do with it
	}
	return errors.Join(outcomes...)
}

// connect dials one peer, again when its connection vanishes before there is a verdict, for
// at most admissionTime.
func (s *Swarm) connect(ctx context.Context, info peer.AddrInfo) error {
	began := time.Now()
	err := s.dial(ctx, info)
	for pause := firstPause; errors.Is(err, ErrNotMember) && time.Since(began) < admissionTime; pause = min(2*pause, longestPause) {
		select {
		case <-time.After(pause/2 + rand.N(pause)): // the other end may be doing the same
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, ctx.Err())
		}
		err = s.dial(ctx, info)
	}
	return err
}

// dial dials one peer and waits for the verdict. The error is ErrNotMember when there was
// none before the connection vanished.
func (s *Swarm) dial(ctx context.Context, info peer.AddrInfo) error {
	if s.door.isMember(info.ID) {
		return nil
	}
	if info.ID == s.host.ID() {
		return fmt.Errorf("peer %s: %w", info.ID, ErrSelf)
	}
	s.book.refused(info.ID, nil)
	// A relayed connection will do; libp2p tries to punch through and replace it.
	if err := s.host.Connect(network.WithAllowLimitedConn(ctx, "member"), info); err != nil {
		return fmt.Errorf("peer %s: %w", info.ID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, admissionTime)
	defer cancel()
	err := s.door.wait(ctx, info.ID)
	if errors.Is(err, ErrNotMember) {
		// Gone already: it may have said why before.
		if why := s.book.refusal(info.ID); why != nil {
			err = why
		}
	}
	if err != nil {
		return fmt.Errorf("peer %s: %w", info.ID, err)
	}
	return nil
}

// reach makes sure that p is connected and a member, and gives its libp2p ID.
func (s *Swarm) reach(ctx context.Context, p plan.PeerID) (peer.ID, error) {
	id, err := peer.Decode(string(p))
	if err != nil {
		return "", fmt.Errorf("peer ID %q: %w", string(p), err)
	}
	if s.door.isMember(id) {
		return id, nil
	}
	if s.door.isBlocked(id) {
		return "", ErrBlocked
	}
	addrs := s.book.addrs(id)
	if len(addrs) == 0 && s.host.Network().Connectedness(id) == network.NotConnected {
		return "", fmt.Errorf("peer %s: %w, and no address of it is known", id, ErrNotMember)
	}
	return id, s.connect(ctx, peer.AddrInfo{ID: id, Addrs: addrs})
}
