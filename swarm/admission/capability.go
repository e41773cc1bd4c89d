package admission

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"pnode/planner/plan"
	"pnode/swarm/bearer"
)

// Role says what a capability lets its holder be.
type Role uint8

// Roles. Both take full part in the run; the owner's names the creator's node.
const (
	RoleMember Role = 1
	RoleOwner  Role = 2
)

// String returns the role's name.
func (r Role) String() string {
	switch r {
	case RoleMember:
		return "member"
	case RoleOwner:
		return "owner"
	}
	return fmt.Sprintf("role(%d)", uint8(r))
}

// Serial names one grant: the unit of counting uses and of revocation.
type Serial uint64

// Bounds of what is signed.
const (
	maxRunBytes  = 64
	maxPeerBytes = 64
	maxUses      = 1024
	// A capability without its issuer's: grant 1+1+2+8+8+8+32+(2+64)+2+64 = 192, peer 2+64, signature 64.
	bareCapabilityBytes = 192 + 66 + 64
	// maxIssuers bounds how far ownership is handed on: the root key's owner, who makes an owner, and so on.
	maxIssuers = 3
	// MaxCapabilityBytes bounds an encoded capability with those of its issuers.
	MaxCapabilityBytes = (1 + maxIssuers) * bareCapabilityBytes

	grantVersion = 2
	// The prefix keeps a signature from meaning anything in another place.
	grantPrefix = "pnode grant 2\x00"
)

// Grant carries an owner's signature: whoever holds the bearer key may bind peers to it.
type Grant struct {
	Run    plan.RunID
	Role   Role
	Uses   int // how many peers
	Serial Serial
	// RedeemBefore ends the invite, Expires the membership that came of it.
	RedeemBefore time.Time
	Expires      time.Time

	bearer [ed25519.PublicKeySize]byte
	// issuer is the encoded capability of the owner whose identity signed; empty for the run's root key.
	issuer    []byte
	signature [ed25519.SignatureSize]byte
}

// body appends the grant without its signature to dst.
func (g Grant) body(dst []byte) []byte {
	dst = append(dst, grantVersion, byte(g.Role))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(g.Uses))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(g.Serial))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(g.RedeemBefore.Unix()))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(g.Expires.Unix()))
	dst = append(dst, g.bearer[:]...)
	return appendBytes(appendBytes(dst, g.Run), g.issuer)
}

func (g Grant) signed() []byte { return g.body([]byte(grantPrefix)) }

// Encode returns the signed grant, which is public.
func (g Grant) Encode() []byte { return append(g.body(nil), g.signature[:]...) }

// Bearer returns the public key whose private half binds peers to the grant.
func (g Grant) Bearer() []byte { return bytes.Clone(g.bearer[:]) }

// DecodeGrant reads what Encode wrote. It checks the form, not the signatures.
func DecodeGrant(b []byte) (Grant, error) {
	d := decoder{b: b}
	g := decodeGrant(&d)
	return g, d.end()
}

func decodeGrant(d *decoder) Grant {
	d.version(grantVersion, "the invite's grant")
	g := Grant{Role: Role(d.u8()), Uses: int(d.u16()), Serial: Serial(d.u64())}
	g.RedeemBefore = time.Unix(int64(d.u64()), 0)
	g.Expires = time.Unix(int64(d.u64()), 0)
	copy(g.bearer[:], d.take(len(g.bearer)))
	g.Run = plan.RunID(d.bytes(maxRunBytes))
	g.issuer = bytes.Clone(d.bytes(maxIssuers * bareCapabilityBytes))
	copy(g.signature[:], d.take(len(g.signature)))
	if d.err == nil && (g.Role < RoleMember || g.Role > RoleOwner || g.Uses < 1 || g.Uses > maxUses) {
		d.err = malformed("grant with %s and %d uses", g.Role, g.Uses)
	}
	if d.err == nil {
		d.err = CheckRun(g.Run)
	}
	return g
}

// Verify checks that an owner of the run signed the grant: with the root key, or with the identity that an owner's
// capability is for, whose grant is checked in the same way. The signature by the root key is checked first.
func (g Grant) Verify(run Run, now time.Time) error { return g.verify(run, now, maxIssuers) }

// verify follows the issuers, of whom there may be so many.
func (g Grant) verify(run Run, now time.Time, issuers int) error {
	if g.Run != run.ID {
		return fmt.Errorf("%w: the invite is for run %s, this is run %s", ErrWrongRun, g.Run, run.ID)
	}
	key := run.OwnerKey
	if len(g.issuer) > 0 && issuers == 0 {
		return fmt.Errorf("%w: ownership was handed on more than %d times", ErrSignature, maxIssuers)
	}
	if len(g.issuer) > 0 {
		issuer, err := DecodeCapability(g.issuer)
		if err != nil {
			return err
		}
		if err := issuer.verify(run, now, issuers-1); err != nil {
			return fmt.Errorf("the owner that made the invite: %w", err)
		}
		if issuer.Role != RoleOwner {
			return fmt.Errorf("%w: the invite was made by %s, who is none", ErrSignature, issuer.Peer)
		}
		if key, err = publicKey(issuer.id); err != nil {
			return err
		}
	}
	if len(key) != ed25519.PublicKeySize || !ed25519.Verify(key, g.signed(), g.signature[:]) {
		return ErrSignature
	}
	return nil
}

// Redeemable returns nil while the invite of this grant is open, else an error that wraps ErrInviteExpired.
func (g Grant) Redeemable(now time.Time) error {
	if now.Before(g.RedeemBefore) {
		return nil
	}
	return &plain{fmt.Sprintf("invite expired %s ago; ask for a new one with `pnode invite`", plan.Duration(now.Sub(g.RedeemBefore))), ErrInviteExpired}
}

// Capability binds one peer to a grant: an owner signed the bearer key, the bearer key
// signed the peer. Whoever knows the root owner's public key can check both, alone and offline.
type Capability struct {
	Grant
	Peer plan.PeerID

	id        peer.ID
	signature [ed25519.SignatureSize]byte
}

// bind makes p's capability with the grant's bearer key.
func bind(g Grant, key ed25519.PrivateKey, p peer.ID) Capability {
	c := Capability{Grant: g, Peer: plan.PeerID(p.String()), id: p}
	c.signature = [ed25519.SignatureSize]byte(bearer.Bind(key, g.Encode(), c.Peer))
	return c
}

// Signature returns the bearer key's, which binds the peer to the grant.
func (c Capability) Signature() []byte { return bytes.Clone(c.signature[:]) }

// ID returns the peer's libp2p ID.
func (c Capability) ID() peer.ID { return c.id }

// Encode returns at most MaxCapabilityBytes bytes, which are public.
func (c Capability) Encode() []byte {
	return append(appendBytes(c.Grant.Encode(), string(c.id)), c.signature[:]...)
}

// DecodeCapability reads what Encode wrote. It checks the form, not the signatures.
func DecodeCapability(b []byte) (Capability, error) {
	if len(b) > MaxCapabilityBytes {
		return Capability{}, malformed("capability of %d bytes, at most %d are accepted", len(b), MaxCapabilityBytes)
	}
	d := decoder{b: b}
	c := Capability{Grant: decodeGrant(&d)}
	raw := d.bytes(maxPeerBytes)
	copy(c.signature[:], d.take(len(c.signature)))
	if err := d.end(); err != nil {
		return Capability{}, err
	}
	p, err := peer.IDFromBytes(raw)
	if err != nil {
		return Capability{}, malformed("capability for no valid peer ID: %v", err)
	}
	c.id, c.Peer = p, plan.PeerID(p.String())
	return c, nil
}

// Verify checks that the capability admits its peer to the run at time now: all signatures, the run, the
// end of the membership. It cannot know whether the invite was open when it was redeemed, nor by
// how many: see Admit in Question.
func (c Capability) Verify(run Run, now time.Time) error { return c.verify(run, now, maxIssuers) }

func (c Capability) verify(run Run, now time.Time, issuers int) error {
	if err := c.Grant.verify(run, now, issuers); err != nil {
		return err
	}
	if !bearer.Bound(c.bearer[:], c.Grant.Encode(), c.Peer, c.signature[:]) {
		return fmt.Errorf("%w: the capability is not bound to peer %s", ErrSignature, c.Peer)
	}
	if !now.Before(c.Expires) {
		return fmt.Errorf("%w (ended %s ago)", ErrCapabilityExpired, plan.Duration(now.Sub(c.Expires)))
	}
	return nil
}

// CheckRun accepts run IDs that are safe in topics, service names and logs.
func CheckRun(run plan.RunID) error {
	if len(run) == 0 || len(run) > maxRunBytes {
		return malformed("run ID of %d bytes, want 1 to %d", len(run), maxRunBytes)
	}
	for _, c := range []byte(run) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
		default:
			return malformed("run ID %q, want letters, digits, - and _", string(run))
		}
	}
	return nil
}
