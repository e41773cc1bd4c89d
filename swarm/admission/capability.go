package admission

import (
	"crypto/ed25519"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"pnode/planner/plan"
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
	// MaxCapabilityBytes bounds an encoded capability:
	// grant 1+1+2+8+8+8+32+(2+64)+64 = 190, peer 2+64, signature 64.
	MaxCapabilityBytes = 190 + 66 + 64

	grantVersion = 1
	// The prefixes keep a signature from meaning anything in another place.
	grantPrefix      = "pnode grant 1\x00"
	capabilityPrefix = "pnode capability 1\x00"
)

// Grant carries the owner's signature: whoever holds the bearer key may bind peers to it.
type Grant struct {
	Run    plan.RunID
	Role   Role
	Uses   int // how many peers
	Serial Serial
	// RedeemBefore ends the invite, Expires the membership that came of it.
	RedeemBefore time.Time
	Expires      time.Time

	bearer    [ed25519.PublicKeySize]byte
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
	return appendBytes(dst, g.Run)
}

func (g Grant) signed() []byte { return g.body([]byte(grantPrefix)) }

func (g Grant) append(dst []byte) []byte { return append(g.body(dst), g.signature[:]...) }

func decodeGrant(d *decoder) Grant {
	d.version(grantVersion, "the invite's grant")
	g := Grant{Role: Role(d.u8()), Uses: int(d.u16()), Serial: Serial(d.u64())}
	g.RedeemBefore = time.Unix(int64(d.u64()), 0)
	g.Expires = time.Unix(int64(d.u64()), 0)
	copy(g.bearer[:], d.take(len(g.bearer)))
	g.Run = plan.RunID(d.bytes(maxRunBytes))
	copy(g.signature[:], d.take(len(g.signature)))
	if d.err == nil && (g.Role < RoleMember || g.Role > RoleOwner || g.Uses < 1 || g.Uses > maxUses) {
		d.err = malformed("grant with %s and %d uses", g.Role, g.Uses)
	}
	if d.err == nil {
		d.err = CheckRun(g.Run)
	}
	return g
}

// Redeemable returns nil while the invite of this grant is open, else an error that wraps ErrInviteExpired.
func (g Grant) Redeemable(now time.Time) error {
	if now.Before(g.RedeemBefore) {
		return nil
	}
	return &plain{fmt.Sprintf("invite expired %s ago; ask for a new one with `pnode invite`", rough(now.Sub(g.RedeemBefore))), ErrInviteExpired}
}

// Capability binds one peer to a grant: the owner signed the bearer key, the bearer key
// signed the peer. Whoever knows the owner's public key can check both, alone and offline.
type Capability struct {
	Grant
	Peer plan.PeerID

	id        peer.ID
	signature [ed25519.SignatureSize]byte
}

// bind makes p's capability with the grant's bearer key.
func bind(g Grant, bearer ed25519.PrivateKey, p peer.ID) Capability {
	c := Capability{Grant: g, Peer: plan.PeerID(p.String()), id: p}
	c.signature = [ed25519.SignatureSize]byte(ed25519.Sign(bearer, c.signed()))
	return c
}

func (c Capability) signed() []byte {
	return append(c.Grant.append([]byte(capabilityPrefix)), c.id...)
}

// ID returns the peer's libp2p ID.
func (c Capability) ID() peer.ID { return c.id }

// Encode returns at most MaxCapabilityBytes bytes, which are public.
func (c Capability) Encode() []byte {
	return append(appendBytes(c.Grant.append(nil), string(c.id)), c.signature[:]...)
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

// Verify checks that the capability admits its peer to the run at time now: both signatures, the run, the
// end of the membership. It cannot know whether the invite was open when it was redeemed, nor by
// how many: see Uses in Question.
func (c Capability) Verify(run Run, now time.Time) error {
	if c.Run != run.ID {
		return fmt.Errorf("%w: the invite is for run %s, this is run %s", ErrWrongRun, c.Run, run.ID)
	}
	if len(run.OwnerKey) != ed25519.PublicKeySize || !ed25519.Verify(run.OwnerKey, c.Grant.signed(), c.Grant.signature[:]) {
		return ErrSignature
	}
	if !ed25519.Verify(c.bearer[:], c.signed(), c.signature[:]) {
		return fmt.Errorf("%w: the capability is not bound to peer %s", ErrSignature, c.Peer)
	}
	if !now.Before(c.Expires) {
		return fmt.Errorf("%w (ended %s ago)", ErrCapabilityExpired, rough(now.Sub(c.Expires)))
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

// rough formats a duration in its largest unit.
func rough(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
