package admission

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"

	"pnode/swarm/version"
)

// Bounds of an invite.
const (
	// MaxInvitePlaces bounds the addresses of an invite; QUIC and TCP of one port count once.
	MaxInvitePlaces = 4
	// MaxInviteChars bounds the text form; one IPv4 address comes to 102.
	MaxInviteChars = 1024

	inviteVersion = 1
	seedBytes     = 16
	digestBytes   = 12
	checksumBytes = 3
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Invite tells a joining node where a member of the run is and gives it the right to bind as many peers to the run as
// its grant says. The text holds a secret, from which the bearer key is made, the contact, and a digest of the run;
// the run and the grant come from the contact, by an Offer. An invite made of a bare address carries no right.
type Invite struct {
	// Addrs are multiaddrs of one peer, with /p2p/.
	Addrs []string
	// OwnerKey and Grant are known to whoever made the invite, or has accepted an offer.
	OwnerKey ed25519.PublicKey
	Grant    Grant

	valid  bool // not a bare address
	seed   [seedBytes]byte
	digest [digestBytes]byte
}

// Entitles reports whether the invite gives a right to come in: a bare address gives none.
func (v Invite) Entitles() bool { return v.valid }

// key returns the bearer key.
func (v Invite) key() ed25519.PrivateKey {
	seed := sha256.Sum256(append([]byte("pnode invite\x00"), v.seed[:]...))
	return ed25519.NewKeyFromSeed(seed[:])
}

// Bearer returns the bearer key's public half, by which the log knows the invite.
func (v Invite) Bearer() []byte { return v.key().Public().(ed25519.PublicKey) }

// digest names a run and its root key in an invite: 96 bits, which nobody else's run matches.
func (r Run) digest() [digestBytes]byte {
	b := appendBytes([]byte("pnode run\x00"), r.ID)
	sum := sha256.Sum256(append(b, r.OwnerKey...))
	return [digestBytes]byte(sum[:digestBytes])
}

// For reports whether the invite is for a run. A bare address is for any.
func (v Invite) For(r Run) bool { return !v.valid || v.digest == r.digest() }

// String returns the text form: `pnode1-` and base64url without padding of
//
//	secret [16], digest of the run [12], key of the contact [32], number of places [1], places, checksum [3]
func (v Invite) String() string {
	if !v.valid {
		return strings.Join(v.Addrs, " ")
	}
	b, err := v.body()
	if err != nil {
		return "" // ParseInvite and Owner.Invite have seen to it
	}
	sum := binary.LittleEndian.AppendUint32(nil, crc32.Checksum(b, castagnoli))
	return fmt.Sprintf("pnode%d-%s", inviteVersion, base64.RawURLEncoding.EncodeToString(append(b, sum[:checksumBytes]...)))
}

// body returns the encoded invite without its checksum.
func (v Invite) body() ([]byte, error) {
	infos, err := ParseAddrs(v.Addrs)
	if err != nil {
		return nil, err
	}
	if len(infos) != 1 {
		return nil, malformed("addresses of %d peers, want one", len(infos))
	}
	key, err := publicKey(infos[0].ID)
	if err != nil {
		return nil, err
	}
	places := placesOf(infos[0].Addrs)
	b := append(append(append([]byte{}, v.seed[:]...), v.digest[:]...), key...)
	b = append(b, byte(len(places)))
	for _, p := range places {
		b = append(b, p...)
	}
	return b, nil
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
	var written int
	// What is no invite may be a secret that was copied by mistake: its beginning tells which text it is.
	head, text, ok := strings.Cut(s, "-")
	if n, err := fmt.Sscanf(head, "pnode%d", &written); !ok || n != 1 || err != nil || head != fmt.Sprintf("pnode%d", written) || len(s) > MaxInviteChars {
		return Invite{}, &plain{fmt.Sprintf("%.8q is no invite: one begins with \"pnode%d-\" and has at most %d characters; copy the whole line that `pnode invite` prints", s, inviteVersion, MaxInviteChars), ErrMalformed}
	}
	if written != inviteVersion {
		return Invite{}, fmt.Errorf("%w: %w", ErrMalformed, version.Unknown("the invite", written, inviteVersion))
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	damaged := &plain{"the invite is damaged: copy the whole text again", ErrMalformed}
	if err != nil || len(raw) < seedBytes+digestBytes+ed25519.PublicKeySize+checksumBytes {
		return Invite{}, damaged
	}
	body := raw[:len(raw)-checksumBytes]
	sum := binary.LittleEndian.AppendUint32(nil, crc32.Checksum(body, castagnoli))
	if string(sum[:checksumBytes]) != string(raw[len(body):]) {
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
	v := Invite{valid: true}
	copy(v.seed[:], d.take(seedBytes))
	copy(v.digest[:], d.take(digestBytes))
	key := d.take(ed25519.PublicKeySize)
	n := int(d.u8())
	if d.err == nil && (n < 1 || n > MaxInvitePlaces) {
		return Invite{}, malformed("%d addresses, want 1 to %d", n, MaxInvitePlaces)
	}
	var id peer.ID
	if d.err == nil {
		public, err := crypto.UnmarshalEd25519PublicKey(key)
		if err == nil {
			id, err = peer.IDFromPublicKey(public)
		}
		if err != nil {
			return Invite{}, malformed("key of the contact: %v", err)
		}
	}
	for range n {
		for _, a := range readPlace(&d) {
			v.Addrs = append(v.Addrs, a.String()+"/p2p/"+id.String())
		}
	}
	if err := d.end(); err != nil {
		return Invite{}, err
	}
	if again, err := v.body(); err != nil || string(again) != string(body) {
		return Invite{}, malformed("its addresses are not written as they should be")
	}
	return v, nil
}

// Redeem binds id to the invite, whose offer was accepted, and returns id's capability, which the caller keeps in its
// data folder. The members check the result, and with it how often the invite was redeemed and whether it is still open:
// the clock of a newcomer may be wrong.
func (v Invite) Redeem(id Identity, now time.Time) ([]byte, error) {
	if !v.valid {
		return nil, fmt.Errorf("swarm: redeem invite: %w", ErrNeedsInvite)
	}
	c := bind(v.Grant, v.key(), id.id)
	if err := c.Verify(Run{v.Grant.Run, v.OwnerKey}, now); err != nil {
		return nil, fmt.Errorf("swarm: redeem invite: %w", err)
	}
	return c.Encode(), nil
}
