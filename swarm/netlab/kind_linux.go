package netlab

import (
	"fmt"
	"net/netip"
	"strings"
)

// Kind says what stands between a host and the internet.
type Kind string

// Kinds of hosts. Those behind NATs have IPv4 alone, the others IPv6, too.
const (
	// Public: nothing.
	Public Kind = "public"
	// FullCone: a NAT with endpoint-independent mapping and filtering.
	FullCone Kind = "full-cone"
	// PortRestricted: a NAT with endpoint-independent mapping, and address and port-dependent filtering.
	PortRestricted Kind = "port-restricted"
	// Symmetric: a NAT with address and port-dependent mapping and filtering.
	Symmetric Kind = "symmetric"
	// CGNAT: two NATs of kind PortRestricted, one behind the other.
	CGNAT Kind = "cgnat"
	// UDPBlocked: outward TCP only, to any port.
	UDPBlocked Kind = "udp-blocked"
	// TCP443: outward TCP to port 443 only.
	TCP443 Kind = "tcp-443"
	// OnePort: outward TCP, and inward TCP to Port under the same number.
	OnePort Kind = "one-port"
	// RunPod: outward TCP, and inward TCP to Port under another number, which RUNPOD_ variables tell.
	RunPod Kind = "runpod"
	// Vast: outward TCP and UDP, and both inward to Port under other numbers, which VAST_ variables tell.
	Vast Kind = "vast"
	// IPv6: a public address of IPv6 alone.
	IPv6 Kind = "ipv6"
	// Proxy: an HTTP proxy that connects to port 443, which HTTPS_PROXY tells, and no way else.
	Proxy Kind = "proxy"
	// MTU1280: public addresses behind a link that takes packets of at most 1,280 bytes.
	MTU1280 Kind = "mtu-1280"
	// MTU1280Silent: the same, and larger packets vanish without an ICMP message.
	MTU1280Silent Kind = "mtu-1280-silent"
)

// router is one hop between a host and the internet.
type router struct {
	net4, net6 netip.Prefix // inside
	mtu        int          // inside
	routed     bool         // inside are public addresses
	rules      string       // of nft
}

// translates reports whether the kind has a NAT.
func (k Kind) translates() bool {
	switch k {
	case Public, IPv6, MTU1280, MTU1280Silent:
		return false
	}
	return true
}

var (
	home    = netip.MustParsePrefix("10.0.0.0/24")
	carrier = netip.MustParsePrefix("100.64.0.0/24")
)

// routers returns the hops in front of host i, the outermost first, and notes what the host's provider tells it.
func (k Kind) routers(h *Host, i int) []router {
	inside := second(home).String()
	switch k {
	case Public, IPv6:
		return nil
	case MTU1280, MTU1280Silent:
		rules := ""
		if k == MTU1280Silent {
			rules = tooBigDropped
		}
		narrow := router{net4: public4(i, 1), net6: public6(i, 1), routed: true, mtu: 1280, rules: rules}
		return []router{narrow, {net4: public4(i, 2), net6: public6(i, 2), routed: true, rules: rules}}
	case FullCone:
		return []router{{net4: home, rules: nat{
			out: "accept", snat: "masquerade", dnat: "meta l4proto . th dport @open dnat to " + inside,
			more: `set open { type inet_proto . inet_service; flags dynamic,timeout; timeout 30s; }
				chain note { type filter hook postrouting priority 50; oifname "wan" meta l4proto { tcp, udp } update @open { meta l4proto . th sport }; }`,
		}.String()}}
	case PortRestricted:
		return []router{{net4: home, rules: nat{out: "accept", snat: "masquerade persistent"}.String()}}
	case Symmetric:
		return []router{{net4: home, rules: nat{out: "accept", snat: "masquerade fully-random"}.String()}}
	case CGNAT:
		rules := nat{out: "accept", snat: "masquerade persistent"}.String()
		return []router{{net4: carrier, rules: rules}, {net4: home, rules: rules}}
	case UDPBlocked:
		return []router{{net4: home, rules: nat{out: "meta l4proto tcp accept", snat: "masquerade"}.String()}}
	case TCP443:
		return []router{{net4: home, rules: nat{out: "tcp dport 443 accept", snat: "masquerade"}.String()}}
	case Proxy:
		return []router{{net4: home, rules: nat{out: "drop", snat: "masquerade"}.String()}}
	}
	address, out := second(public4(i, 0)).String(), "meta l4proto tcp accept"
	outside, dnat := mapped(i), ""
	switch k {
	case OnePort:
		outside = fmt.Sprint(Port)
	case RunPod:
		h.env = []string{"RUNPOD_PUBLIC_IP=" + address, fmt.Sprintf("RUNPOD_TCP_PORT_%d=%s", Port, outside)}
	case Vast:
		out = "accept"
		udp := mapped(i + 1)
		h.env = []string{
			"PUBLIC_IPADDR=" + address, fmt.Sprintf("VAST_TCP_PORT_%d=%s", Port, outside),
			fmt.Sprintf("VAST_UDP_PORT_%d=%s", Port, udp),
		}
		dnat = fmt.Sprintf("udp dport %s dnat to %s:%d; ", udp, inside, Port)
	default:
		panic(fmt.Sprintf("netlab: unknown kind %q", k))
	}
	h.announce = address + ":" + outside
	dnat += fmt.Sprintf("tcp dport %s dnat to %s:%d", outside, inside, Port)
	return []router{{net4: home, rules: nat{out: out, snat: "masquerade", dnat: dnat}.String()}}
}

// tooBigDropped keeps a router from saying that a packet is too big for it.
const tooBigDropped = `table inet lab {
	chain out {
		type filter hook output priority 0
		icmp type destination-unreachable drop
		icmpv6 type packet-too-big drop
	}
}`

// nat holds the rules of a NAT: what may go out, how that is translated, what comes in unasked. Packets that belong
// to no connection vanish: the kernel of a router that answered them would give the next connection from inside
// another port.
type nat struct{ out, snat, dnat, more string }

func (n nat) String() string {
	var dnat strings.Builder
	for rule := range strings.SplitSeq(n.dnat, "; ") {
		if rule != "" {
			fmt.Fprintf(&dnat, "iifname \"wan\" %s\n", rule)
		}
	}
	return fmt.Sprintf(`table ip lab {
	%s
	chain in {
		type filter hook input priority 0; policy drop
		ct state established,related accept
		iifname { "lan", "lo" } accept
	}
	chain through {
		type filter hook forward priority 0; policy drop
		ct state established,related accept
		ct status dnat accept
		iifname "lan" oifname "wan" %s
	}
	chain inward {
		type nat hook prerouting priority -100
		%s
	}
	chain outward {
		type nat hook postrouting priority 100
		oifname "wan" %s
	}
}`, n.more, n.out, dnat.String(), n.snat)
}
