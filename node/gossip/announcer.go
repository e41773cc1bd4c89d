package gossip

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	// announceEvery is the time between two looks of a member at whether the roster has its profile, which is
	// published where it has another one. Addresses change while it lives: a NAT's mapping is found out, a relay is won or lost.
	announceEvery = 30 * time.Second
	// maxLinks bounds the links that one node measures: those to its likely neighbours.
	maxLinks = 8
	// probeTimeout is how long links are measured before each profile: after it no other one is begun.
	probeTimeout = 15 * time.Second
	// missedAfter is when a link that could not be measured is tried again, as where the other end measured another one. It
	// doubles each time, up to againAtMost.
	missedAfter = 4 * time.Second
	// againAfter is the least time until a link that was measured over a detour is measured anew, which doubles each
	// time up to againAtMost: relays forward what a probe sends where the direct path does not carry data.
	againAfter, againAtMost = time.Minute, 16 * time.Minute
	// triedLinks bounds the members whose links are tried: who does not answer makes way for the next one, until so many do not.
	triedLinks = 4 * maxLinks
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

	// again holds when links over detours may be measured anew, missed when those may be tried again that could not be measured; ProbeLinks
	// alone uses them.
	again, missed map[plan.PeerID]retry
}

// retry is when something may be tried again, and how long it takes from then to the next time.
type retry struct {
	at   time.Time
	wait time.Duration
}

// Network knows where this node is and measures links; *swarm.Swarm implements it.
type Network interface {
	Addrs() []string
	// ReachedBy returns the best transport of the control connections with a member, "" without any.
	ReachedBy(peer plan.PeerID) plan.Transport
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

// Run announces the profile where it changes, until ctx ends. It measures links that nobody has measured yet, and
// the devices again while no plan uses them. It calls probed after its first round of links.
func (a *Announcer) Run(ctx context.Context, probed func()) {
	wait, missed := missedAfter, a.ProbeLinks(ctx, probeTimeout)
	probed()
	for {
		a.Announce(ctx)
		next := announceEvery
		if missed {
			next, wait = wait, min(2*wait, announceEvery)
		} else {
			wait = missedAfter
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(next):
		}
		if next == announceEvery && !a.State().Plan.Places(a.Self) {
			if _, err := a.Machine.Measure(); err != nil {
				a.Log.Debug("measure again", "cause", err)
			}
		}
		missed = a.ProbeLinks(ctx, probeTimeout)
	}
}

// Announce publishes the profile once, unless the roster has it: only the leader takes it in, and there it is the same.
func (a *Announcer) Announce(ctx context.Context) {
	p := Profile{Peer: a.Self, Epoch: a.Epoch, Addrs: a.Addrs(), Profile: a.Machine.Profile()}
	if p.in(a.State()) {
		return
	}
	if err := p.Send(ctx, a.Members); err != nil && ctx.Err() == nil {
		a.Log.Debug("gossip the profile", "cause", err)
	}
}

// Addrs returns this node's addresses, as many as the roster takes.
func (a *Announcer) Addrs() []string {
	addrs := a.Network.Addrs()
	return addrs[:min(len(addrs), 16)]
}

// ProbeLinks measures the links that are missing or were measured over a detour that is not needed any more, one after the
// other. It begins none after limit, and ends with ctx. It reports whether it missed one, which is left for the next time.
func (a *Announcer) ProbeLinks(ctx context.Context, limit time.Duration) (missed bool) {
	end := time.Now().Add(limit)
	state, own := a.State(), a.Machine.Profile().Links
	due := func(p plan.PeerID) bool { return !time.Now().Before(a.missed[p].at) }
	if a.missed == nil {
		a.missed = map[plan.PeerID]retry{}
	}
	for _, peer := range append(a.detours(state, own, time.Now()), unmeasured(state, a.Self, own, due)...) {
		if ctx.Err() != nil || !time.Now().Before(end) {
			return true
		}
		l, err := a.Network.Probe(ctx, peer)
		if err != nil {
			a.Log.Debug("link not measured", "peer", peer, "cause", err)
			missed = true
			wait := min(max(2*a.missed[peer].wait, missedAfter), againAtMost)
			a.missed[peer] = retry{time.Now().Add(wait), wait}
			continue
		}
		delete(a.missed, peer)
		a.Machine.AddLink(l)
		a.Log.Info("measured a link", "peer", peer, "transport", l.Transport, "bytes_per_s", l.BytesPerS, "rtt", time.Duration(l.RTTNanos), "jitter", time.Duration(l.JitterNanos))
	}
	maps.DeleteFunc(a.missed, func(p plan.PeerID, _ retry) bool { return !here(state, p) })
	return missed
}

// detours returns the members whose link this node measured through a relay or a WebSocket, and with whom it has a better
// connection now, as after a hole punch. Each is named at most once a minute. Where both ends have measured, both do so again.
func (a *Announcer) detours(state consensus.State, own []plan.LinkProfile, now time.Time) (peers []plan.PeerID) {
	if a.again == nil {
		a.again = map[plan.PeerID]retry{}
	}
	detour := map[plan.PeerID]bool{}
	for _, l := range own {
		if !here(state, l.Peer) || l.Transport != plan.Relay && l.Transport != plan.WebSocket {
			continue
		}
		detour[l.Peer] = true
		last := a.again[l.Peer]
		if now.Before(last.at) || !a.Network.ReachedBy(l.Peer).Better(l.Transport) {
			continue
		}
		wait := min(max(2*last.wait, againAfter), againAtMost)
		a.again[l.Peer] = retry{now.Add(wait), wait}
		peers = append(peers, l.Peer)
	}
	maps.DeleteFunc(a.again, func(p plan.PeerID, _ retry) bool { return !detour[p] })
	return peers
}

// here reports whether a peer is a member that is not gone.
func here(state consensus.State, p plan.PeerID) bool {
	m, ok := state.Member(p)
	return ok && m.State != consensus.Gone
}

// unmeasured returns the members whose link to self neither end has measured and that are due, no more than self
// may still measure besides its own links to members that are here. It begins with those after self, so that not all nodes ask the same one first.
func unmeasured(state consensus.State, self plan.PeerID, own []plan.LinkProfile, due func(plan.PeerID) bool) []plan.PeerID {
	room := maxLinks
	for _, l := range own {
		if here(state, l.Peer) {
			room--
		}
	}
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
	peers = slices.DeleteFunc(peers[:min(len(peers), triedLinks)], func(p plan.PeerID) bool { return !due(p) })
	return peers[:min(len(peers), max(0, room))]
}
