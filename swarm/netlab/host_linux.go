package netlab

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Port is the port that containers have mapped, and that hosts should listen on.
const Port = 4001

// ProxyPort is where the proxy of a host of kind Proxy listens, in its gateway.
const ProxyPort = 3128

// Host is a machine of a lab.
type Host struct {
	Name         string
	Kind         Kind
	space        *space
	gateway      *space // the innermost one; nil for none
	internet     *space
	addr4, addr6 netip.Addr
	env          []string
	announce     string
	outside      string // the interface of the internet towards it
	ways         []*way // both directions of its line
}

// Host adds a machine behind routers of its kind. A line, at most one, joins the outermost of these, or the machine
// where it has none, to the internet.
func (l *Lab) Host(name string, kind Kind, line ...Line) *Host {
	l.t.Helper()
	l.hosts++
	h := &Host{Name: name, Kind: kind, space: l.newSpace(name), internet: l.router}
	routers := kind.routers(h, l.hosts)
	outer := l.router
	h.outside = fmt.Sprintf("h%d", l.hosts)
	w := wire{outer: outer, outerName: h.outside, innerName: "wan", net4: public4(l.hosts, 0), net6: public6(l.hosts, 0)}
	if kind == IPv6 {
		w.net4 = netip.Prefix{}
	} else if kind.translates() {
		w.net6 = netip.Prefix{}
	}
	var path []wire
	var first *Line
	if len(line) > 0 {
		first = &line[0]
	}
	for i, r := range routers {
		inside := l.newSpace(fmt.Sprintf("%s-gw%d", name, len(routers)-i))
		w.inner = inside
		h.ways = append(h.ways, l.connect(w, first)...)
		inside.remember(30*time.Second, 5*time.Minute)
		if r.rules != "" {
			inside.nft(r.rules)
		}
		if i == 0 {
			h.addr4, h.addr6 = second(w.net4), second(w.net6)
		}
		if path = append(path, w); r.routed { // public addresses inside, too
			for _, above := range path {
				above.outer.routes(r, above)
			}
		}
		w = wire{outer: inside, outerName: "lan", innerName: "wan", net4: r.net4, net6: r.net6, mtu: r.mtu}
		first, h.gateway = nil, inside
	}
	w.inner = h.space
	h.ways = append(h.ways, l.connect(w, first)...)
	if len(routers) == 0 || routers[len(routers)-1].routed {
		h.addr4, h.addr6 = second(w.net4), second(w.net6)
	}
	if kind == Proxy {
		h.space.ip("route del default")
		l.proxy(h.gateway, second(w.net4).Prev())
		h.env = append(h.env, fmt.Sprintf("HTTPS_PROXY=http://%s:%d", second(w.net4).Prev(), ProxyPort))
	}
	return h
}

// routes sends the inner network of a router through the other end of a wire.
func (s *space) routes(r router, w wire) {
	s.t.Helper()
	var lines []string
	for _, p := range []struct{ to, via netip.Prefix }{{r.net4, w.net4}, {r.net6, w.net6}} {
		if p.to.IsValid() && p.via.IsValid() {
			lines = append(lines, fmt.Sprintf("route add %s via %s", p.to, second(p.via)))
		}
	}
	s.ip(lines...)
}

// public4 is network k of host i: 45.i.k.0/24.
func public4(i, k int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{45, byte(i), byte(k), 0}), 24)
}

// public6 is network k of host i: 2a0d:i:k::/64.
func public6(i, k int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom16([16]byte{0x2a, 0x0d, 0, byte(i), 0, byte(k)}), 64)
}

// second returns the second address of a network, of its inner end.
func second(p netip.Prefix) netip.Addr {
	if !p.IsValid() {
		return netip.Addr{}
	}
	return p.Addr().Next().Next()
}

// Addr returns the IPv4 address under which the rest of the internet sees the host; the zero Addr for none.
func (h *Host) Addr() netip.Addr { return h.addr4 }

// Addr6 is Addr for IPv6.
func (h *Host) Addr6() netip.Addr { return h.addr6 }

// Announce returns the address under which others reach TCP port Port of a container, such as 45.3.0.2:40012; "" for
// other hosts.
func (h *Host) Announce() string { return h.announce }

// Env returns the variables that the host's provider or administrator sets.
func (h *Host) Env() []string { return h.env }

// Do calls f on a thread in the host's namespace and waits for it. Sockets that it opens stay there, also when other
// goroutines use them; goroutines that it starts are elsewhere. A test may end in f only through its own goroutine:
// f reports, the caller fails.
func (h *Host) Do(f func()) {
	h.space.t.Helper()
	if err := h.space.run(f); err != nil {
		h.space.t.Fatalf("%v", err)
	}
}

// Start starts a process on the host. Its environment is the command's, or this process's, without variables that
// proxies and providers set here, and with those of Env. The process is killed at the end of the test.
func (h *Host) Start(cmd *exec.Cmd) error {
	env := cmd.Env
	if env == nil {
		env = os.Environ()
	}
	cmd.Env = nil
	for _, e := range env {
		name, _, _ := strings.Cut(strings.ToUpper(e), "=")
		foreign := strings.HasSuffix(name, "_PROXY") || strings.HasPrefix(name, "RUNPOD_") ||
			strings.HasPrefix(name, "VAST_") || name == "PUBLIC_IPADDR"
		if !foreign {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, h.env...)
	return h.space.start(cmd)
}

// Command starts a program on the host, which the context ends.
func (h *Host) Command(ctx context.Context, program string, args ...string) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	return cmd, h.Start(cmd)
}

// Dial connects from the host to an address without names.
func (h *Host) Dial(network, address string) (conn net.Conn, err error) {
	h.Do(func() { conn, err = net.Dial(network, address) })
	return conn, err
}

// Sysctl sets a value of the host's network by its path below /proc/sys, such as
// net/ipv4/tcp_congestion_control.
func (h *Host) Sysctl(path, value string) { h.space.sysctl(path, value) }

// IP carries out commands of ip on the host, such as "link set wan down".
func (h *Host) IP(commands ...string) { h.space.ip(commands...) }

// Gateway carries out rules of nft on the host's router, such as "flush ruleset".
func (h *Host) Gateway(rules string) { h.gateway.nft(rules) }

// StartGateway starts a process on the host's router, such as a daemon that maps ports. It ends with the test.
func (h *Host) StartGateway(cmd *exec.Cmd) error { return h.gateway.start(cmd) }

// mapped returns the number of the port outside that stands for Port on a container.
func mapped(i int) string { return strconv.Itoa(40000 + 100*i + 37) }
