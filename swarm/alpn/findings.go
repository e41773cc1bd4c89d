package alpn

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/quic-go/quic-go"

	"pnode/planner/plan"
	"pnode/swarm/neterr"
)

// retryAfter is how long a transport that failed is tried after the others.
const retryAfter = time.Minute

// Findings holds what dials and probes found out about the transports to each peer, for all connections of a node. Its
// methods may be called from any goroutine.
type Findings struct {
	// mu guards the fields below.
	mu sync.Mutex
	// tried holds how the newest try of each transport ended.
	tried map[peer.ID]map[plan.Transport]finding
	// better holds which transport a probe found to be the best.
	better map[peer.ID]choice
	// came holds over what connections of a peer have come in.
	came map[peer.ID]map[plan.Transport]bool
}

// finding is how the newest try of a transport ended: with why if it failed.
type finding struct {
	at  time.Time
	why string
}

type choice struct {
	over plan.Transport
	why  string
}

// NewFindings returns findings of nothing.
func NewFindings() *Findings {
	return &Findings{tried: map[peer.ID]map[plan.Transport]finding{}, better: map[peer.ID]choice{}, came: map[peer.ID]map[plan.Transport]bool{}}
}

// note keeps how a try ended; why is empty for one that worked.
func (f *Findings) note(p peer.ID, over plan.Transport, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tried[p] == nil {
		f.tried[p] = map[plan.Transport]finding{}
	}
	f.tried[p][over] = finding{time.Now(), why}
}

// pending notes that a transport was slower than a worse one, unless its try has ended or ended badly before.
func (f *Findings) pending(p peer.ID, over plan.Transport) {
	if found := f.found(p, over); found.why == "" && time.Since(found.at) > dialStagger {
		f.note(p, over, "has not answered yet")
	}
}

// found returns how the newest try ended, zero without one.
func (f *Findings) found(p peer.ID, over plan.Transport) finding {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tried[p][over]
}

// prefer has a transport to a peer tried first, with the reason that people read, such as "94 Mbit/s against 61 over QUIC".
func (f *Findings) prefer(p peer.ID, over plan.Transport, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.better[p] = choice{over, why}
}

// order sorts transports: the preferred first, those that failed a short time ago last, the others as they are.
func (f *Findings) order(p peer.ID, all []plan.Transport) []plan.Transport {
	f.mu.Lock()
	defer f.mu.Unlock()
	rank := func(over plan.Transport) int {
		switch found, known := f.tried[p][over]; {
		case known && found.why != "" && time.Since(found.at) < retryAfter:
			return 2
		case f.better[p].over == over:
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b plan.Transport) int { return rank(a) - rank(b) })
	return all
}

// arrived notes over what a connection of a peer came in.
func (f *Findings) arrived(p peer.ID, over plan.Transport) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.came[p] == nil {
		f.came[p] = map[plan.Transport]bool{}
	}
	f.came[p][over] = true
}

// against returns what is known against a transport, to follow its name; empty for nothing. A peer that has come in
// over worse ones only has its reasons.
func (f *Findings) against(p peer.ID, over plan.Transport) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	found, tried := f.tried[p][over]
	if came := f.came[p]; tried || len(came) == 0 {
		return found.why
	}
	for better := range f.came[p] {
		if slices.Index(plan.Transports, better) <= slices.Index(plan.Transports, over) {
			return ""
		}
	}
	return "was no way here for the peer"
}

// reason returns why a transport is used rather than a better one; empty where there is nothing to say.
func (f *Findings) reason(p peer.ID, over plan.Transport) string {
	f.mu.Lock()
	better := f.better[p]
	f.mu.Unlock()
	if better.over == over && better.why != "" {
		return better.why
	}
	for _, best := range plan.Transports {
		if best == over {
			break
		}
		if why := f.against(p, best); why != "" {
			if best == plan.QUIC {
				return "UDP " + why
			}
			return best.String() + " " + why
		}
	}
	return ""
}

// inWords returns what an error of a dial says of the transport, without addresses.
func inWords(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errNoAddress):
		return "has no address"
	case neterr.Refused(err):
		return "is refused: nobody listens"
	case neterr.NoRoute(err), neterr.Unreachable(err):
		return "has no route"
	case neterr.Denied(err), strings.Contains(err.Error(), syscall.EPERM.Error()): // QUIC gives the words alone
		return "is blocked by this machine's firewall"
	case neterr.Silent(err), errors.As(err, new(*quic.HandshakeTimeoutError)), errors.As(err, new(*quic.IdleTimeoutError)):
		return "gets no answer"
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return "fails: " + text
}
