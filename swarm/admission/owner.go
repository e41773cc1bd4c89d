package admission

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"pnode/planner/plan"
)

// Owner signs who may join a run: with the run's root key, which differs from the founder's identity and of which members
// need only the public half, or with the identity of a node that came by an owner's invite for owners. The zero
// value cannot sign.
type Owner struct {
	key ed25519.PrivateKey
	// issuer is the capability that makes an identity an owner, until its end; empty for the root key.
	issuer []byte
	until  time.Time
	root   ed25519.PublicKey
}

// OwnerBy returns the owner that a node is by its capability, in a run with this root key. The error of another node,
// and of one to which ownership was handed on too often, wraps ErrNoOwnerKey.
func OwnerBy(id Identity, capability []byte, root ed25519.PublicKey) (Owner, error) {
	c, err := DecodeCapability(capability)
	if err != nil {
		return Owner{}, err
	}
	if c.Role != RoleOwner || c.id != id.id {
		return Owner{}, ErrNoOwnerKey
	}
	if err := c.verify(Run{c.Run, root}, c.Expires.Add(-1), maxIssuers-1); err != nil {
		return Owner{}, fmt.Errorf("%w: %w", ErrNoOwnerKey, err)
	}
	key, err := id.key.Raw()
	if err != nil || len(key) != ed25519.PrivateKeySize {
		return Owner{}, fmt.Errorf("swarm: identity key: %d bytes: %w", len(key), err)
	}
	return Owner{key: key, issuer: capability, until: c.Expires, root: root}, nil
}

// CreateOwner makes DIR/owner.key, or reads it when it is there already.
func CreateOwner(dir string) (Owner, error) {
	o, err := LoadOwner(dir)
	if errors.Is(err, ErrNoOwnerKey) {
		var key ed25519.PrivateKey
		if key, err = createKey(dir, OwnerFile); err == nil {
			o = rootOwner(key)
		}
	}
	if err != nil {
		return Owner{}, fmt.Errorf("swarm: create owner key: %w", err)
	}
	return o, nil
}

// LoadOwner reads DIR/owner.key; without one the error is ErrNoOwnerKey.
func LoadOwner(dir string) (Owner, error) {
	key, err := loadKey(dir, OwnerFile)
	if errors.Is(err, fs.ErrNotExist) {
		return Owner{}, fmt.Errorf("swarm: load owner key from %s: %w", dir, ErrNoOwnerKey)
	}
	if err != nil {
		return Owner{}, fmt.Errorf("swarm: load owner key: %w", err)
	}
	return rootOwner(key), nil
}

func rootOwner(key ed25519.PrivateKey) Owner {
	return Owner{key: key, root: key.Public().(ed25519.PublicKey)}
}

// PublicKey returns the public half of the run's root key, which members check signatures with; nil for the zero Owner.
func (o Owner) PublicKey() ed25519.PublicKey { return o.root }

// InviteOptions says what an invite is good for.
type InviteOptions struct {
	Run plan.RunID
	// Addrs are this node's addresses with /p2p/, of which MaxInvitePlaces places fit.
	Addrs []string
	// Owner makes owners of the peers.
	Owner bool
	// TTL is how long it may be redeemed; 0 means 24 hours.
	TTL time.Duration
	// Uses is how many peers may redeem it; 0 means 1.
	Uses int
	// MemberTTL is how long the membership lasts; 0 means 365 days.
	MemberTTL time.Duration
}

func (o *InviteOptions) fill() error {
	if o.TTL == 0 {
		o.TTL = 24 * time.Hour
	}
	if o.Uses == 0 {
		o.Uses = 1
	}
	if o.MemberTTL == 0 {
		o.MemberTTL = 365 * 24 * time.Hour
	}
	switch {
	case o.TTL < time.Second || o.MemberTTL < o.TTL:
		return fmt.Errorf("swarm: invite: lifetimes %s (invite) and %s (membership): want a second or more, and the membership no shorter than the invite", o.TTL, o.MemberTTL)
	case o.Uses < 1 || o.Uses > maxUses:
		return fmt.Errorf("swarm: invite: %d uses, want 1 to %d", o.Uses, maxUses)
	}
	return CheckRun(o.Run)
}

// Invite makes an invite at time now. Doors let peers in by it once its grant is in the log.
func (o Owner) Invite(opt InviteOptions, now time.Time) (Invite, error) {
	if err := opt.fill(); err != nil {
		return Invite{}, err
	}
	v := Invite{Addrs: opt.Addrs, OwnerKey: o.PublicKey(), valid: true}
	if _, err := rand.Read(v.seed[:]); err != nil {
		return Invite{}, fmt.Errorf("swarm: invite: %w", err)
	}
	role := RoleMember
	if opt.Owner {
		role = RoleOwner
	}
	var err error
	v.Grant, err = o.grant(Grant{
		Run: opt.Run, Role: role, Uses: opt.Uses,
		RedeemBefore: now.Add(opt.TTL), Expires: now.Add(opt.MemberTTL),
	}, v.key())
	v.digest = Run{v.Grant.Run, v.OwnerKey}.digest()
	return v, err
}

// Capability gives a node its membership directly, without an invite: the creator's own.
func (o Owner) Capability(run plan.RunID, id Identity, ttl time.Duration, now time.Time) ([]byte, error) {
	if err := CheckRun(run); err != nil {
		return nil, err
	}
	_, bearer, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("swarm: capability: %w", err)
	}
	end := now.Add(ttl)
	g, err := o.grant(Grant{Run: run, Role: RoleOwner, Uses: 1, RedeemBefore: end, Expires: end}, bearer)
	if err != nil {
		return nil, err
	}
	return bind(g, bearer, id.id).Encode(), nil
}

// grant completes g with a random serial and the bearer key, and signs it.
func (o Owner) grant(g Grant, bearer ed25519.PrivateKey) (Grant, error) {
	if o.key == nil {
		return Grant{}, fmt.Errorf("swarm: sign grant: %w", ErrNoOwnerKey)
	}
	var serial [8]byte
	if _, err := rand.Read(serial[:]); err != nil {
		return Grant{}, fmt.Errorf("swarm: sign grant: %w", err)
	}
	g.Serial = Serial(binary.LittleEndian.Uint64(serial[:]))
	if !o.until.IsZero() && g.Expires.After(o.until) { // what an owner grants ends with its own membership
		g.Expires = o.until
		if g.RedeemBefore.After(o.until) {
			g.RedeemBefore = o.until
		}
	}
	g.issuer = o.issuer
	// Times travel in whole seconds.
	g.RedeemBefore, g.Expires = g.RedeemBefore.Truncate(time.Second), g.Expires.Truncate(time.Second)
	g.bearer = [ed25519.PublicKeySize]byte(bearer.Public().(ed25519.PublicKey))
	g.signature = [ed25519.SignatureSize]byte(ed25519.Sign(o.key, g.signed()))
	return g, nil
}
