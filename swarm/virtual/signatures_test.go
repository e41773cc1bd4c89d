package virtual

import (
	"crypto/rand"
	"testing"

	"github.com/libp2p/go-libp2p/core/crypto"
)

// TestRememberedSignatures: a verdict that is remembered is that of the same key, message and signature, and of no other.
func TestRememberedSignatures(t *testing.T) {
	message, forged := []byte("a message"), []byte("another one")
	var keys []crypto.PubKey
	var signed [][]byte
	for range 2 {
		private, public, err := crypto.GenerateEd25519Key(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		sent, err := crypto.MarshalPublicKey(public)
		if err != nil {
			t.Fatal(err)
		}
		read, err := crypto.UnmarshalPublicKey(sent)
		if err != nil {
			t.Fatal(err)
		}
		if !read.Equals(public) || !public.Equals(read) {
			t.Error("a key that was read is another one")
		}
		signature, err := private.Sign(message)
		if err != nil {
			t.Fatal(err)
		}
		keys, signed = append(keys, read), append(signed, signature)
	}
	remembering, ok := keys[0].(rememberingKey)
	if !ok {
		t.Fatalf("a key that was read is a %T", keys[0])
	}
	before := len(remembering.verdicts.known)
	for range 2 {
		for _, c := range []struct {
			key                int
			message, signature []byte
			good               bool
		}{
			{0, message, signed[0], true},
			{1, message, signed[1], true},
			{0, forged, signed[0], false},
			{0, message, signed[1], false},
			{1, message, signed[0], false},
			{0, message, signed[0][:63], false},
			{0, message, nil, false},
		} {
			if good, err := keys[c.key].Verify(c.message, c.signature); good != c.good || err != nil {
				t.Errorf("key %d, message %q, signature %x: good %t, error %v, want %t", c.key, c.message, c.signature, good, err, c.good)
			}
		}
	}
	if learned := len(remembering.verdicts.known) - before; learned != 5 {
		t.Errorf("%d verdicts were remembered of five signatures", learned)
	}
}
