package diagnose

import (
	"net/netip"
	"syscall"

	"pnode/planner/plan"
)

// verdict holds what is said of tests: over what data goes, which part is in the way, and what to do.
type verdict struct {
	tests []Test
	over  plan.Transport
	cause Part
	says  string
	do    string
}

// Tests of parts that need no outcome of a handshake.
var (
	noProxy     = Test{Part: Proxy, Result: NotNeeded}
	noRoute     = at(Route, "127.9.9.9", "ask this machine for a route", explainRoute(netip.MustParseAddr("127.9.9.9"), netip.Addr{}, syscall.ENETUNREACH))
	noName      = at(DNS, "desk.example", "", explainName("desk.example", nil, nil))
	relayWorks  = Test{Part: Relay, Target: place.String(), Result: OK, Finding: Works}
	silentRelay = Test{Part: Relay, Target: place.String(), Result: Fails, Finding: Silent}
	expired     = Test{Part: Invite, Did: showInvite, Result: Fails, Finding: Expired, Says: "the contact says: invite expired (it ended yesterday)", Do: "ask for a new one (`pnode invite`)"}
	slow        = Test{Part: Clock, Result: Fails, Finding: ClockBehind, Says: "this machine's clock is behind the contact's by at least 30 min", Do: "set this machine's clock"}
)

// at returns what was found as a test of a part.
func at(part Part, target, did string, found Test) Test {
	found.Part, found.Target, found.Did = part, target, did
	return found
}

// verdicts lists combinations of findings with what a person needs to hear of them.
var verdicts = map[string]verdict{
	"all works": {
		[]Test{after(UDP, Works), after(TCP, Works), noProxy},
		plan.QUIC, "",
		"this machine can join: UDP to 192.0.2.1:4001 works: data will go over QUIC", "",
	},
	"UDP dropped": {
		[]Test{after(UDP, Silent), after(TCP, Works), noProxy},
		plan.TCP, UDP,
		"this machine can join: UDP to 192.0.2.1:4001 gets no answer, TCP works: data will go over TCP",
		"open UDP 4001 there and on the way",
	},
	"UDP dropped, and IPv6 without a route": {
		[]Test{after(UDP, NoRoute), after(UDP, Silent), after(TCP, Works), noProxy},
		plan.TCP, UDP,
		"this machine can join: UDP to 192.0.2.1:4001 gets no answer, TCP works: data will go over TCP",
		"open UDP 4001 there and on the way",
	},
	"no descriptors": {
		[]Test{after(UDP, Silent), after(UDP, Exhausted), after(TCP, Works), noProxy},
		plan.TCP, UDP,
		"this machine can join: UDP to 192.0.2.1:4001 finds this machine without room for a socket, TCP works: data will go over TCP",
		"raise the limit of open files (ulimit -n), or end programs that have many sockets open",
	},
	"TCP dropped": {
		[]Test{after(UDP, Works), after(TCP, Silent), noProxy},
		plan.QUIC, "",
		"this machine can join: UDP to 192.0.2.1:4001 works: data will go over QUIC", "",
	},
	"TCP cut, WebSocket works": {
		[]Test{after(UDP, Silent), after(TCP, Cut), after(WebSocket, Works), noProxy},
		plan.WebSocket, UDP,
		"this machine can join: UDP to 192.0.2.1:4001 gets no answer, TCP to 192.0.2.1:4001 is cut, WebSocket over TLS works: data will go over WebSocket",
		"open UDP 4001 there and on the way",
	},
	"a name that only the proxy knows": {
		[]Test{noName, after(Proxy, Works), after(WebSocket, Works)},
		plan.WebSocket, DNS,
		"this machine can join: the resolver says that desk.example does not exist, WebSocket over TLS works: data will go over WebSocket",
		"ask for a new invite if the contact has another name now, or see that this machine asks the resolver of the network where the name is known",
	},
	"nobody listens": {
		[]Test{after(UDP, Refused), after(TCP, Refused), noProxy},
		"", UDP,
		"this machine cannot join: UDP and TCP 192.0.2.1:4001 (QUIC handshake; connect, TLS handshake): the machine there answers that nothing listens on the port, or a firewall answers in its place",
		"start the node that made the invite, or ask for a new invite if it listens elsewhere now",
	},
	"silence": {
		[]Test{after(UDP, Silent), after(TCP, Silent), noProxy},
		"", TCP,
		"this machine cannot join: UDP and TCP 192.0.2.1:4001 (QUIC handshake; connect, TLS handshake): no answer in 5 s",
		"see that the machine there is on and its node runs; open UDP and TCP to that port there and on the way; where only a proxy leads out, name it in HTTPS_PROXY",
	},
	"TCP cut": {
		[]Test{after(UDP, Silent), after(TCP, Cut), noProxy},
		"", TCP,
		"this machine cannot join: UDP 192.0.2.1:4001 (QUIC handshake): no answer in 5 s; TCP 192.0.2.1:4001 (connect, TLS handshake): it connects, and is cut before the end of the handshake (connection reset by peer)",
		"a firewall that lets only known protocols through does that: ask its owner to allow the connection",
	},
	"proxy": {
		[]Test{after(UDP, Silent), after(TCP, Silent), after(Proxy, ProxyLogin)},
		"", Proxy,
		"this machine cannot join: UDP and TCP 192.0.2.1:4001 (QUIC handshake; connect, TLS handshake): no answer in 5 s; the proxy 192.0.2.9:3128 (CONNECT 192.0.2.1:4001): the proxy wants a user and a password (it answers 407 Proxy Authentication Required)",
		"give them in HTTPS_PROXY: http://USER:PASSWORD@HOST:PORT",
	},
	"no route": {
		[]Test{noRoute, noProxy},
		"", Route,
		"this machine cannot join: the route 127.9.9.9 (ask this machine for a route): this machine has no route to 127.9.9.9 (network is unreachable)",
		"bring a network interface up that leads there; where only a proxy leads out, name it in HTTPS_PROXY",
	},
	"relay": {
		[]Test{after(UDP, Refused), after(TCP, Refused), noProxy, silentRelay},
		"", Relay,
		"this machine cannot join: the relay to the contact is not reached: UDP and TCP 192.0.2.1:4001 (QUIC handshake; connect, TLS handshake): the machine there answers that nothing listens on the port, or a firewall answers in its place",
		"start the node that made the invite, or ask for a new invite if it listens elsewhere now",
	},
	"relay that answers": {
		[]Test{after(UDP, Works), after(TCP, Works), noProxy, relayWorks},
		plan.Relay, "",
		"this machine can join: UDP to the relay at 192.0.2.1:4001 works; data will go past it where the NATs let that be, else through it", "",
	},
	"relay without UDP": {
		[]Test{after(UDP, Silent), after(TCP, Works), noProxy, relayWorks},
		plan.Relay,
		UDP,
		"this machine can join: UDP to 192.0.2.1:4001 gets no answer, TCP to the relay at 192.0.2.1:4001 works; data will go past it where the NATs let that be, else through it",
		"open UDP 4001 there and on the way",
	},
	"clock": {
		[]Test{after(UDP, ClockAhead), after(TCP, ClockAhead), noProxy},
		"", Clock,
		"this machine cannot join: clock: UDP 192.0.2.1:4001 (QUIC handshake): the contact takes this machine's certificate for one of the future: the clocks differ by more than 1 hour, this one being ahead",
		"set this machine's clock, or the contact's if that is the wrong one",
	},
	"clock that is off and does not matter": {
		[]Test{after(UDP, Works), slow, noProxy},
		plan.QUIC, Clock,
		"this machine can join: UDP to 192.0.2.1:4001 works: data will go over QUIC; but this machine's clock is behind the contact's by at least 30 min",
		"set this machine's clock",
	},
	"expired": {
		[]Test{after(UDP, Works), after(TCP, Works), expired},
		"", Invite,
		"this machine cannot join: the contact says: invite expired (it ended yesterday)", "ask for a new one (`pnode invite`)",
	},
	"only UDP named": {
		[]Test{after(UDP, Denied), noProxy},
		"", UDP,
		"this machine cannot join: UDP 192.0.2.1:4001 (QUIC handshake): this machine does not let the program send (connection reset by peer)",
		"allow outgoing UDP to port 4001 on this machine",
	},
	"interrupted": {
		[]Test{after(UDP, GivenUp), after(TCP, GivenUp), noProxy},
		"", TCP,
		"this machine cannot join: UDP and TCP 192.0.2.1:4001 (QUIC handshake; connect, TLS handshake): the test was ended before there was an answer",
		"run the tests again",
	},
}
