package swarm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"pnode/swarm/admission"
	"pnode/swarm/handshake"
	"pnode/swarm/host"
	"pnode/swarm/listen"
	"pnode/swarm/peerstore"
	"pnode/swarm/tasks"
)

// invitePlaces is how many of a node's addresses an invite names, to stay short.
const invitePlaces = 2

// InviteAddrs returns the addresses that an invite of this node should name, with /p2p/: those of a few places where
// others may reach it, announced ones first, then the likeliest.
func (s *Swarm) InviteAddrs() []string {
	addrs := s.host.Addrs()
	if s.reachable { // loopback addresses lead others to themselves
		addrs = slices.DeleteFunc(slices.Clone(addrs), func(a ma.Multiaddr) bool { return manet.IsIPLoopback(a) && !s.host.Announced(a) })
	}
	named := 0
	addrs = likeliest(addrs, outbound(), s.host.Announced)
	for named < len(addrs) && s.host.Announced(addrs[named]) {
		named++
	}
	return peerstore.FullAddrs(s.host.ID(), admission.FirstPlaces(addrs, invitePlaces, named))
}

// likeliest sorts addresses by where others may reach this node: announced ones, a public IPv4 address, a relay where there
// is none, the one that this machine sends from, others, a relay at a private address.
func likeliest(addrs []ma.Multiaddr, from netip.Addr, announced func(ma.Multiaddr) bool) []ma.Multiaddr {
	rank := func(a ma.Multiaddr) int {
		_, noRelay := a.ValueForProtocol(ma.P_CIRCUIT)
		_, noIPv4 := a.ValueForProtocol(ma.P_IP4)
		ip, _ := manet.ToIP(a)
		switch at, _ := netip.AddrFromSlice(ip); {
		case announced(a):
			return 0
		case noRelay == nil && manet.IsPublicAddr(a):
			return 2
		case noRelay == nil:
			return 6
		case manet.IsPublicAddr(a) && noIPv4 == nil:
			return 1
		case from.IsValid() && at.Unmap() == from:
			return 3
		case noIPv4 == nil:
			return 4
		}
		return 5
	}
	sorted := slices.Clone(addrs)
	slices.SortStableFunc(sorted, func(a, b ma.Multiaddr) int { return rank(a) - rank(b) })
	if len(sorted) > 0 && rank(sorted[0]) <= 1 {
		sorted = slices.DeleteFunc(sorted, func(a ma.Multiaddr) bool { return rank(a) == 2 || rank(a) == 6 })
	}
	return sorted
}

// outbound returns the address from which this machine sends to others, without sending anything.
func outbound() netip.Addr {
	c, err := net.Dial("udp4", "192.0.2.1:9") // of an example network
	if err != nil {
		return netip.Addr{}
	}
	defer c.Close()
	at, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr()
}

// Claim asks the contact of an invite for the run and the grant that belong to it, as this node's config is to have
// them, and returns the invite with them: only Identity, Listen, Socket and Simulated of the config count. A refusal by the
// contact, or an offer that the invite does not prove, unwraps to its sentinel and is final (admission.IsRefusal).
func Claim(ctx context.Context, cfg Config, v admission.Invite) (_ admission.Invite, err error) {
	h, end, err := claimHost(cfg)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, end()) }()
	return claimFrom(ctx, h, v)
}

// claimHost starts a host that asks for what belongs to an invite, until end.
func claimHost(cfg Config) (h *host.Host, end func() error, err error) {
	hostConfig := host.Config{Identity: cfg.Identity, Socket: cfg.Socket, Simulated: cfg.Simulated, Peers: admission.NewPeers(), Tasks: tasks.New()}
	for _, l := range cfg.Listen {
		at, err := listen.Parse(l)
		if err != nil {
			return nil, nil, fmt.Errorf("swarm: listen address %q: %w", l, err)
		}
		for _, one := range at {
			hostConfig.Listen = append(hostConfig.Listen, netip.AddrPortFrom(one.Addr(), 0))
		}
	}
	if h, err = host.New(hostConfig); err != nil {
		return nil, nil, err
	}
	return h, func() error {
		hostConfig.Tasks.Close()
		err := h.Close()
		hostConfig.Tasks.Wait()
		return err
	}, nil
}

// claimFrom asks one contact after the other.
func claimFrom(ctx context.Context, h *host.Host, v admission.Invite) (admission.Invite, error) {
	asked := contacts(v)
	for i, from := range asked {
		got, err := claimOf(ctx, h, from, len(asked)-i)
		switch {
		case err == nil:
			got.Addrs = v.Addrs
			return got, nil
		case i == len(asked)-1 || admission.IsRefusal(err) || ctx.Err() != nil:
			return v, fmt.Errorf("swarm: claim invite: %w", err)
		}
	}
	return v, nil
}

// claimOf asks one contact, with so many left for whom time must stay.
func claimOf(ctx context.Context, h *host.Host, v admission.Invite, left int) (admission.Invite, error) {
	if end, ok := ctx.Deadline(); ok && left > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/time.Duration(left))
		defer cancel()
	}
	return handshake.Claim(ctx, h, v, time.Now())
}

// contacts returns the invite as it is asked for at each peer that can answer: at the relays over which its maker is
// reached, and at its maker. A relay is a member too, and takes a newcomer to others only once that one is a member.
func contacts(v admission.Invite) (out []admission.Invite) {
	var direct []string
	for _, a := range v.Addrs {
		relay, _, circuit := strings.Cut(a, "/p2p-circuit")
		if !circuit {
			direct = append(direct, a)
			continue
		}
		if at := v; !slices.ContainsFunc(out, func(o admission.Invite) bool { return o.Addrs[0] == relay }) {
			at.Addrs = []string{relay}
			out = append(out, at)
		}
	}
	if len(direct) > 0 || len(out) == 0 {
		v.Addrs = direct
		out = append(out, v)
	}
	return out
}
