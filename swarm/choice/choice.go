// Package choice decides over which transport each member is dialed first, from how dials ended and what probes measured,
// and says why in words that people read. It makes no connection and has no goroutine. It is called by swarm/alpn, whose
// dials ask and tell it, and by probe.
package choice

import (
	"slices"
	"sync"
	"time"

	"pnode/planner/plan"
)

// retryAfter is how long a transport that failed is tried after the others.
const retryAfter = time.Minute

// pendingTime is how long a transport may take to answer before it counts as slow.
const pendingTime = 500 * time.Millisecond

// Choice holds what is known of the transports to each peer, for all connections of a node. Its methods may be called
// from any goroutine.
type Choice struct {
	// mu guards peers.
	mu    sync.Mutex
	peers map[plan.PeerID]*known
}

// known holds what was found out about the transports to one peer.
type known struct {
	// tried holds how the newest try of each transport ended.
	tried map[plan.Transport]try
	// better is the transport that a probe found to be the best, empty for none, and why.
	better plan.Transport
	why    string
}

// try is how the newest try of a transport ended: with why if it failed.
type try struct {
	at  time.Time
	why string
}

// New returns a choice that knows nothing.
func New() *Choice { return &Choice{peers: map[plan.PeerID]*known{}} }

// of returns what is known of a peer. Callers hold mu.
func (c *Choice) of(p plan.PeerID) *known {
	if c.peers[p] == nil {
		c.peers[p] = &known{tried: map[plan.Transport]try{}}
	}
	return c.peers[p]
}

// Worked notes that a transport has made a connection.
func (c *Choice) Worked(p plan.PeerID, over plan.Transport) { c.Failed(p, over, "") }

// Failed notes why a transport made no connection, to follow its name: "gets no answer".
func (c *Choice) Failed(p plan.PeerID, over plan.Transport, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(p).tried[over] = try{time.Now(), why}
}

// Slow notes that a transport had not answered when a worse one had, unless its try has just ended, or failed before.
func (c *Choice) Slow(p plan.PeerID, over plan.Transport) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tried := c.of(p).tried
	if newest := tried[over]; newest.why == "" && time.Since(newest.at) > pendingTime {
		tried[over] = try{time.Now(), "has not answered yet"}
	}
}

// Prefer has a transport to a peer tried first from now on, or none with "". The reason is for people:
// "94 Mbit/s against 61 over QUIC".
func (c *Choice) Prefer(p plan.PeerID, over plan.Transport, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.of(p)
	known.better, known.why = over, why
}

// Tried reports whether a dial over a transport has ended, well or not.
func (c *Choice) Tried(p plan.PeerID, over plan.Transport) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, tried := c.of(p).tried[over]
	return tried
}

// FailedLately reports whether the newest try of a transport failed less than a minute ago.
func (c *Choice) FailedLately(p plan.PeerID, over plan.Transport) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of(p).tried[over].failed()
}

func (t try) failed() bool { return t.why != "" && time.Since(t.at) < retryAfter }

// Order sorts transports to a peer: the preferred first, those that failed lately last, the others as they are.
func (c *Choice) Order(p plan.PeerID, all []plan.Transport) []plan.Transport {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.of(p)
	rank := func(over plan.Transport) int {
		switch {
		case known.tried[over].failed():
			return 2
		case known.better == over:
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b plan.Transport) int { return rank(a) - rank(b) })
	return all
}

// Why returns why a transport is used rather than a better one, as in "UDP gets no answer"; empty where this node has found
// nothing, as when the peer chose the transport.
func (c *Choice) Why(p plan.PeerID, over plan.Transport) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.of(p)
	if known.better == over && known.why != "" {
		return known.why
	}
	for _, best := range plan.Transports {
		if best == over {
			break
		}
		if why := known.tried[best].why; why != "" {
			if best == plan.QUIC {
				return "UDP " + why
			}
			return best.String() + " " + why
		}
	}
	return ""
}
