package swarm

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
)

const (
	// maxMembers bounds the certified entries: only the owner's signature makes one.
	maxMembers = 1024
	// maxSeeds bounds the entries without a capability: bootstraps and local discoveries.
	maxSeeds       = 128
	maxPeerAddrs   = 16
	firstRetry     = time.Second
	longestRetry   = time.Minute
	maxRecordAddrs = 8
)

// record is what members tell each other about a member. The capability proves the
// membership; the addresses are hearsay, which a dial checks.
type record struct {
	Capability []byte
	Addrs      []ma.Multiaddr
}

// book remembers peers and when to dial them next.
type book struct {
	// mu guards entries.
	mu      sync.Mutex
	entries map[peer.ID]*entry
}

type entry struct {
	addrs []ma.Multiaddr
	// capability is zero for a seed: a peer we only have an address of.
	capability Capability
	dialing    bool
	retry      time.Duration
	next       time.Time
	// refusal is the verdict when the peer was refused, or refused us, since the last dial.
	refusal error
}

func (e *entry) certified() bool { return e.capability.peer != "" }

func newBook() *book { return &book{entries: map[peer.ID]*entry{}} }

// seed notes addresses of a peer that has yet to prove itself; false when the book is full.
func (b *book) seed(p peer.ID, addrs []ma.Multiaddr) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[p]
	if e == nil {
		if b.count(false) >= maxSeeds {
			return false
		}
		e = &entry{}
		b.entries[p] = e
	}
	e.merge(addrs)
	return true
}

// learn notes a verified capability and addresses.
func (b *book) learn(c Capability, addrs []ma.Multiaddr) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[c.peer]
	if e == nil || !e.certified() {
		if b.count(true) >= maxMembers {
			return false
		}
	}
	if e == nil {
		e = &entry{}
		b.entries[c.peer] = e
	}
	e.capability = c
	e.merge(addrs)
	return true
}

// count counts the entries with or without a capability. The caller holds mu.
func (b *book) count(certified bool) int {
	n := 0
	for _, e := range b.entries {
		if e.certified() == certified {
			n++
		}
	}
	return n
}

// merge puts addrs in front of the known ones and keeps the first maxPeerAddrs.
func (e *entry) merge(addrs []ma.Multiaddr) {
	merged := make([]ma.Multiaddr, 0, maxPeerAddrs)
	for _, a := range slices.Concat(addrs, e.addrs) {
		if len(merged) < maxPeerAddrs && !slices.ContainsFunc(merged, a.Equal) {
			merged = append(merged, a)
		}
	}
	e.addrs = merged
}

func (b *book) forget(p peer.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.entries, p)
}

// due takes the peers whose time to be dialed has come, for which skip is false, and
// marks them as being dialed. The order is by peer.
func (b *book) due(now time.Time, skip func(peer.ID) bool) []peer.AddrInfo {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []peer.AddrInfo
	for p, e := range b.entries {
		if e.dialing || e.next.After(now) || len(e.addrs) == 0 || skip(p) {
			continue
		}
		e.dialing = true
		out = append(out, peer.AddrInfo{ID: p, Addrs: slices.Clone(e.addrs)})
	}
	slices.SortFunc(out, func(a, b peer.AddrInfo) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return out
}

// tried notes the outcome of a dial. Failures double the wait, with jitter so that a
// restarted run does not dial in step.
func (b *book) tried(p peer.ID, err error, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[p]
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

// refused notes the verdict on a peer for whoever waits for it, also when the peer is gone
// before; nil begins a new try.
func (b *book) refused(p peer.ID, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.entries[p]; e != nil {
		e.refusal = err
	}
}

// refusal is the verdict that refused notes last.
func (b *book) refusal(p peer.ID) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.entries[p]; e != nil {
		return e.refusal
	}
	return nil
}

// addrs are the known addresses of p.
func (b *book) addrs(p peer.ID) []ma.Multiaddr {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.entries[p]; e != nil {
		return slices.Clone(e.addrs)
	}
	return nil
}

// expire drops the peers whose membership is over and lists them.
func (b *book) expire(now time.Time) []peer.ID {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []peer.ID
	for p, e := range b.entries {
		if e.certified() && !now.Before(e.capability.Expires) {
			delete(b.entries, p)
			out = append(out, p)
		}
	}
	return out
}

// capability is the verified capability of a peer that is or was met or heard of.
func (b *book) capability(p peer.ID) (Capability, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.entries[p]; e != nil && e.certified() {
		return e.capability, true
	}
	return Capability{}, false
}

// records lists the certified entries but except's, at most limit, drawn at random when
// there are more.
func (b *book) records(except peer.ID, limit int) []record {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []record
	for p, e := range b.entries {
		if e.certified() && p != except && len(e.addrs) > 0 {
			out = append(out, record{Capability: e.capability.Encode(), Addrs: slices.Clone(e.addrs)})
		}
	}
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out[:min(len(out), limit)]
}

// known lists every certified peer's addresses with /p2p/, sorted.
func (b *book) known() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for p, e := range b.entries {
		if e.certified() {
			out = append(out, fullAddrs(p, e.addrs)...)
		}
	}
	slices.Sort(out)
	return out
}

// fullAddrs is the text of addrs with the peer at the end.
func fullAddrs(p peer.ID, addrs []ma.Multiaddr) []string {
	out := make([]string, 0, len(addrs))
	for _, a := range addrs {
		out = append(out, a.String()+"/p2p/"+p.String())
	}
	return out
}
