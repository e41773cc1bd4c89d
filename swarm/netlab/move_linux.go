package netlab

import (
	"fmt"
	"net/netip"
	"slices"

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
