package admission

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"pnode/planner/plan"
)

// A newcomer knows the secret of its invite and the contact, which asks nothing of it but a claim and answers with an
// offer (/pnode/invite/1): the run and the grant that the secret belongs to.
const (
	offerVersion = 1
	claimPrefix  = "pnode claim 1\x00"
	nonceBytes   = 16
	// MaxClaimBytes bounds a claim: version 1, nonce 16, bearer key 32, signature 64.
	MaxClaimBytes = 1 + nonceBytes + ed25519.PublicKeySize + ed25519.SignatureSize
	// MaxOfferBytes bounds an offer, or the refusal in its place.
	MaxOfferBytes = 2 + 2 + maxRunBytes + ed25519.PublicKeySize + 2 + MaxCapabilityBytes + 2 + maxDetailBytes
)

// Claim is a newcomer's question for the grant of its invite. It proves that the newcomer, whom the connection's
// handshake has proved, knows the secret.
type Claim struct {
	Nonce     [nonceBytes]byte
	Bearer    [ed25519.PublicKeySize]byte
	Signature [ed25519.SignatureSize]byte
}

// Claim makes the question of a newcomer to a contact.
func (v Invite) Claim(newcomer, contact peer.ID) (Claim, error) {
	if !v.valid {
		return Claim{}, fmt.Errorf("swarm: claim invite: %w", ErrNeedsInvite)
	}
	var c Claim
	if _, err := rand.Read(c.Nonce[:]); err != nil {
		return Claim{}, fmt.Errorf("swarm: claim invite: %w", err)
	}
	c.Bearer = [ed25519.PublicKeySize]byte(v.Bearer())
	c.Signature = [ed25519.SignatureSize]byte(ed25519.Sign(v.key(), c.message(newcomer, contact)))
	return c, nil
}

func (c Claim) message(newcomer, contact peer.ID) []byte {
	b := append([]byte(claimPrefix), c.Nonce[:]...)
	return appendBytes(appendBytes(b, string(newcomer)), string(contact))
}

// By reports whether the claim was signed by the holder of its bearer key, for these two peers.
func (c Claim) By(newcomer, contact peer.ID) bool {
	return ed25519.Verify(c.Bearer[:], c.message(newcomer, contact), c.Signature[:])
}

// Append appends the encoded claim to dst.
func (c Claim) Append(dst []byte) []byte {
	dst = append(append(dst, offerVersion), c.Nonce[:]...)
	return append(append(dst, c.Bearer[:]...), c.Signature[:]...)
}

// DecodeClaim reads what Append wrote.
func DecodeClaim(b []byte) (Claim, error) {
	d := decoder{b: b}
	d.version(offerVersion, "the claim")
	var c Claim
	copy(c.Nonce[:], d.take(len(c.Nonce)))
	copy(c.Bearer[:], d.take(len(c.Bearer)))
	copy(c.Signature[:], d.take(len(c.Signature)))
	return c, d.end()
}

// Offer answers a claim: with the run and the grant, or with a refusal.
type Offer struct {
	Code   byte // of a refusal; 0 for none
	Detail string
	Run    Run
	Grant  Grant
}

// RefuseClaim makes the offer that tells a newcomer why there is none.
func RefuseClaim(err error) Offer {
	r := Refusal(err)
	return Offer{Code: r.Code, Detail: r.Detail}
}

// Append appends the encoded offer to dst.
func (o Offer) Append(dst []byte) []byte {
	dst = append(dst, offerVersion, o.Code)
	if o.Code != 0 {
		return appendBytes(dst, o.Detail[:min(len(o.Detail), maxDetailBytes)])
	}
	dst = append(appendBytes(dst, o.Run.ID), o.Run.OwnerKey...)
	return appendBytes(dst, o.Grant.Encode())
}

// DecodeOffer reads what Append wrote. It checks the form alone; Accept checks the rest.
func DecodeOffer(b []byte) (Offer, error) {
	if len(b) > MaxOfferBytes {
		return Offer{}, malformed("offer of %d bytes, at most %d are accepted", len(b), MaxOfferBytes)
	}
	d := decoder{b: b}
	d.version(offerVersion, "the offer")
	o := Offer{Code: d.u8()}
	if o.Code != 0 {
		o.Detail = string(d.bytes(maxDetailBytes))
		return o, d.end()
	}
	o.Run.ID = plan.RunID(d.bytes(maxRunBytes))
	o.Run.OwnerKey = append(ed25519.PublicKey(nil), d.take(ed25519.PublicKeySize)...)
	inner := decoder{b: d.bytes(MaxCapabilityBytes), err: d.err}
	o.Grant = decodeGrant(&inner)
	if err := inner.end(); err != nil {
		return Offer{}, err
	}
	return o, d.end()
}

// Accept returns the invite with the run and the grant of an offer, if they are the ones that the invite was made for:
// its digest names the run and the root key, an owner signed the grant, and the grant names the invite's key.
func (v Invite) Accept(o Offer, now time.Time) (Invite, error) {
	if o.Code != 0 {
		return v, refusalFrom(o.Code, o.Detail)
	}
	if !v.For(o.Run) {
		return v, fmt.Errorf("%w than the invite's", ErrWrongRun)
	}
	if err := o.Grant.Verify(o.Run, now); err != nil {
		return v, err
	}
	if string(o.Grant.bearer[:]) != string(v.Bearer()) {
		return v, fmt.Errorf("%w: the grant is of another invite", ErrSignature)
	}
	v.OwnerKey, v.Grant = o.Run.OwnerKey, o.Grant
	return v, nil
}
