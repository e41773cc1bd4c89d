package admission

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// A place is where an invite's contact listens: a tag, then an IPv4 or IPv6 address and a port, which stand for QUIC and
// TCP, or another multiaddr with its length in front, such as a relay's.
const (
	placeOther = 0
	placeIPv4  = 4
	placeIPv6  = 6
)

// placesOf encodes the first MaxInvitePlaces places of addresses, each once, in their order.
func placesOf(addrs []ma.Multiaddr) [][]byte {
	var places [][]byte
	for _, a := range addrs {
		p := placeOf(a)
		known := slices.ContainsFunc(places, func(q []byte) bool { return string(q) == string(p) })
		if len(places) < MaxInvitePlaces && !known && p != nil {
			places = append(places, p)
		}
	}
	return places
}

// placeOf encodes an address, nil if it is too long.
func placeOf(a ma.Multiaddr) []byte {
	if at, ok := socketOf(a); ok {
		ip := at.Addr().AsSlice()
		tag := byte(placeIPv4)
		if at.Addr().Is6() {
			tag = placeIPv6
		}
		return binary.BigEndian.AppendUint16(append([]byte{tag}, ip...), at.Port())
	}
	b := a.Bytes()
	if len(b) > maxAddrBytes-1 {
		return nil
	}
	return append([]byte{placeOther, byte(len(b))}, b...)
}

// socketOf returns the IP address and port of /ip4/A/udp/P/quic-v1 or /ip4/A/tcp/P, and the same of IPv6.
func socketOf(a ma.Multiaddr) (netip.AddrPort, bool) {
	na, err := manet.ToNetAddr(a)
	if err != nil {
		if na, err = manet.ToNetAddr(a.Decapsulate(ma.StringCast("/quic-v1"))); err != nil {
			return netip.AddrPort{}, false
		}
	}
	at, err := netip.ParseAddrPort(na.String())
	if err != nil || at.Addr().Zone() != "" || at.Addr().Is4In6() {
		return netip.AddrPort{}, false
	}
	for _, same := range addrsAt(at) {
		if same.Equal(a) {
			return at, true
		}
	}
	return netip.AddrPort{}, false
}

// addrsAt returns the addresses that a place stands for.
func addrsAt(at netip.AddrPort) []ma.Multiaddr {
	udp, err := manet.FromNetAddr(net.UDPAddrFromAddrPort(at))
	tcp, err2 := manet.FromNetAddr(net.TCPAddrFromAddrPort(at))
	if err != nil || err2 != nil {
		return nil
	}
	return []ma.Multiaddr{udp.Encapsulate(ma.StringCast("/quic-v1")), tcp}
}

// readPlace reads what placeOf wrote.
func readPlace(d *decoder) []ma.Multiaddr {
	size := map[uint8]int{placeIPv4: 4, placeIPv6: 16}
	switch tag := d.u8(); {
	case d.err != nil:
		return nil
	case size[tag] > 0:
		ip, ok := netip.AddrFromSlice(d.take(size[tag]))
		port := d.take(2)
		if d.err != nil || !ok {
			return nil
		}
		return addrsAt(netip.AddrPortFrom(ip, binary.BigEndian.Uint16(port)))
	case tag == placeOther:
		a, err := ma.NewMultiaddrBytes(d.take(int(d.u8())))
		if err != nil && d.err == nil {
			d.err = malformed("address: %v", err)
		}
		if d.err != nil {
			return nil
		}
		return []ma.Multiaddr{a}
	default:
		d.err = malformed("address of kind %d", tag)
		return nil
	}
}

// FirstPlaces returns the addresses of the first n places that an invite would name.
func FirstPlaces(addrs []ma.Multiaddr, n int) []ma.Multiaddr {
	places := placesOf(addrs)
	places = places[:min(n, len(places))]
	var first []ma.Multiaddr
	for _, a := range addrs {
		p := placeOf(a)
		if slices.ContainsFunc(places, func(q []byte) bool { return string(q) == string(p) }) {
			first = append(first, a)
		}
	}
	return first
}
