package peerstore

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"pnode/swarm/admission"
)

const (
	// maxMembers bounds the certified entries: only the owner's signature makes one.
	maxMembers = 2048
	// maxSeeds bounds the entries without a capability: bootstraps and local discoveries.
	maxSeeds     = 128
	maxPeerAddrs = 16
	firstRetry   = time.Second
	longestRetry = time.Minute
)

// Store remembers peers, their addresses, and when to dial them next. Its methods may be called from any
// goroutine.
type Store struct {
	// mu guards what follows.
	mu      sync.Mutex
	entries map[peer.ID]*entry
	number  uint64 // of the newest capability
}

type entry struct {
	addrs []ma.Multiaddr
	// capability is zero for a seed: a peer we only have an address of.
	capability admission.Capability
	// heard marks a capability that others told of, whose peer the log may not admit.
	heard bool
	// met marks a peer that was connected and a member, and did not part, number orders the capabilities by when they came.
	met     bool
	number  uint64
	dialing bool
	retry   time.Duration
	next    time.Time
	// refusal is the verdict when the peer was refused, or refused us, since the last dial, refused when that was.
	refusal error
	refused time.Time
}

func (e *entry) certified() bool { return e.capability.ID() != "" }

// New returns an empty store.
func New() *Store { return &Store{entries: map[peer.ID]*entry{}} }

// Seed adds addresses of a peer that has yet to prove itself. It reports whether there was room.
func (s *Store) Seed(p peer.ID, addrs []ma.Multiaddr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[p]
	if e == nil {
		if s.count(false) >= maxSeeds {
			return false
		}
		e = &entry{}
		s.entries[p] = e
	}
	e.merge(p, addrs)
	return true
}

// Learn notes the verified capability of a peer that belongs to the run, and adds addresses. It reports whether there was
// room: one that was only heard of makes way.
func (s *Store) Learn(c admission.Capability, addrs []ma.Multiaddr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[c.ID()]; (e == nil || !e.certified()) && s.count(true) >= maxMembers && !s.makeWay() {
		return false
	}
	s.certify(c, addrs).heard = false
	return true
}

// Hear notes a verified capability that another member told of, while nobody can say whether the log admits its peer. An
// invite's grant stands for as many peers as it has uses. It reports whether there was room.
func (s *Store) Hear(c admission.Capability, addrs []ma.Multiaddr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[c.ID()]; e != nil && e.certified() {
		e.merge(c.ID(), addrs)
		return true
	}
	uses := 0
	for _, e := range s.entries {
		if e.certified() && e.capability.Serial == c.Serial {
			uses++
		}
	}
	if uses >= c.Uses || s.count(true) >= maxMembers {
		return false
	}
	s.certify(c, addrs).heard = true
	return true
}

// Keep drops the peers with a capability that belongs does not name.
func (s *Store) Keep(belongs func(peer.ID) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, e := range s.entries {
		if e.certified() && !belongs(p) {
			delete(s.entries, p)
		}
	}
}

// makeWay drops a peer that was only heard of, and reports whether there was one. The caller holds mu.
func (s *Store) makeWay() bool {
	for p, e := range s.entries {
		if e.certified() && e.heard {
			delete(s.entries, p)
			return true
		}
	}
	return false
}

// certify returns the entry with a capability and more addresses. The caller holds mu.
func (s *Store) certify(c admission.Capability, addrs []ma.Multiaddr) *entry {
	e := s.entries[c.ID()]
	if e == nil {
		e = &entry{}
		s.entries[c.ID()] = e
	}
	if !e.certified() {
		s.number++
		e.number = s.number
	}
	e.capability = c
	e.merge(c.ID(), addrs)
	return e
}

// count returns the number of entries with or without a capability. The caller holds mu.
func (s *Store) count(certified bool) int {
	n := 0
	for _, e := range s.entries {
		if e.certified() == certified {
			n++
		}
	}
	return n
}

// merge puts the acceptable ones of p's addrs in front of the known ones and keeps the first maxPeerAddrs.
func (e *entry) merge(p peer.ID, addrs []ma.Multiaddr) {
	merged := make([]ma.Multiaddr, 0, maxPeerAddrs)
	for _, a := range slices.Concat(addrs, e.addrs) {
		if len(merged) == maxPeerAddrs || slices.ContainsFunc(merged, a.Equal) {
			continue
		}
		if slices.ContainsFunc(e.addrs, a.Equal) || len(admission.Acceptable(p, []ma.Multiaddr{a})) > 0 {
			merged = append(merged, a)
		}
	}
	e.addrs = merged
}

// Forget drops a peer.
func (s *Store) Forget(p peer.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.entries, p)
}

// Members counts the peers with a verified capability.
func (s *Store) Members() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count(true)
}

// Met notes that a peer was connected as a member.
func (s *Store) Met(p peer.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[p]; e != nil {
		e.met = true
	}
}

// Part notes that a peer's connection is closed because neither end needs it: it counts as one that was not met.
func (s *Store) Part(p peer.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[p]; e != nil {
		e.met = false
	}
}

// WasMet reports whether a peer was connected as a member, and did not part.
func (s *Store) WasMet(p peer.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[p]
	return e != nil && e.met
}

// Due returns the peers to dial now, but those that skip names, and marks them as being dialed until Tried.
// They are sorted by peer; skip is called in a random order.
func (s *Store) Due(now time.Time, skip func(p peer.ID, met bool) bool) []peer.AddrInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []peer.AddrInfo
	for p, e := range s.entries {
		if e.dialing || e.next.After(now) || len(e.addrs) == 0 || skip(p, e.met) {
			continue
		}
		e.dialing = true
		out = append(out, peer.AddrInfo{ID: p, Addrs: slices.Clone(e.addrs)})
	}
	slices.SortFunc(out, func(a, b peer.AddrInfo) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return out
}

// Tried notes the outcome of a dial. Each failure doubles the wait before the next, from a second to a minute,
// with jitter so that the nodes of a restarted run do not dial in step.
func (s *Store) Tried(p peer.ID, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[p]
	if e == nil {
		return
	}
	e.dialing = false
	if err == nil {
		e.retry, e.next = 0, time.Time{}
		return
	}
	e.retry = min(max(2*e.retry, firstRetry), longestRetry)
	e.next = now.Add(e.retry/2 + rand.N(e.retry))
}

// Hurry makes all peers due at once: this machine has other addresses, and what failed before may work.
func (s *Store) Hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		e.retry, e.next = 0, time.Time{}
	}
}

// Refused notes the verdict on a peer for whoever waits for it, also when the peer has left; nil begins a
// new try.
func (s *Store) Refused(p peer.ID, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[p]; e != nil {
		e.refusal, e.refused = err, time.Now()
	}
}

// Refusal returns the verdict that Refused noted last.
func (s *Store) Refusal(p peer.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[p]; e != nil {
		return e.refusal
	}
	return nil
}

// Refusal is a verdict that Refused noted.
type Refusal struct {
	Peer peer.ID
	Err  error
	At   time.Time
}

// Refusals returns the verdicts with a reason that were noted since the last dials, in no order.
func (s *Store) Refusals(reason error) []Refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Refusal
	for p, e := range s.entries {
		if errors.Is(e.refusal, reason) {
			out = append(out, Refusal{p, e.refusal, e.refused})
		}
	}
	return out
}

// Addrs returns the known addresses of p.
func (s *Store) Addrs(p peer.ID) []ma.Multiaddr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[p]; e != nil {
		return slices.Clone(e.addrs)
	}
	return nil
}

// Expire drops the peers whose membership is over and returns them.
func (s *Store) Expire(now time.Time) []peer.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []peer.ID
	for p, e := range s.entries {
		if e.certified() && !now.Before(e.capability.Expires) {
			delete(s.entries, p)
			out = append(out, p)
		}
	}
	return out
}

// Capability returns the verified capability of a peer.
func (s *Store) Capability(p peer.ID) (admission.Capability, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[p]; e != nil && e.certified() {
		return e.capability, true
	}
	return admission.Capability{}, false
}

// Certified returns the addresses of every peer with a verified capability.
func (s *Store) Certified() []ma.Multiaddr {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []ma.Multiaddr
	for _, e := range s.entries {
		if e.certified() {
			out = append(out, e.addrs...)
		}
	}
	return out
}

// Records returns what is known about members except one, at most limit records: where there are more, half of them of those that were
// learned of last, for whom others ask, and the rest at random.
func (s *Store) Records(except peer.ID, limit int) []admission.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*entry
	for p, e := range s.entries {
		if e.certified() && p != except && len(e.addrs) > 0 {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *entry) int { return cmp.Compare(b.number, a.number) })
	if newest := limit / 2; len(all) > limit {
		rest := all[newest:]
		rand.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
		all = all[:limit]
	}
	out := make([]admission.Record, 0, len(all))
	for _, e := range all {
		out = append(out, admission.Record{Capability: e.capability.Encode(), Addrs: slices.Clone(e.addrs)})
	}
	return out
}

// Known lists the addresses of every peer with a verified capability, with /p2p/, sorted.
func (s *Store) Known() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for p, e := range s.entries {
		if e.certified() {
			out = append(out, FullAddrs(p, e.addrs)...)
		}
	}
	slices.Sort(out)
	return out
}

// FullAddrs returns the text of addrs with /p2p/ and the peer at the end.
func FullAddrs(p peer.ID, addrs []ma.Multiaddr) []string {
	out := make([]string, 0, len(addrs))
	for _, a := range addrs {
		out = append(out, a.String()+"/p2p/"+p.String())
	}
	return out
}

// Believable returns the addresses that a peer at address from may be dialed at. It drops loopback addresses
// of a peer on another machine: dialed from here they would lead to this one.
func Believable(addrs []ma.Multiaddr, from ma.Multiaddr) []ma.Multiaddr {
	local := manet.IsIPLoopback(from)
	var out []ma.Multiaddr
	for _, a := range addrs {
		if local || !manet.IsIPLoopback(a) {
			out = append(out, a)
		}
	}
	return out
}
