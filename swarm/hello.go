package swarm

import (
	"encoding/binary"

	ma "github.com/multiformats/go-multiaddr"
)

// The greeting, /pnode/hello/1: the dialer sends a hello, the other side a reply.
const (
	helloVersion = 2
	// MaxHelloBytes bounds a hello: 1+16+(2+320)+2+16*(2+256) = 4,469.
	MaxHelloBytes = 8192
	// MaxReplyBytes bounds a reply: a hello and a refusal's detail.
	MaxReplyBytes  = MaxHelloBytes + 512
	maxHelloAddrs  = 16
	maxDetailBytes = 256
)

// instance is drawn when a swarm starts: another one under the same peer ID means that
// the node was restarted and its older connections are dead.
type instance [16]byte

// hello is who a node says it is. Every field but the capability is unproven.
type hello struct {
	Instance   instance
	Capability []byte // empty for a node without an invite
	Addrs      []ma.Multiaddr
}

func (h hello) append(dst []byte) []byte {
	dst = append(append(dst, helloVersion), h.Instance[:]...)
	dst = appendBytes(dst, h.Capability)
	return appendAddrs(dst, h.Addrs, maxHelloAddrs)
}

func decodeHello(b []byte) (hello, error) {
	if len(b) > MaxHelloBytes {
		return hello{}, malformed("hello of %d bytes, at most %d are accepted", len(b), MaxHelloBytes)
	}
	d := decoder{b: b}
	h := readHello(&d)
	return h, d.end()
}

func readHello(d *decoder) hello {
	d.version(helloVersion, "hello")
	var h hello
	copy(h.Instance[:], d.take(len(h.Instance)))
	h.Capability = d.bytes(MaxCapabilityBytes)
	h.Addrs = readAddrs(d, maxHelloAddrs)
	return h
}

// reply is code 0 with the other side's hello, or a refusal's code with its detail.
type reply struct {
	Code   byte
	Detail string
	Hello  hello
}

func (r reply) append(dst []byte) []byte {
	dst = append(dst, r.Code)
	if r.Code != 0 {
		return appendBytes(dst, r.Detail[:min(len(r.Detail), maxDetailBytes)])
	}
	return r.Hello.append(dst)
}

func decodeReply(b []byte) (reply, error) {
	if len(b) > MaxReplyBytes {
		return reply{}, malformed("reply of %d bytes, at most %d are accepted", len(b), MaxReplyBytes)
	}
	d := decoder{b: b}
	r := reply{Code: d.u8()}
	if r.Code != 0 {
		r.Detail = string(d.bytes(maxDetailBytes))
	} else {
		r.Hello = readHello(&d)
	}
	return r, d.end()
}

// appendAddrs writes at most limit addresses, leaving out those that are too long.
func appendAddrs(dst []byte, addrs []ma.Multiaddr, limit int) []byte {
	at := len(dst)
	dst = append(dst, 0, 0)
	n := 0
	for _, a := range addrs {
		if b := a.Bytes(); n < limit && len(b) <= maxAddrBytes {
			dst = appendBytes(dst, b)
			n++
		}
	}
	binary.LittleEndian.PutUint16(dst[at:], uint16(n))
	return dst
}

func readAddrs(d *decoder, limit int) []ma.Multiaddr {
	var addrs []ma.Multiaddr
	for range d.count(limit) {
		b := d.bytes(maxAddrBytes)
		if d.err != nil {
			return nil
		}
		a, err := ma.NewMultiaddrBytes(b)
		if err != nil {
			d.err = malformed("address: %v", err)
			return nil
		}
		addrs = append(addrs, a)
	}
	return addrs
}
