package diagnose

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"pnode/swarm/admission"
	"pnode/swarm/tcp"
)

const (
	// limit bounds all tests together, resolveTime the look-up of a name, claimTime the claim of the invite.
	limit       = 14 * time.Second
	resolveTime = 4 * time.Second
	claimTime   = 5 * time.Second
	// maxTargets bounds how many places are tried; an invite names fewer.
	maxTargets = 8
	// maxAddressesOfName bounds how many addresses of a name are tried.
	maxAddressesOfName = 2
	// clockSlack is by how much clocks may differ without a word.
	clockSlack = 2 * time.Minute
)

// Config says what to test.
type Config struct {
	// Addrs are the addresses of an invite, with /p2p/.
	Addrs []string
	// Claim asks the contact for what belongs to the invite, and says what its clock and this one make of that. Nil
	// leaves the invite out: its answer is known, or there is none.
	Claim func(context.Context) Claimed
	// Progress, if not nil, hears which tests are under way, each time that changes.
	Progress func(tests []string)
}

// Claimed holds the answer to the claim of an invite.
type Claimed struct {
	Err error
	// RedeemBefore is when the invite ends, for one that the contact accepts.
	RedeemBefore time.Time
	// Observed are the addresses of this machine as the contacts see them, Own those that it has.
	Observed []netip.AddrPort
	Own      []netip.Addr
}

// late returns how long ago an invite ended, by this clock, that the contact accepts; 0 for less than clocks may differ.
func (c Claimed) late(now time.Time) time.Duration {
	if late := now.Sub(c.RedeemBefore); c.Err == nil && !c.RedeemBefore.IsZero() && late > clockSlack {
		return late
	}
	return 0
}

// target is a place where the contact, or a relay to it, is said to listen.
type target struct {
	host string
	port uint16
	peer peer.ID
	// relay reports whether the contact is behind the node that listens there.
	relay bool
	// udp, tcp and web say which of QUIC, TCP and WebSocket over TLS the addresses name; where TCP is, so is the last.
	udp, tcp, web bool
}

func (t target) String() string { return net.JoinHostPort(t.host, strconv.Itoa(int(t.port))) }

// Run makes the tests, those that do not need each other at the same time, within 15 s. It fails only for addresses that
// nobody can read.
func Run(ctx context.Context, cfg Config) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	targets, err := targetsOf(cfg.Addrs)
	if err != nil {
		return Report{}, err
	}
	d, err := newDialer()
	if err != nil {
		return Report{}, err
	}
	r := &run{dialer: d, progress: cfg.Progress, proxyFor: tcp.FromEnvironment}
	r.proxies(ctx, targets)
	var tried sync.WaitGroup
	for _, t := range targets {
		tried.Go(func() {
			for _, at := range r.resolve(ctx, t) {
				tried.Go(func() { r.reach(ctx, t, at) })
			}
		})
	}
	tried.Wait()
	r.proxied.Wait()
	r.relays(targets)
	r.clock(r.claim(ctx, cfg.Claim))
	slices.SortStableFunc(r.tests, func(a, b Test) int {
		six := func(t Test) int { return min(strings.Count(t.Target, ":"), 2) + min(strings.Count(t.Did, ":"), 2) } // IPv4 first
		return cmp.Or(slices.Index(order, a.Part)-slices.Index(order, b.Part), six(a)-six(b), cmp.Compare(a.Target, b.Target))
	})
	return Judge(r.tests), nil
}

// showInvite says what the test of an invite does.
const showInvite = "show it to the contact"

// order lists the parts as a report has them.
var order = []Part{DNS, Route, UDP, MTU, TCP, Proxy, WebSocket, Relay, Invite, Clock, NAT}

// targetsOf returns the places that addresses name, each once.
func targetsOf(addrs []string) ([]target, error) {
	infos, err := admission.ParseAddrs(addrs)
	if err != nil {
		return nil, fmt.Errorf("swarm: diagnose: %w", err)
	}
	var all []target
	for _, info := range infos {
		for _, a := range info.Addrs {
			t, ok := targetOf(info.ID, a)
			i := slices.IndexFunc(all, func(o target) bool { return o.String() == t.String() && o.peer == t.peer })
			switch {
			case !ok:
			case i < 0:
				all = append(all, t)
			default:
				all[i].udp, all[i].tcp, all[i].web = all[i].udp || t.udp, all[i].tcp || t.tcp, all[i].web || t.web
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("swarm: diagnose: %w: no address with a host and a port", admission.ErrMalformed)
	}
	return all[:min(len(all), maxTargets)], nil
}

// targetOf returns the place that an address of a peer leads to first.
func targetOf(p peer.ID, a ma.Multiaddr) (target, bool) {
	t := target{peer: p}
	for _, c := range a {
		switch c.Protocol().Code {
		case ma.P_IP4, ma.P_IP6, ma.P_DNS, ma.P_DNS4, ma.P_DNS6:
			t.host = c.Value()
		case ma.P_WS, ma.P_WSS:
			t.tcp, t.web = false, true
		case ma.P_UDP, ma.P_TCP:
			port, err := strconv.ParseUint(c.Value(), 10, 16)
			if err != nil {
				return t, false
			}
			t.port = uint16(port)
			t.udp, t.tcp = c.Protocol().Code == ma.P_UDP, c.Protocol().Code == ma.P_TCP
			t.web = t.tcp
		case ma.P_P2P: // the relay's
			id, err := peer.Decode(c.Value())
			if err != nil {
				return t, false
			}
			t.peer = id
		case ma.P_CIRCUIT:
			t.relay = true
			return t, t.host != "" && t.port > 0
		}
	}
	return t, t.host != "" && t.port > 0
}

// run holds the tests of one Run.
type run struct {
	dialer   *dialer
	progress func([]string)
	// proxyFor returns the proxy for a host and port, nil for none.
	proxyFor func(string) (*url.URL, error)
	proxied  sync.WaitGroup
	mu       sync.Mutex // guards the fields below, and orders progress
	tests    []Test
	running  []string
	// started is the latest start of a contact by its clock, dates what proxies said, with when.
	started time.Time
	dates   []dated
}

// dated holds a reading of another clock, with the time of this one.
type dated struct {
	who       string
	said, now time.Time
}

// test makes one test and keeps it.
func (r *run) test(t Test, do func() Test) Test {
	name := strings.TrimSpace(string(t.Part) + " " + t.Target)
	r.tell(func() { r.running = append(r.running, name) })
	began := time.Now()
	done := do()
	done.Part, done.Target, done.Did, done.Took = t.Part, t.Target, t.Did, time.Since(began)
	done.Seconds = done.Took.Round(time.Millisecond).Seconds()
	r.tell(func() {
		i := slices.Index(r.running, name)
		r.running = slices.Delete(r.running, i, i+1)
		r.tests = append(r.tests, done)
	})
	return done
}

// tell changes which tests are under way, and says so.
func (r *run) tell(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if change(); r.progress != nil {
		r.progress(r.running)
	}
}

// keep adds a test that takes no time.
func (r *run) keep(t Test) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tests = append(r.tests, t)
}

// resolve returns the addresses of a target.
func (r *run) resolve(ctx context.Context, t target) (out []netip.AddrPort) {
	if ip, err := netip.ParseAddr(t.host); err == nil {
		return []netip.AddrPort{netip.AddrPortFrom(ip, t.port)}
	}
	r.test(Test{Part: DNS, Target: t.host, Did: "look the name up"}, func() Test {
		ctx, cancel := context.WithTimeout(ctx, resolveTime)
		defer cancel()
		ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", t.host)
		for _, ip := range ips[:min(len(ips), maxAddressesOfName)] {
			out = append(out, netip.AddrPortFrom(ip.Unmap(), t.port))
		}
		return explainName(t.host, out, err)
	})
	return out
}

// reach tries the transports to one address.
func (r *run) reach(ctx context.Context, t target, at netip.AddrPort) {
	route := r.test(Test{Part: Route, Target: at.Addr().String(), Did: "ask this machine for a route"}, func() Test {
		own, err := source(at)
		return explainRoute(at.Addr(), own, err)
	})
	if route.Result != OK {
		return
	}
	var both sync.WaitGroup
	if t.udp {
		both.Go(func() {
			var o outcome
			r.test(Test{Part: UDP, Target: at.String(), Did: "QUIC handshake"}, func() Test {
				o = r.dialer.udp(ctx, at, t.peer)
				return common("UDP", at, t.peer, o)
			})
			r.noteStart(o.started)
			if o.finding == Works {
				r.keep(explainSize(at, o))
			}
		})
	}
	if t.tcp {
		both.Go(func() {
			var o outcome
			r.test(Test{Part: TCP, Target: at.String(), Did: "connect, TLS handshake"}, func() Test {
				o = r.dialer.tcp(ctx, at, t.peer)
				return explainTCP(at, t.peer, o)
			})
			r.noteStart(o.started)
		})
	}
	if via, err := r.proxyFor(t.String()); t.web && via == nil && err == nil {
		both.Go(func() { r.web(ctx, t, at.String()) })
	}
	both.Wait()
}

// web opens a WebSocket at a host and port of a target, over a proxy if the environment names one.
func (r *run) web(ctx context.Context, t target, at string) {
	var o outcome
	r.test(Test{Part: WebSocket, Target: at, Did: "WebSocket over TLS, TLS handshake in it"}, func() Test {
		o = r.dialer.web(ctx, at, t.peer, r.proxyFor)
		return explainTCP(netip.AddrPortFrom(netip.Addr{}, t.port), t.peer, o)
	})
	r.noteStart(o.started)
}

// source returns the address from which this machine sends to another one, without sending anything.
func source(at netip.AddrPort) (netip.Addr, error) {
	c, err := net.Dial("udp", at.String())
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	own, err := netip.ParseAddrPort(c.LocalAddr().String())
	return own.Addr(), err
}

func (r *run) noteStart(t time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.After(r.started) {
		r.started = t
	}
}

// proxies asks the proxies of the environment for connections to the targets, and opens WebSockets over them. It does not
// wait for the answers.
func (r *run) proxies(ctx context.Context, targets []target) {
	asked := map[string]bool{}
	for _, t := range targets {
		proxy, err := r.proxyFor(t.String())
		switch {
		case err != nil:
			r.keep(explainProxySetting(err))
			return
		case proxy == nil || !t.web || asked[t.String()]:
			continue
		}
		asked[t.String()] = true
		r.proxied.Go(func() {
			answer := r.test(Test{Part: Proxy, Target: tcp.ProxyAddress(proxy), Did: "CONNECT " + t.String()}, func() Test {
				answer, date := throughProxy(ctx, proxy, t.String())
				r.noteDate("the proxy", date)
				return answer
			})
			if answer.Result == OK {
				r.web(ctx, t, t.String())
			}
		})
	}
	if len(asked) == 0 {
		r.keep(Test{Part: Proxy, Result: NotNeeded, Says: "the environment (HTTPS_PROXY, ALL_PROXY) names none for the contact"})
	}
}

// noteDate keeps what another clock says; zero for nothing.
func (r *run) noteDate(who string, date time.Time) {
	if date.IsZero() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dates = append(r.dates, dated{who, date, time.Now()})
}

// relays says what is known of the relays to a contact.
func (r *run) relays(targets []target) {
	if !slices.ContainsFunc(targets, func(t target) bool { return t.relay }) {
		return
	}
	r.keep(explainRelay(targets, r.tests))
}

// claim asks the contact for what belongs to the invite, where one answers.
func (r *run) claim(ctx context.Context, claim func(context.Context) Claimed) (got Claimed) {
	reached := slices.ContainsFunc(r.tests, func(t Test) bool { return (t.Part == UDP || t.Part == TCP || t.Part == WebSocket) && t.Result == OK })
	switch {
	case claim == nil:
		return got
	case !reached:
		r.keep(Test{Part: Invite, Result: NotTested, Says: "the contact, which knows whether it is still good, cannot be asked"})
		return got
	}
	r.test(Test{Part: Invite, Did: showInvite}, func() Test {
		ctx, cancel := context.WithTimeout(ctx, claimTime)
		defer cancel()
		got = claim(ctx)
		return explainInvite(got, time.Now())
	})
	if t, ok := explainNAT(got.Observed, got.Own); ok {
		r.keep(t)
	}
	return got
}

// clock says what the other clocks make of this one.
func (r *run) clock(got Claimed) {
	now := time.Now()
	wrong := slices.IndexFunc(r.tests, func(t Test) bool { return t.Finding == ClockBehind || t.Finding == ClockAhead })
	if wrong >= 0 {
		t := r.tests[wrong]
		r.keep(Test{Part: Clock, Did: "compare with the contact's", Result: Fails, Finding: t.Finding, Says: t.Says, Do: t.Do})
		return
	}
	r.keep(explainClock(now, r.started, got.late(now), r.dates))
}
