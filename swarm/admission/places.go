package admission

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strconv"

	ma "github.com/multiformats/go-multiaddr"
)

// An invite names places, where its contact listens: a tag, an IP address or a DNS name (its length in front), and a port. The
// tag adds the kind of address to the kind of listener. Any other multiaddr, such as a relay's, has the tag
// placeOther and its length in front.
const (
	placeOther = 0
	placeName  = 1
	placeIPv4  = 4
	placeIPv6  = 6

	// Listening: QUIC and TCP, one of them, or a WebSocket over TLS.
	placeBoth = 0
	placeQUIC = 8
	placeTCP  = 16
	placeWSS  = 24
)

// suffixes names the protocols of multiaddrs before and after the port.
var suffixes = []struct {
	tag           byte
	before, after string
}{
	{placeQUIC, "/udp/", "/quic-v1"}, {placeTCP, "/tcp/", ""}, {placeWSS, "/tcp/", "/tls/ws"},
}

// placesOf encodes the first MaxInvitePlaces places of addresses, each once, in their order. QUIC and TCP of one port are
// one place.
func placesOf(addrs []ma.Multiaddr) [][]byte {
	var places [][]byte
	for _, a := range addrs {
		p := placeOf(a)
		known := p == nil
		for i, q := range places {
			switch same := p != nil && bytes.Equal(p[1:], q[1:]); {
			case same && (p[0] == q[0] || isBoth(q[0]) && q[0] == p[0]&7 && !isWSS(p[0])):
				known = true
			case same && p[0]^q[0] == placeQUIC^placeTCP:
				places[i][0] &= 7
				known = true
			}
		}
		if len(places) < MaxInvitePlaces && !known {
			places = append(places, p)
		}
	}
	return places
}

func isBoth(tag byte) bool { return tag != placeOther && tag&^7 == placeBoth }
func isWSS(tag byte) bool  { return tag&^7 == placeWSS }

// placeOf encodes an address, nil if it is too long.
func placeOf(a ma.Multiaddr) []byte {
	for _, s := range suffixes {
		if host, port, ok := splitAddr(a, s.before); ok && makeAddr(host, s.before, port, s.after).Equal(a) {
			return append([]byte{s.tag + host[0]}, binary.BigEndian.AppendUint16(host[1:len(host):len(host)], port)...)
		}
	}
	b := a.Bytes()
	if len(b) > maxAddrBytes-1 {
		return nil
	}
	return append([]byte{placeOther, byte(len(b))}, b...)
}

// splitAddr returns the host of an address, its tag in front, and the port after it; false for none of an invite.
func splitAddr(a ma.Multiaddr, before string) (host []byte, port uint16, ok bool) {
	if len(a) < 2 || "/"+a[1].Protocol().Name+"/" != before {
		return nil, 0, false
	}
	number, err := strconv.ParseUint(a[1].Value(), 10, 16)
	if err != nil {
		return nil, 0, false
	}
	switch raw := a[0].RawValue(); a[0].Protocol().Code {
	case ma.P_IP4:
		host = append([]byte{placeIPv4}, raw...)
	case ma.P_IP6:
		host = append([]byte{placeIPv6}, raw...)
	case ma.P_DNS:
		if len(raw) > 255 {
			return nil, 0, false
		}
		host = append([]byte{placeName, byte(len(raw))}, raw...)
	default:
		return nil, 0, false
	}
	return host, uint16(number), true
}

// makeAddr makes the address of a host as splitAddr returned it; nil for one that is none.
func makeAddr(host []byte, before string, port uint16, after string) ma.Multiaddr {
	text := ""
	switch host[0] {
	case placeName:
		text = "/dns/" + string(host[2:])
	default:
		ip, _ := netip.AddrFromSlice(host[1:])
		text = "/ip6/" + ip.String()
		if ip.Is4() {
			text = "/ip4/" + ip.String()
		}
	}
	a, err := ma.NewMultiaddr(text + before + strconv.Itoa(int(port)) + after)
	if err != nil {
		return nil
	}
	return a
}

// readPlace reads what placesOf wrote.
func readPlace(d *decoder) []ma.Multiaddr {
	tag := d.u8()
	if tag == placeOther {
		a, err := ma.NewMultiaddrBytes(d.take(int(d.u8())))
		if err != nil && d.err == nil {
			d.err = malformed("address: %v", err)
		}
		if d.err == nil {
			d.err = checkNames(a)
		}
		if d.err != nil {
			return nil
		}
		return []ma.Multiaddr{a}
	}
	host := []byte{tag & 7}
	switch tag & 7 {
	case placeName:
		n := d.u8()
		host = append(append(host, n), d.take(int(n))...)
	case placeIPv4:
		host = append(host, d.take(4)...)
	case placeIPv6:
		host = append(host, d.take(16)...)
	default:
		if d.err == nil {
			d.err = malformed("address of kind %d", tag)
		}
	}
	b := d.take(2)
	if d.err != nil {
		return nil
	}
	var addrs []ma.Multiaddr
	for _, s := range suffixes {
		if s.tag != tag&^7 && (!isBoth(tag) || s.tag == placeWSS) {
			continue
		}
		a := makeAddr(host, s.before, binary.BigEndian.Uint16(b), s.after)
		if a == nil {
			d.err = malformed("address of kind %d", tag)
			return nil
		}
		if d.err = checkNames(a); d.err != nil {
			return nil
		}
		addrs = append(addrs, a)
	}
	if len(addrs) == 0 {
		d.err = malformed("address of kind %d", tag)
	}
	return addrs
}

// FirstPlaces returns the addresses of the first n places that an invite would name, or of the places of the first named
// addresses and one more, whichever are more.
func FirstPlaces(addrs []ma.Multiaddr, n, named int) []ma.Multiaddr {
	if more := len(placesOf(addrs[:named])); more > 0 {
		n = max(n, more+1)
	}
	places := placesOf(addrs)
	places = places[:min(n, len(places))]
	var first []ma.Multiaddr
	for _, p := range places {
		d := decoder{b: p}
		first = append(first, readPlace(&d)...)
	}
	return first
}
