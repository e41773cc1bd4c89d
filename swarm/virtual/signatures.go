package virtual

import (
	"crypto/ed25519"
	"crypto/sha256"
	"sync"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/crypto/pb"
)

// rememberedSignatures bounds the signatures that are remembered.
const rememberedSignatures = 1 << 16

// All hosts are in one process, where each of them would verify the same signatures. Keys are read from any goroutine: this
// is done before there is one.
var _ = remember(crypto.PubKeyUnmarshallers)

// verdicts holds verdicts on signatures, by a digest of key, signature and message.
type verdicts struct {
	mu    sync.Mutex // guards known
	known map[[sha256.Size]byte]bool
}

// remember has all Ed25519 keys that are read from now on remember their verdicts.
func remember(readers map[pb.KeyType]crypto.PubKeyUnmarshaller) *verdicts {
	v := &verdicts{known: map[[sha256.Size]byte]bool{}}
	read := readers[pb.KeyType_Ed25519]
	readers[pb.KeyType_Ed25519] = func(data []byte) (crypto.PubKey, error) {
		key, err := read(data)
		if err != nil {
			return nil, err
		}
		return rememberingKey{key, v}, nil
	}
	return v
}

// rememberingKey is a public key that verifies no signature twice.
type rememberingKey struct {
	crypto.PubKey
	verdicts *verdicts
}

// Verify implements libp2p's PubKey.
func (k rememberingKey) Verify(message, signature []byte) (bool, error) {
	raw, err := k.Raw()
	if err != nil || len(signature) != ed25519.SignatureSize {
		return k.PubKey.Verify(message, signature)
	}
	digest := sha256.New()
	digest.Write(raw)
	digest.Write(signature)
	digest.Write(message)
	sum := [sha256.Size]byte(digest.Sum(nil))
	if good, known := k.verdicts.get(sum); known {
		return good, nil
	}
	good, err := k.PubKey.Verify(message, signature)
	if err == nil {
		k.verdicts.put(sum, good)
	}
	return good, err
}

func (v *verdicts) get(sum [sha256.Size]byte) (good, known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	good, known = v.known[sum]
	return good, known
}

func (v *verdicts) put(sum [sha256.Size]byte, good bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.known) >= rememberedSignatures {
		clear(v.known)
	}
	v.known[sum] = good
}
