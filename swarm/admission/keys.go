package admission

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"

	"pnode/planner/plan"
	"pnode/swarm/twofold"
)

// The key files of a data folder: PKCS #8 in PEM, mode 0600.
const (
	IdentityFile = "identity.key"
	OwnerFile    = "owner.key"
	// maxKeyFileBytes bounds what is read; an Ed25519 key in PEM has 119 bytes.
	maxKeyFileBytes = 4096
)

// Identity holds this node's Ed25519 key, whose public half is the peer ID.
type Identity struct {
	key crypto.PrivKey
	id  peer.ID
}

// LoadIdentity reads DIR/identity.key and makes it, with DIR, when it is not there.
func LoadIdentity(dir string) (Identity, error) {
	key, err := loadKey(dir, IdentityFile)
	if errors.Is(err, fs.ErrNotExist) {
		key, err = createKey(dir, IdentityFile)
	}
	if err != nil {
		return Identity{}, fmt.Errorf("swarm: load identity: %w", err)
	}
	priv, err := crypto.UnmarshalEd25519PrivateKey(key)
	if err != nil {
		return Identity{}, fmt.Errorf("swarm: identity key: %w", err)
	}
	id, err := peer.IDFromPrivateKey(priv)
	if err != nil {
		return Identity{}, fmt.Errorf("swarm: identity key: %w", err)
	}
	return Identity{key: priv, id: id}, nil
}

// NewIdentity returns an identity that no folder keeps, for questions to strangers.
func NewIdentity() (Identity, error) {
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		return Identity{}, fmt.Errorf("swarm: new identity: %w", err)
	}
	id, err := peer.IDFromPrivateKey(key)
	if err != nil {
		return Identity{}, fmt.Errorf("swarm: new identity: %w", err)
	}
	return Identity{key: key, id: id}, nil
}

// Peer returns the identity's peer ID.
func (i Identity) Peer() plan.PeerID { return plan.PeerID(i.id.String()) }

// ID returns the peer ID as libp2p has it; empty for the zero Identity.
func (i Identity) ID() peer.ID { return i.id }

// Key returns the private key.
func (i Identity) Key() crypto.PrivKey { return i.key }

// Sign returns the signature of a message with the identity's key: Ed25519, 64 bytes.
func (i Identity) Sign(message []byte) ([]byte, error) { return i.key.Sign(message) }

// Verify returns why a signature of a message is not a peer's; nil if it is. The peer ID holds the public key.
func (Identity) Verify(p plan.PeerID, message, signature []byte) error {
	id, err := peer.Decode(string(p))
	if err != nil {
		return fmt.Errorf("swarm: peer ID %q: %w", p, err)
	}
	if id.String() != string(p) { // one key, one name
		return fmt.Errorf("swarm: peer ID %q: want it as %s", p, id)
	}
	key, err := id.ExtractPublicKey()
	if err != nil {
		return fmt.Errorf("swarm: public key of %s: %w", p, err)
	}
	if ok, err := key.Verify(message, signature); err != nil || !ok {
		return fmt.Errorf("swarm: a signature is not by the key of %s", p)
	}
	return nil
}

// publicKey returns the Ed25519 key that a peer ID holds.
func publicKey(id peer.ID) (ed25519.PublicKey, error) {
	key, err := id.ExtractPublicKey()
	if err != nil {
		return nil, malformed("public key of %s: %v", id, err)
	}
	raw, err := key.Raw()
	if err != nil || key.Type() != crypto.Ed25519 || len(raw) != ed25519.PublicKeySize {
		return nil, malformed("peer %s has no Ed25519 key", id)
	}
	return raw, nil
}

// loadKey reads an Ed25519 key.
func loadKey(dir, name string) (ed25519.PrivateKey, error) {
	key, err := twofold.Read(dir, name, maxKeyFileBytes, parseKey)
	if errors.Is(err, twofold.ErrDamaged) {
		err = fmt.Errorf("%w; bring it back from a backup, or start in another folder with --dir", err)
	}
	return key, err
}

// CheckKey returns what is wrong with the text of a key's file.
func CheckKey(text []byte) error {
	_, err := parseKey(text)
	return err
}

func parseKey(text []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("not a PEM file")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	private, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("it holds a %T, want an Ed25519 key", key)
	}
	return private, nil
}

// createKey makes a key and its file. It never replaces one that another process made
// meanwhile: that one is used.
func createKey(dir, name string) (ed25519.PrivateKey, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	err = twofold.Create(dir, name, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	if errors.Is(err, fs.ErrExist) {
		return loadKey(dir, name)
	}
	return key, err
}
