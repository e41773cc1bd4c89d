package swarm

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"

	"pnode/planner"
)

// The key files of a data folder: PKCS #8 in PEM, mode 0600.
const (
	identityFile = "identity.key"
	ownerFile    = "owner.key"
	// maxKeyFileBytes bounds what is read; an Ed25519 key in PEM has 119 bytes.
	maxKeyFileBytes = 4096
)

// Identity is this node's Ed25519 key. The peer ID is its public half.
type Identity struct {
	key crypto.PrivKey
	id  peer.ID
}

// LoadIdentity reads DIR/identity.key and makes it, with DIR, when it is not there.
func LoadIdentity(dir string) (Identity, error) {
	key, err := loadKey(filepath.Join(dir, identityFile))
	if errors.Is(err, fs.ErrNotExist) {
		key, err = createKey(dir, identityFile)
	}
	if err != nil {
		return Identity{}, fmt.Errorf("swarm: load identity: %w", err)
	}
	return newIdentity(key)
}

func newIdentity(key ed25519.PrivateKey) (Identity, error) {
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

// Peer is the identity's peer ID.
func (i Identity) Peer() planner.PeerID { return planner.PeerID(i.id.String()) }

// loadKey reads an Ed25519 key.
func loadKey(path string) (ed25519.PrivateKey, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxKeyFileBytes {
		return nil, fmt.Errorf("%s: %d bytes are no key file", path, info.Size())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s: not a PEM file; restore it from a copy, or move it away to start under a new identity", path)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	private, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s: holds a %T, want an Ed25519 key", path, key)
	}
	return private, nil
}

// createKey makes a key and its file. The file appears whole or not at all, and never
// replaces one that another process made meanwhile: that one is used.
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
	path := filepath.Join(dir, name)
	tmp, err := writeTemp(dir, name, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	if err != nil {
		return nil, err
	}
	defer os.Remove(tmp)
	if err := os.Link(tmp, path); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return loadKey(path)
		}
		// A file system without hard links: a rename is whole too, though it would win
		// over a file made in the same instant.
		if err := os.Rename(tmp, path); err != nil {
			return nil, err
		}
	}
	return key, syncDir(dir)
}

// writeTemp leaves data in a synced file of mode 0600 beside its later place.
func writeTemp(dir, name string, data []byte) (path string, err error) {
	f, err := os.CreateTemp(dir, "."+name+"-*") // CreateTemp's mode is 0600
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}
