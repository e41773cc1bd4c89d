package gossip

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	// announceEvery is the time between two profiles of a member. Addresses change while it
	// lives: a NAT's mapping is found out, a relay is won or lost.
	announceEvery = 30 * time.Second
	// maxLinks bounds the links that one node measures: those to its likely neighbours.
	maxLinks = 8
	// probeTimeout bounds the measuring of links before each profile.
	probeTimeout = 15 * time.Second
)

// Announcer keeps the other members informed of this node's profile.
type Announcer struct {
	Self    plan.PeerID
	Epoch   uint64 // of this process
	Members Topics
	Network Network
	Machine Machine
	// State returns the replicated state.
	State func() consensus.State
	Log   *slog.Logger
}

// Network knows where this node is and measures links; *swarm.Swarm implements it.
type Network interface {
	Addrs() []string
	// Probe measures the link to a member.
	Probe(ctx context.Context, peer plan.PeerID) (plan.LinkProfile, error)
}

// Machine holds the profile of this machine; *hardware.Machine implements it.
type Machine interface {
	Profile() plan.Profile
	AddLink(l plan.LinkProfile)
	// Measure profiles the devices anew.
	Measure() (changed bool, err error)
}

// Run announces the profile until ctx ends. It measures links that nobody has measured yet, and
// the devices again while no plan uses them.
func (a *Announcer) Run(ctx context.Context) {
	tick := time.NewTicker(announceEvery)
	defer tick.Stop()
	for {
		a.ProbeLinks(ctx, probeTimeout)
		a.Announce(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if a.State().Plan.Places(a.Self) {
			continue
		}
		if _, err := a.Machine.Measure(); err != nil {
			a.Log.Debug("measure again", "cause", err)
		}
	}
}

// Announce publishes the profile once.
func (a *Announcer) Announce(ctx context.Context) {
	p := Profile{Peer: a.Self, Epoch: a.Epoch, Addrs: a.Addrs(), Profile: a.Machine.Profile()}
	if err := p.Send(ctx, a.Members); err != nil && ctx.Err() == nil {
		a.Log.Debug("gossip the profile", "cause", err)
	}
}

// Addrs returns this node's addresses, as many as the roster takes.
func (a *Announcer) Addrs() []string {
	addrs := a.Network.Addrs()
	return addrs[:min(len(addrs), 16)]
}

// ProbeLinks measures the links that are missing, one after the other, within limit. One that
// cannot be measured now is left for the next time.
func (a *Announcer) ProbeLinks(ctx context.Context, limit time.Duration) (measured bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for _, peer := range unmeasured(a.State(), a.Self, a.Machine.Profile().Links) {
		l, err := a.Network.Probe(ctx, peer)
		if ctx.Err() != nil {
			return measured
		}
		if err != nil {
			a.Log.Debug("link not measured", "peer", peer, "cause", err)
			continue
		}
		a.Machine.AddLink(l)
		a.Log.Info("measured a link", "peer", peer, "bytes_per_s", l.BytesPerS, "rtt", time.Duration(l.RTTNanos), "jitter", time.Duration(l.JitterNanos))
		measured = true
	}
	return measured
}

// unmeasured returns the members whose link to self neither end has measured, no more than self
// may still measure. It begins with those after self, so that not all nodes ask the same one first.
func unmeasured(state consensus.State, self plan.PeerID, own []plan.LinkProfile) []plan.PeerID {
	var after, before []plan.PeerID
	for _, m := range state.Members {
		toSelf := func(l plan.LinkProfile) bool { return l.Peer == self }
		toThem := func(l plan.LinkProfile) bool { return l.Peer == m.Peer }
		switch {
		case m.Peer == self, m.State == consensus.Gone:
		case slices.ContainsFunc(own, toThem), slices.ContainsFunc(m.Profile.Links, toSelf):
		case m.Peer > self:
			after = append(after, m.Peer)
		default:
			before = append(before, m.Peer)
		}
	}
	peers := append(after, before...)
	return peers[:min(len(peers), max(0, maxLinks-len(own)))]
}
