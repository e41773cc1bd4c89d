package diagnose

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/neterr"
	"pnode/swarm/websocket"
)

// mostQuoted bounds what is shown of others' words, in bytes.
const mostQuoted = 60

// seconds is how long a handshake is waited for, in words.
var seconds = plan.Duration(handshakeTime)

func explainName(host string, at []netip.AddrPort, err error) Test {
	t := Test{Result: Fails, Finding: NoResolver, Do: "see that this machine's resolver works (/etc/resolv.conf), or ask for an invite with an IP address"}
	var dns *net.DNSError
	switch {
	case len(at) > 0:
		var ips []string
		for _, a := range at {
			ips = append(ips, a.Addr().String())
		}
		return Test{Result: OK, Finding: Works, Says: host + " is " + strings.Join(ips, " and ")}
	case err == nil, errors.As(err, &dns) && dns.IsNotFound:
		t.Finding = NoName
		t.Says = fmt.Sprintf("the resolver%s says that %s does not exist", server(dns), host)
		t.Do = "ask for a new invite if the contact has another name now, or see that this machine asks the resolver of the network where the name is known"
	case errors.As(err, &dns) && dns.IsTimeout:
		t.Says = fmt.Sprintf("the resolver%s does not answer for %s", server(dns), host)
	case dns != nil:
		t.Says = fmt.Sprintf("the resolver%s fails for %s: %s", server(dns), host, plan.Clip(dns.Err, mostQuoted))
	default:
		t.Says = fmt.Sprintf("%s cannot be looked up: %s", host, plan.Clip(err.Error(), mostQuoted))
	}
	return t
}

func server(e *net.DNSError) string {
	if e == nil || e.Server == "" {
		return ""
	}
	return " " + e.Server
}

func explainRoute(to, own netip.Addr, err error) Test {
	if err == nil {
		return Test{Result: OK, Finding: Works, Says: "this machine sends from " + own.String()}
	}
	kind, other := "IPv4", "IPv6"
	if to.Is6() {
		kind, other = other, kind
	}
	t := Test{Result: Fails, Finding: findingOf(err)}
	t.Says = fmt.Sprintf("this machine has no route to %s (%s)", to, cause(err))
	t.Do = "bring a network interface up that leads there"
	if !to.IsLoopback() && !hasGlobal(to.Is6()) {
		t.Says = fmt.Sprintf("this machine has no %s address, and %s is one (%s)", kind, to, cause(err))
		t.Do = fmt.Sprintf("bring its network up, or ask for an invite with an %s address if it has that alone", other)
	}
	return t
}

// hasGlobal reports whether an interface of this machine has an address of IPv6, or of IPv4, that leads further than
// its own link.
func hasGlobal(v6 bool) bool {
	addrs, _ := net.InterfaceAddrs() // none, where they cannot be read
	return slices.ContainsFunc(addrs, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.IsGlobalUnicast() && (n.IP.To4() == nil) == v6
	})
}

// cause returns the innermost words of an error of a socket.
func cause(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return plan.Clip(err.Error(), mostQuoted)
}

// common explains what the handshakes over UDP and TCP can find alike.
func common(over string, at netip.AddrPort, contact peer.ID, o outcome) Test {
	t := Test{Result: Fails, Finding: o.finding}
	switch o.finding {
	case Works:
		return Test{Result: OK, Finding: Works, Says: "the contact answers"}
	case Silent:
		t.Says = "no answer in " + seconds
		t.Do = fmt.Sprintf("open %s %d there and on the way", over, at.Port())
	case Refused:
		t.Says = "the machine there answers that nothing listens on the port, or a firewall answers in its place"
		t.Do = "start the node that made the invite, or ask for a new invite if it listens elsewhere now"
	case Unreachable, NoRoute:
		t.Says = fmt.Sprintf("the network says that it cannot deliver (%s)", cause(o.err))
		t.Do = "see that the machine there is on, and ask for a new invite if it has moved"
	case Denied:
		t.Says = fmt.Sprintf("this machine does not let the program send (%s)", cause(o.err))
		t.Do = fmt.Sprintf("allow outgoing %s to port %d on this machine", over, at.Port())
	case Exhausted:
		t.Says = fmt.Sprintf("this machine has no file descriptor or memory left for a socket (%s)", cause(o.err))
		t.Do = "raise the limit of open files (ulimit -n), or end programs that have many sockets open"
	case OtherNode:
		t.Says = fmt.Sprintf("another node answers: %s; the invite is of %s", o.peer, contact)
		t.Do = "ask for a new invite: the address is another node's now"
	case ClockBehind:
		t.Says = fmt.Sprintf("this machine's clock is behind the contact's by at least %s: it takes the contact's certificate for one of the future", plan.Duration(time.Until(o.started)))
		t.Do = "set this machine's clock"
	case ClockAhead:
		t.Says = "the contact takes this machine's certificate for one of the future: the clocks differ by more than 1 hour, this one being ahead"
		t.Do = "set this machine's clock, or the contact's if that is the wrong one"
	case Busy:
		t.Says = "the contact has no place for another newcomer just now"
		t.Do = "try again in half a minute"
	case Foreign:
		t.Says = fmt.Sprintf("something else than pnode answers (%s)", cause(o.err))
		t.Do = "ask for a new invite if the node listens elsewhere now; a firewall that filters may answer in its place"
	case TLS:
		t.Says = "it " + neterr.Verb(o.err)
		t.Do = "fetch the same release of pnode for both ends; a firewall that looks into TLS may answer in the contact's place"
	case GivenUp:
		t.Says = "the test was ended before there was an answer"
		t.Do = "run the tests again"
	case Failed:
		t.Says = fmt.Sprintf("it fails (%s)", cause(o.err))
		t.Do = "run the tests again"
	default:
		t.Says = "it " + neterr.Verb(o.err)
	}
	return t
}

func explainTCP(at netip.AddrPort, contact peer.ID, o outcome) Test {
	t := common("TCP", at, contact, o)
	var server *websocket.AnswerError
	if errors.As(o.err, &server) {
		t.Says = server.Error()
		t.Do = "if a web server stands in front of the node, have it hand WebSockets at /pnode on to the node's port: docs/networks.md has what to write; else ask for a new invite"
	}
	if o.finding == Cut {
		t.Says = fmt.Sprintf("it connects, and is cut before the end of the handshake (%s)", cause(o.err))
		t.Do = "a firewall that lets only known protocols through does that: ask its owner to allow the connection"
	}
	return t
}

func explainSize(at netip.AddrPort, o outcome) Test {
	t := Test{Part: MTU, Target: at.String(), Did: "QUIC packets of growing size", Result: OK, Finding: Works}
	switch {
	case o.size == 0:
		t.Says = fmt.Sprintf("packets of %d bytes of UDP pass; larger ones were not answered in time", firstPacket)
	case o.sized:
		t.Says = fmt.Sprintf("packets of up to %d bytes of UDP pass", o.size)
	default:
		t.Says = fmt.Sprintf("packets of %d bytes of UDP pass, perhaps larger ones", o.size)
	}
	return t
}

func explainRelay(targets []target, tests []Test) Test {
	var relays []string
	for _, t := range targets {
		if t.relay && !slices.Contains(relays, t.String()) {
			relays = append(relays, t.String())
		}
	}
	t := Test{Part: Relay, Target: strings.Join(relays, ","), Result: OK, Finding: Works}
	answers := slices.ContainsFunc(tests, func(t Test) bool {
		return (t.Part == UDP || t.Part == TCP || t.Part == WebSocket) && t.Result == OK && slices.Contains(relays, t.Target)
	})
	if answers {
		t.Says = "the relay answers; it connects members alone, so that the contact behind it shows after joining"
		return t
	}
	t.Result, t.Finding = Fails, Silent
	t.Says = "the contact is behind a relay, which does not answer"
	t.Do = "start the relay's node, or ask for a new invite"
	return t
}

func explainInvite(c Claimed, now time.Time) Test {
	t := Test{Result: Fails}
	switch {
	case c.Err == nil && c.late(now) > 0:
		return Test{Result: OK, Finding: Works, Says: fmt.Sprintf("the contact accepts it; by this machine's clock it ended %s ago", plan.Duration(c.late(now)))}
	case c.Err == nil:
		return Test{Result: OK, Finding: Works, Says: fmt.Sprintf("it is good until %s", c.RedeemBefore.UTC().Format("2006-01-02 15:04 MST"))}
	case errors.Is(c.Err, admission.ErrUnknownInvite):
		t.Finding, t.Says = Unknown, "the contact does not know the invite: it was revoked and forgotten, or is of a run that is over"
		t.Do = "ask for a new one (`pnode invite`)"
	case errors.Is(c.Err, admission.ErrInviteExpired):
		t.Finding, t.Says, t.Do = Expired, told(c.Err), "ask for a new one (`pnode invite`)"
	case errors.Is(c.Err, admission.ErrCapabilityExpired):
		t.Finding = ClockAhead
		t.Says = "the contact accepts the invite, and by this machine's clock the membership itself is over already"
		t.Do = "set this machine's clock, or the contact's if that is the wrong one"
	case errors.Is(c.Err, admission.ErrWrongRun), errors.Is(c.Err, admission.ErrSignature):
		t.Finding, t.Says = NoUse, "the contact's answer does not belong to this invite: "+plan.Clip(bare(c.Err), mostQuoted)
		t.Do = "ask for a new one (`pnode invite`)"
	case admission.IsRefusal(c.Err):
		t.Finding, t.Says, t.Do = NoUse, told(c.Err), "ask for a new one (`pnode invite`)"
	default:
		t.Finding, t.Says = Failed, "the contact was reached, and did not answer the question: "+cause(c.Err)
		t.Do = "try again"
	}
	return t
}

// told returns what the contact says of an invite.
func told(err error) string {
	first, _, _ := strings.Cut(bare(err), ";")
	return "the contact says: " + plan.Clip(first, mostQuoted)
}

// bare returns the text of an answer without that of the question.
func bare(err error) string {
	text := err.Error()
	for _, question := range []string{"swarm: claim invite: ", "swarm: redeem invite: "} {
		text = strings.TrimPrefix(text, question)
	}
	if whose, said, ok := strings.Cut(text, ": "); ok && strings.HasPrefix(whose, "peer ") {
		return said
	}
	return text
}

func explainClock(now, started time.Time, late time.Duration, dates []dated) Test {
	t := Test{Part: Clock, Did: "compare with the contact's"}
	switch behind := started.Sub(now); {
	case late > 0:
		t.Result, t.Finding = Fails, ClockAhead
		t.Says = fmt.Sprintf("this machine's clock is ahead of the contact's by at least %s: the invite, which is good, ended %[1]s ago by it", plan.Duration(late))
		t.Do = "set this machine's clock, or the contact's if that is the wrong one"
	case started.IsZero():
		t.Result, t.Says = NotTested, "no contact answered"
	case behind > clockSlack:
		t.Result, t.Finding = Fails, ClockBehind
		t.Says = fmt.Sprintf("this machine's clock is behind the contact's by at least %s: it has a time before the contact's start", plan.Duration(behind))
		t.Do = "set this machine's clock"
	default:
		t.Result, t.Finding = OK, Works
		t.Says = "this machine's is not before the contact's start"
	}
	for _, d := range dates {
		if off := d.now.Sub(d.said); t.Result != Fails && off.Abs() > clockSlack {
			t.Result, t.Finding = Fails, ClockAhead
			way := "ahead of"
			if off < 0 {
				way, t.Finding = "behind", ClockBehind
			}
			t.Says = fmt.Sprintf("this machine's clock is %s %s the clock of %s", plan.Duration(off.Abs()), way, d.who)
			t.Do = "set this machine's clock if that is the wrong one"
		}
	}
	return t
}

// explainNAT says what others see of this machine, if they said it.
func explainNAT(observed []netip.AddrPort, own []netip.Addr) (Test, bool) {
	if len(observed) == 0 {
		return Test{}, false
	}
	t := Test{Part: NAT, Did: "ask the contact what it sees", Result: OK, Finding: Works}
	first := observed[0]
	switch {
	case slices.Contains(own, first.Addr()):
		t.Says = fmt.Sprintf("none: the contact sees this machine's own address, %s", first.Addr())
	case slices.ContainsFunc(observed, func(o netip.AddrPort) bool { return o != first }):
		t.Finding = NATVaries
		t.Says = "this machine is behind a NAT with another public port for each destination: others cannot connect to it unasked"
	default:
		t.Finding = NATed
		t.Says = fmt.Sprintf("this machine is behind a NAT: the contact sees %s", first.Addr())
	}
	return t, true
}
