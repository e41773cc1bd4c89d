package netlab

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Renumber gives the host, or the NAT in front of it, another public IPv4 address in place of the one that it has. The old
// one is nobody's then. A NAT forgets its mappings with its address.
func (h *Host) Renumber() {
	h.space.t.Helper()
	at := h.space
	if h.gateway != nil {
		at = h.gateway
	}
	old := h.addr4
	h.addr4 = old.Next()
	net := netip.PrefixFrom(h.addr4, 24)
	at.ip(fmt.Sprintf("addr del %s/24 dev wan", old), fmt.Sprintf("addr add %s dev wan", net),
		fmt.Sprintf("route replace default via %s", net.Masked().Addr().Next()))
}

// Forget has the NAT in front of the host forget all mappings. The next ones have other ports.
func (h *Host) Forget() {
	h.space.t.Helper()
	h.gateway.nft("flush chain ip lab outward\nadd rule ip lab outward oifname \"wan\" masquerade fully-random\n")
	var err error
	entered := h.gateway.run(func() { err = flushConntrack() })
	if entered != nil || err != nil {
		h.space.t.Fatalf("netlab: flush the mappings of %s: %v, %v", h.Name, entered, err)
	}
}

// Remember has the NAT in front of the host forget what is quiet for these times, in whole seconds.
func (h *Host) Remember(udp, tcp time.Duration) {
	h.space.t.Helper()
	h.gateway.remember(udp, tcp)
}

// remember makes a router forget what is quiet for these times.
func (s *space) remember(udp, tcp time.Duration) {
	s.t.Helper()
	seconds := func(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }
	for name, value := range map[string]string{
		"udp_timeout": seconds(udp), "udp_timeout_stream": seconds(udp), "tcp_timeout_established": seconds(tcp), "tcp_loose": "0",
	} {
		s.sysctl("net/netfilter/nf_conntrack_"+name, value)
	}
}

// Detour has packets to a public host come over another interface than its own packets leave by, over IPv4. Each interface
// drops what goes the other way.
func (h *Host) Detour() {
	h.space.t.Helper()
	const back = "back"
	outer := "b" + h.outside
	h.internet.ip(fmt.Sprintf("link add %s type veth peer name %s netns %s", outer, back, h.space.name))
	h.space.sysctl("net/ipv4/conf/all/rp_filter", "0")
	for _, name := range []string{"wan", back} {
		h.space.sysctl("net/ipv4/conf/"+name+"/rp_filter", "0")
	}
	h.space.ip("link set " + back + " up")
	h.internet.ip("link set "+outer+" up", fmt.Sprintf("route replace %s/32 dev %s", h.addr4, outer))
	h.space.nft(`table ip detour {
	chain in {
		type filter hook input priority 0
		iifname "wan" drop
	}
	chain out {
		type filter hook output priority 0
		oifname "` + back + `" drop
	}
}`)
}

// flushConntrack drops all connections that the kernel tracks in this namespace.
func flushConntrack() error {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	const ctDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2
	// struct nlmsghdr, then struct nfgenmsg of any family.
	message := slices.Concat([]byte{20, 0, 0, 0, ctDelete & 0xff, ctDelete >> 8, unix.NLM_F_REQUEST | unix.NLM_F_ACK, 0}, make([]byte, 12))
	if err := unix.Sendto(s, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(s, answer, 0)
	if err != nil {
		return err
	}
	if n < 20 || answer[16]|answer[17]|answer[18]|answer[19] != 0 {
		return fmt.Errorf("netlink answers % x", answer[:n])
	}
	return nil
}
