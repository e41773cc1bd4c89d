package admission

import (
	"encoding/binary"
	"errors"
	"slices"

	ma "github.com/multiformats/go-multiaddr"
)

// Members show each other three messages. The dialer sends a hello, the other side a reply
// (/pnode/hello/1), and a member asked for its peers sends records (/pnode/peers/1).
const (
	helloVersion = 2
	// MaxHelloBytes bounds a hello: 1+16+(2+320)+2+16*(2+256) = 4,469.
	MaxHelloBytes = 8192
	// MaxReplyBytes bounds a reply: a hello, or a refusal's code and detail.
	MaxReplyBytes  = MaxHelloBytes + 512
	maxHelloAddrs  = 16
	maxDetailBytes = 256

	// MaxRecords and MaxRecordsBytes bound one message of records; 512 records with 8 addresses
	// of some 60 bytes come to 420 KB.
	MaxRecords      = 512
	MaxRecordsBytes = 1 << 20
	maxRecordAddrs  = 8
)

// Instance is drawn when a swarm starts: another one under the same peer ID means that the node was restarted
// and its older connections are dead.
type Instance [16]byte

// Hello holds what a node says about itself. Every field but the capability is unproven.
type Hello struct {
	Instance   Instance
	Capability []byte // empty for a node without an invite
	Addrs      []ma.Multiaddr
}

// Append appends the encoded hello to dst.
func (h Hello) Append(dst []byte) []byte {
	dst = append(append(dst, helloVersion), h.Instance[:]...)
	dst = appendBytes(dst, h.Capability)
	return appendAddrs(dst, h.Addrs, maxHelloAddrs)
}

// DecodeHello reads what Append wrote.
func DecodeHello(b []byte) (Hello, error) {
	if len(b) > MaxHelloBytes {
		return Hello{}, malformed("hello of %d bytes, at most %d are accepted", len(b), MaxHelloBytes)
	}
	d := decoder{b: b}
	h := readHello(&d)
	return h, d.end()
}

func readHello(d *decoder) Hello {
	d.version(helloVersion, "the greeting")
	var h Hello
	copy(h.Instance[:], d.take(len(h.Instance)))
	h.Capability = d.bytes(MaxCapabilityBytes)
	h.Addrs = readAddrs(d, maxHelloAddrs)
	return h
}

// Reply answers a hello: with the other side's hello and code 0, or with a refusal's code and detail.
type Reply struct {
	Code   byte
	Detail string
	Hello  Hello
}

// Refusal makes the reply that tells a peer why it is refused; an error without a code goes as ErrRefused.
func Refusal(err error) Reply {
	i := slices.IndexFunc(refusals[:], func(r error) bool { return errors.Is(err, r) })
	return Reply{Code: byte(max(i, 0) + 1), Detail: err.Error()}
}

// Err returns the refusal that a reply carries, nil for none.
func (r Reply) Err() error {
	if r.Code == 0 {
		return nil
	}
	return refusalFrom(r.Code, r.Detail)
}

// Append appends the encoded reply to dst.
func (r Reply) Append(dst []byte) []byte {
	dst = append(dst, r.Code)
	if r.Code != 0 {
		return appendBytes(dst, r.Detail[:min(len(r.Detail), maxDetailBytes)])
	}
	return r.Hello.Append(dst)
}

// DecodeReply reads what Append wrote.
func DecodeReply(b []byte) (Reply, error) {
	if len(b) > MaxReplyBytes {
		return Reply{}, malformed("reply of %d bytes, at most %d are accepted", len(b), MaxReplyBytes)
	}
	d := decoder{b: b}
	r := Reply{Code: d.u8()}
	if r.Code != 0 {
		r.Detail = string(d.bytes(maxDetailBytes))
	} else {
		r.Hello = readHello(&d)
	}
	return r, d.end()
}

// Record holds what a member knows about another. The capability proves the membership; the addresses
// are hearsay, which a dial checks.
type Record struct {
	Capability []byte
	Addrs      []ma.Multiaddr
}

// AppendRecords appends as many of the records to dst as fit MaxRecords and MaxRecordsBytes.
func AppendRecords(dst []byte, records []Record) []byte {
	at := len(dst)
	dst = append(dst, 0, 0)
	n := 0
	for _, r := range records {
		next := appendAddrs(appendBytes(dst, r.Capability), r.Addrs, maxRecordAddrs)
		if len(next)-at > MaxRecordsBytes || n == MaxRecords {
			break
		}
		dst = next
		n++
	}
	binary.LittleEndian.PutUint16(dst[at:], uint16(n))
	return dst
}

// DecodeRecords reads what AppendRecords wrote.
func DecodeRecords(b []byte) ([]Record, error) {
	if len(b) > MaxRecordsBytes {
		return nil, malformed("peer list of %d bytes, at most %d are accepted", len(b), MaxRecordsBytes)
	}
	d := decoder{b: b}
	var out []Record
	for range d.count(MaxRecords) {
		r := Record{Capability: d.bytes(MaxCapabilityBytes), Addrs: readAddrs(&d, maxRecordAddrs)}
		if d.err != nil {
			return nil, d.err
		}
		out = append(out, r)
	}
	return out, d.end()
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

// readAddrs leaves out addresses that nobody may use: one of them must not take the others with it.
func readAddrs(d *decoder, limit int) []ma.Multiaddr {
	var addrs []ma.Multiaddr
	for range d.count(limit) {
		b := d.take(int(d.u16()))
		if d.err != nil {
			return nil
		}
		if a, err := ma.NewMultiaddrBytes(b); err == nil && len(b) <= maxAddrBytes && checkNames(a) == nil {
			addrs = append(addrs, a)
		}
	}
	return addrs
}
