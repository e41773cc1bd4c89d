package share

import (
	"net/netip"
	"sync"
	"time"
)

// What an address may ask for. A page asks 20 times as it opens and some 2 times a second then; a household may be one address.
const (
	perSecond    = 20
	burst        = 400
	wrongCosts   = 40 // a wrong secret in two seconds, ten at once
	maxAddresses = 1024
)

// budget bounds how often addresses ask. Those beyond the ones that it can remember share one allowance.
type budget struct {
	now  func() time.Time
	mu   sync.Mutex // guards left
	left map[netip.Prefix]allowance
}

// allowance says how much an address had left at a time.
type allowance struct {
	at   time.Time
	left float64
}

func newBudget(now func() time.Time) *budget {
	return &budget{now: now, left: map[netip.Prefix]allowance{}}
}

// spend takes the cost of a request off the allowance of who asks, and reports whether it was enough. What is owed is no more than a burst.
func (b *budget) spend(from netip.Addr, cost float64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	who, now := subnet(from), b.now()
	_, known := b.left[who]
	if !known && len(b.left) >= maxAddresses {
		b.forget(now)
	}
	if !known && len(b.left) >= maxAddresses {
		who = netip.Prefix{}
	}
	a := b.left[who].after(now)
	enough := a.left >= cost
	a.left = max(a.left-cost, -burst)
	b.left[who] = a
	return enough
}

// after returns an allowance as it is at a time; one that is new is full.
func (a allowance) after(now time.Time) allowance {
	if a.at.IsZero() {
		return allowance{now, burst}
	}
	return allowance{now, min(burst, a.left+perSecond*max(0, now.Sub(a.at).Seconds()))}
}

// forget drops who has a full allowance again: nothing is lost with it.
func (b *budget) forget(now time.Time) {
	for who, a := range b.left {
		if a.after(now).left == burst {
			delete(b.left, who)
		}
	}
}

// subnet returns whom an address counts for: a machine has one address of IPv4, and a whole /64 of IPv6.
func subnet(at netip.Addr) netip.Prefix {
	bits := 32
	if at.Is6() {
		bits = 64
	}
	p, _ := at.Prefix(bits) // an address has as many
	return p
}
