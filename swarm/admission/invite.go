package admission

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"time"
)

// Bounds of an invite.
const (
	MaxInviteAddrs = 8
	// MaxInviteChars bounds the text form; 8 addresses of 256 bytes come to 3,400.
	MaxInviteChars = 4096

	invitePrefix  = "pnode1-"
	inviteVersion = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Invite tells a joining node where the run is and gives it the right to bind Uses peers to it. It holds a
// private key, the bearer key, so that it is a secret until redeemed. An invite made of a bare
// address carries no right: Redeem answers ErrNeedsInvite.
type Invite struct {
	// Addrs are multiaddrs with /p2p/.
	Addrs    []string
	OwnerKey ed25519.PublicKey
	Grant    Grant

	bearer ed25519.PrivateKey
}

// String returns the text form: `pnode1-` and base64url without padding.
func (v Invite) String() string {
	if v.bearer == nil {
		return strings.Join(v.Addrs, " ")
	}
	b := v.body()
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return invitePrefix + base64.RawURLEncoding.EncodeToString(b)
}

// body returns the encoded invite without its checksum.
func (v Invite) body() []byte {
	b := append([]byte{inviteVersion}, v.OwnerKey...)
	b = append(b, v.bearer.Seed()...)
	b = appendBytes(b, v.Grant.append(nil))
	b = append(b, byte(len(v.Addrs)))
	for _, a := range v.Addrs {
		b = appendBytes(b, a)
	}
	return b
}

// ParseInvite reads an invite's text form. A multiaddr is accepted too, as an invite
// without a right: a node that is in the run already comes back by it.
func ParseInvite(s string) (Invite, error) {
	s = strings.TrimSpace(s)
	if strings.HasPrefix(s, "/") {
		if err := checkAddr(s); err != nil {
			return Invite{}, &plain{fmt.Sprintf("%q is no address of a node: want one that ends in /p2p/PEER, as `pnode status` shows them, or an invite", s), err}
		}
		return Invite{Addrs: []string{s}}, nil
	}
	text, ok := strings.CutPrefix(s, invitePrefix)
	if !ok || len(s) > MaxInviteChars {
		return Invite{}, &plain{fmt.Sprintf("%.40q is no invite: one begins with %q and has at most %d characters", s, invitePrefix, MaxInviteChars), ErrMalformed}
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	damaged := &plain{"the invite is damaged: copy the whole text again", ErrMalformed}
	if err != nil || len(raw) < 4 {
		return Invite{}, damaged
	}
	body := raw[:len(raw)-4]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(raw[len(body):]) {
		return Invite{}, damaged
	}
	v, err := decodeInvite(body)
	if err != nil { // its checksum holds, so that another program wrote it
		return Invite{}, &plain{fmt.Sprintf("this program cannot read the invite (%v): use the same release of pnode as the node that made it", err), err}
	}
	return v, nil
}

func decodeInvite(body []byte) (Invite, error) {
	d := decoder{b: body}
	d.version(inviteVersion, "the invite")
	v := Invite{OwnerKey: bytes.Clone(d.take(ed25519.PublicKeySize))}
	seed := d.take(ed25519.SeedSize)
	inner := decoder{b: d.bytes(MaxCapabilityBytes), err: d.err}
	v.Grant = decodeGrant(&inner)
	if err := inner.end(); err != nil {
		return Invite{}, err
	}
	n := int(d.u8())
	if d.err == nil && n > MaxInviteAddrs {
		return Invite{}, malformed("%d addresses, at most %d are accepted", n, MaxInviteAddrs)
	}
	for range n {
		a := string(d.bytes(maxAddrBytes))
		if d.err == nil {
			d.err = checkAddr(a)
		}
		v.Addrs = append(v.Addrs, a)
	}
	if err := d.end(); err != nil {
		return Invite{}, err
	}
	v.bearer = ed25519.NewKeyFromSeed(seed)
	return v, nil
}

// Redeem binds id to the invite and returns id's capability, which the caller keeps in its
// data folder. It needs no network; the members check the result, and with it how often
// the invite was redeemed.
func (v Invite) Redeem(id Identity, now time.Time) ([]byte, error) {
	if v.bearer == nil {
		return nil, fmt.Errorf("swarm: redeem invite: %w", ErrNeedsInvite)
	}
	if err := v.Grant.Redeemable(now); err != nil {
		return nil, fmt.Errorf("swarm: redeem invite: %w", err)
	}
	c := bind(v.Grant, v.bearer, id.id)
	if err := c.Verify(Run{v.Grant.Run, v.OwnerKey}, now); err != nil {
		return nil, fmt.Errorf("swarm: redeem invite: %w", err)
	}
	return c.Encode(), nil
}
