package swarm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/sync/errgroup"
)

// joinTime bounds the time to reach a member and get its verdict.
const joinTime = 15 * time.Second

// Join redeems an invite: it asks the members at the invite's addresses whether they take
// the capability that id makes of the invite, and returns it for the caller to keep. The
// first to answer decides. A refusal is final and unwraps to its sentinel; an
// invite that is a bare address earns ErrNeedsInvite. Nothing is joined yet: New does.
func Join(ctx context.Context, id Identity, v Invite) ([]byte, error) {
	return join(ctx, id, v, nil)
}

func join(ctx context.Context, id Identity, v Invite, sim *simulated) ([]byte, error) {
	var capability []byte
	var err error
	if v.bearer != nil {
		if capability, err = v.Redeem(id, time.Now()); err != nil {
			return nil, err
		}
	}
	infos, err := parseAddrs(v.Addrs)
	if err != nil {
		return nil, fmt.Errorf("swarm: join: %w", err)
	}
	h, err := joiningHost(id, sim)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	if err := askAny(ctx, h, infos, v, capability); err != nil {
		return nil, fmt.Errorf("swarm: join: %w", err)
	}
	return capability, nil
}

// askAny asks the invite's members at once and takes the first verdict.
func askAny(ctx context.Context, h host.Host, infos []peer.AddrInfo, v Invite, capability []byte) error {
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	group, ctx := errgroup.WithContext(ctx)
	defer group.Wait() // after cancel
	defer cancel()
	type outcome struct {
		answered bool
		err      error
	}
	outcomes := make(chan outcome, len(infos))
	for _, info := range infos {
		group.Go(func() error {
			answered, err := ask(ctx, h, info, v, capability)
			outcomes <- outcome{answered, err}
			return nil
		})
	}
	var unreached []error
	for range infos {
		o := <-outcomes
		if o.answered {
			return o.err
		}
		unreached = append(unreached, o.err)
	}
	return fmt.Errorf("no member answers at %s; is one running, and can this machine reach it? %w",
		strings.Join(v.Addrs, " or "), errors.Join(unreached...))
}

// joiningHost only dials.
func joiningHost(id Identity, sim *simulated) (host.Host, error) {
	opts, err := commonOptions(id)
	if err != nil {
		return nil, err
	}
	opts = append(opts, libp2p.NoListenAddrs, libp2p.DisableIdentifyAddressDiscovery())
	if sim != nil {
		opts = append(opts, sim.quic)
	} else {
		opts = append(opts, tcpTransport)
	}
	h, err := libp2p.New(opts...)
	if err != nil {
		return nil, fmt.Errorf("swarm: join: start host: %w", err)
	}
	return h, nil
}

// ask presents the capability to one member. answered tells whether it gave a verdict.
func ask(ctx context.Context, h host.Host, info peer.AddrInfo, v Invite, capability []byte) (answered bool, err error) {
	if err := h.Connect(ctx, info); err != nil {
		return false, fmt.Errorf("peer %s: %w", info.ID, err)
	}
	st, r, err := exchangeHello(ctx, h, info.ID, joinProtocol, hello{Capability: capability})
	if err != nil {
		var refusal *remoteRefusal
		return errors.As(err, &refusal), fmt.Errorf("peer %s: %w", info.ID, err)
	}
	defer st.Close()
	// Is it the run of the invite that answers? Only its owner could have told it so.
	member := Config{OwnerKey: v.OwnerKey, Run: v.Grant.Run}
	if _, err := checkCapability(r.Hello.Capability, info.ID, member, time.Now()); err != nil {
		return false, fmt.Errorf("peer %s is no member of the invite's run: %w", info.ID, err)
	}
	return true, nil
}
