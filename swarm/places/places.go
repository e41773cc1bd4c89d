package places

import (
	"net/netip"
	"sync"
	"time"
)

// Places are a number of equal places that addresses hold. An address holds at most its own limit, and never more than
// are free: the fuller it gets, the less is one's share (the dynamic threshold of Choudhury and Hahne, "Dynamic
// queue length thresholds for shared-memory packet switches", 1998). A quarter is for addresses that hold none. Of
// 128 places one address gets 48, four get 19 each and leave 52. An address is an IPv4 address or an IPv6 /48. The
// machine's own programs, on loopback, share what room there is.
type Places struct {
	total, each int
	// mu guards the fields below.
	mu   sync.Mutex
	used int
	// held counts the places of each address, recent those that it has given back a short time ago.
	held, recent map[netip.Prefix]int
}

// New returns free places: so many in total, and so many for each address.
func New(total, each int) *Places {
	return &Places{total: total, each: each, held: map[netip.Prefix]int{}, recent: map[netip.Prefix]int{}}
}

// Take takes a place for a peer at an address, and reports whether there was one. Give returns it.
func (p *Places) Take(at netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.full(at) {
		return false
	}
	p.used++
	p.held[Block(at)]++
	return true
}

// Full reports whether there is no place for an address now.
func (p *Places) Full(at netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.full(at)
}

// full is Full. The caller holds mu.
func (p *Places) full(at netip.Addr) bool {
	from := Block(at)
	free, held := p.total-p.used, p.held[from]+p.recent[from]
	if held == 0 || at.Unmap().IsLoopback() {
		return free == 0
	}
	return held >= min(p.each, free-p.total/4)
}

// Give returns a place that Take took.
func (p *Places) Give(at netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used--
	less(p.held, Block(at))
}

// GiveAfter returns a place for others now, but counts it as the address's for a time: who takes places and leaves at
// once gets no more of them than who stays. The machine's own programs are not counted on.
func (p *Places) GiveAfter(at netip.Addr, d time.Duration) {
	p.Give(at)
	if d <= 0 || at.Unmap().IsLoopback() {
		return
	}
	from := Block(at)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recent[from]++
	time.AfterFunc(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		less(p.recent, from)
	})
}

// Forgive counts the places no more that an address has given back.
func (p *Places) Forgive(at netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.recent, Block(at))
}

// less counts one down, and forgets who has none.
func less(counts map[netip.Prefix]int, from netip.Prefix) {
	if counts[from]--; counts[from] <= 0 {
		delete(counts, from)
	}
}

// Used returns how many places are taken.
func (p *Places) Used() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// Block returns what counts as one address: the IPv4 address itself, the /48 of an IPv6 address (a site), and the zero
// Prefix for all that have none.
func Block(at netip.Addr) netip.Prefix {
	at = at.Unmap().WithZone("")
	bits := 48
	if at.Is4() {
		bits = 32
	}
	block, _ := at.Prefix(bits) // zero for the zero address
	return block
}
