package diagnose

import (
	"time"

	"pnode/planner/plan"
	"pnode/swarm/neterr"
)

// Part names a part of the way to a contact, which a test looks at.
type Part string

// The parts of the way to a contact, in the order in which they are looked at.
const (
	DNS       Part = "dns"
	Route     Part = "route"
	UDP       Part = "udp"
	TCP       Part = "tcp"
	MTU       Part = "mtu"
	Proxy     Part = "proxy"
	WebSocket Part = "websocket"
	Relay     Part = "relay"
	Clock     Part = "clock"
	Invite    Part = "invite"
	NAT       Part = "nat"
)

// Result says how a test ended.
type Result string

const (
	OK        Result = "ok"
	Fails     Result = "fails"
	NotNeeded Result = "not needed"
	NotTested Result = "not tested"
)

// Finding says in one word what a test found. Programs may rely on it.
type Finding string

const (
	// What an error of a socket means has the word of package neterr.
	Works       = Finding(neterr.KindWorks)
	OtherNode   = Finding(neterr.KindOtherPeer)
	Busy        = Finding(neterr.KindNoPlace) // the contact has no place for another stranger now
	Closed      = Finding(neterr.KindClosed)
	Cut         = Finding(neterr.KindCut)
	Foreign     = Finding(neterr.KindForeign)
	TLS         = Finding(neterr.KindTLS)
	Refused     = Finding(neterr.KindRefused)
	Exhausted   = Finding(neterr.KindExhausted)
	Denied      = Finding(neterr.KindDenied)
	Unreachable = Finding(neterr.KindUnreachable)
	NoName      = Finding(neterr.KindNoName)
	NoResolver  = Finding(neterr.KindNoResolver)
	Silent      = Finding(neterr.KindSilent)
	NoRoute     = Finding(neterr.KindNoRoute)
	Failed      = Finding(neterr.KindFailed)
	GivenUp     = Finding(neterr.KindGivenUp)

	ClockBehind Finding = "clock-behind" // this machine's clock is behind the contact's
	ClockAhead  Finding = "clock-ahead"
	ProxyLogin  Finding = "proxy-login"   // 407
	ProxyDenies Finding = "proxy-denies"  // 403 and the like
	ProxyCannot Finding = "proxy-cannot"  // 502 and the like: it gets no connection to the contact
	Expired     Finding = "expired"       // of an invite
	NoUse       Finding = "of-no-use"     // an invite that is used up, revoked, or refused for another reason
	Unknown     Finding = "unknown"       // an invite that the contact does not know
	Skipped     Finding = ""              // not needed, or not tested
	NATed       Finding = "behind-nat"    // others see another address than this machine has
	NATVaries   Finding = "nat-symmetric" // and another for each of them
)

// Test is one test, done or left out.
type Test struct {
	Part Part `json:"test"`
	// Target is a host and a port, a name or a proxy; empty where the test has none.
	Target  string  `json:"target,omitempty"`
	Did     string  `json:"did,omitempty"`
	Result  Result  `json:"result"`
	Finding Finding `json:"finding,omitempty"`
	// Says is the finding as a sentence, Do what to do about it.
	Says    string        `json:"says"`
	Do      string        `json:"do,omitempty"`
	Took    time.Duration `json:"-"`
	Seconds float64       `json:"seconds"`
}

// Report holds all tests and what follows from them.
type Report struct {
	// Joins reports whether this machine can join; Over is the transport that data would take then.
	Joins bool           `json:"joins"`
	Over  plan.Transport `json:"over,omitempty"`
	// Verdict is one sentence.
	Verdict string `json:"verdict"`
	// Degraded says what is in the way of better transports than Over, such as "UDP to 192.0.2.1:4001 gets no answer".
	Degraded string `json:"degraded,omitempty"`
	// Cause is the part that fails, Do what to do about it; empty where this machine can join, and none is degraded.
	Cause Part   `json:"cause,omitempty"`
	Do    string `json:"do,omitempty"`
	Tests []Test `json:"tests"`
}
