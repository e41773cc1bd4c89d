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

// Owner holds the key that decides who may join a run. It differs from the creator's identity, and members
// need only its public half. The zero value cannot sign.
type Owner struct{ key ed25519.PrivateKey }

// CreateOwner makes DIR/owner.key, or reads it when it is there already.
func CreateOwner(dir string) (Owner, error) {
	o, err := LoadOwner(dir)
	if errors.Is(err, ErrNoOwnerKey) {
		o.key, err = createKey(dir, ownerFile)
	}
	if err != nil {
		return Owner{}, fmt.Errorf("swarm: create owner key: %w", err)
	}
	return o, nil
}

// LoadOwner reads DIR/owner.key; without one the error is ErrNoOwnerKey.
func LoadOwner(dir string) (Owner, error) {
	key, err := loadKey(dir, ownerFile)
	if errors.Is(err, fs.ErrNotExist) {
		return Owner{}, fmt.Errorf("swarm: load owner key from %s: %w", dir, ErrNoOwnerKey)
	}
	if err != nil {
		return Owner{}, fmt.Errorf("swarm: load owner key: %w", err)
	}
	return Owner{key: key}, nil
}

// PublicKey returns the key that members check signatures with; nil for the zero Owner.
func (o Owner) PublicKey() ed25519.PublicKey {
	if o.key == nil {
		return nil
	}
	return o.key.Public().(ed25519.PublicKey)
}

// InviteOptions says what an invite is good for.
type InviteOptions struct {
	Run plan.RunID
	// Addrs are bootstrap addresses with /p2p/, at most MaxInviteAddrs.
	Addrs []string
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
	case len(o.Addrs) > MaxInviteAddrs:
		return fmt.Errorf("swarm: invite: %d addresses, at most %d fit", len(o.Addrs), MaxInviteAddrs)
	}
	return CheckRun(o.Run)
}

// Invite makes an invite at time now. It needs no network: members check the redeemed capability against
// the owner's public key.
func (o Owner) Invite(opt InviteOptions, now time.Time) (Invite, error) {
	if err := opt.fill(); err != nil {
		return Invite{}, err
	}
	_, bearer, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return Invite{}, fmt.Errorf("swarm: invite: %w", err)
	}
	g, err := o.grant(Grant{
		Run: opt.Run, Role: RoleMember, Uses: opt.Uses,
		RedeemBefore: now.Add(opt.TTL), Expires: now.Add(opt.MemberTTL),
	}, bearer)
	if err != nil {
		return Invite{}, err
	}
	return Invite{Addrs: opt.Addrs, OwnerKey: o.PublicKey(), Grant: g, bearer: bearer}, nil
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
	// Times travel in whole seconds.
	g.RedeemBefore, g.Expires = g.RedeemBefore.Truncate(time.Second), g.Expires.Truncate(time.Second)
	g.bearer = [ed25519.PublicKeySize]byte(bearer.Public().(ed25519.PublicKey))
	g.signature = [ed25519.SignatureSize]byte(ed25519.Sign(o.key, g.signed()))
	return g, nil
}
