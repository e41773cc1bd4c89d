package alpn

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"pnode/planner/plan"
)

// Path is how a member is reached now.
type Path struct {
	Peer plan.PeerID
	// Transport is that of the newest connection.
	Transport plan.Transport
	// Reason says why it is used rather than a better one, such as "UDP gets no answer"; empty where nothing is to be said.
	Reason string
}

// String returns "on TCP: UDP gets no answer".
func (p Path) String() string {
	if p.Reason == "" {
		return fmt.Sprintf("on %s", p.Transport)
	}
	return fmt.Sprintf("on %s: %s", p.Transport, p.Reason)
}

// Paths returns how each member is reached with whom connections are open, sorted by peer.
func (t *Transport) Paths() []Path {
	newest := map[peer.ID]tracked{}
	t.mu.Lock()
	for _, c := range t.conns {
		if c.number > newest[c.peer].number {
			newest[c.peer] = c
		}
	}
	t.mu.Unlock()
	out := []Path{}
	for p, c := range newest {
		out = append(out, Path{plan.PeerID(p.String()), c.over, t.Findings.reason(p, c.over)})
	}
	slices.SortFunc(out, func(a, b Path) int { return cmp.Compare(a.Peer, b.Peer) })
	return out
}

// Why returns why a member is reached over a transport rather than a better one, as in "UDP gets no answer"; empty where
// nothing is to be said.
func (t *Transport) Why(p plan.PeerID, over plan.Transport) string {
	id, err := peer.Decode(string(p))
	if err != nil {
		return ""
	}
	return t.Findings.reason(id, over)
}

// FailedLately reports whether the newest try of a transport to a member failed less than a minute ago.
func (t *Transport) FailedLately(p plan.PeerID, over plan.Transport) bool {
	id, err := peer.Decode(string(p))
	found := t.Findings.found(id, over)
	return err == nil && found.why != "" && time.Since(found.at) < retryAfter
}

// Slow notes that a transport to a member had not answered when another one had done its work, unless its try has ended.
func (t *Transport) Slow(p plan.PeerID, over plan.Transport) {
	if id, err := peer.Decode(string(p)); err == nil {
		t.Findings.pending(id, over)
	}
}

// Prefer has a transport to a member tried first from now on, or none with "". The reason is for people:
// "94 Mbit/s against 61 over QUIC".
func (t *Transport) Prefer(p plan.PeerID, over plan.Transport, reason string) {
	if id, err := peer.Decode(string(p)); err == nil {
		t.Findings.prefer(id, over, reason)
	}
}
