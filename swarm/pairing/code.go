package pairing

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"strings"

	"github.com/libp2p/go-libp2p/core/peer"

	"pnode/planner/plan"
)

// codeDigits is how many decimal digits a code has, codes how many codes there are.
const (
	codeDigits = 6
	codes      = 1_000_000
)

// transcript holds what both ends know of a request when the code is made.
type transcript struct {
	Newcomer, Owner         peer.ID
	NewcomerName, OwnerName string
	Run                     plan.RunID
	NewcomerNumber          number
	OwnerNumber             number
}

// commitment returns the hash by which a newcomer commits to its number before it sees the owner's.
func (t transcript) commitment() (c number) {
	h := begin("commitment", string(t.Newcomer), string(t.Owner), t.NewcomerName, string(t.NewcomerNumber[:]))
	h.Sum(c[:0])
	return c
}

// code returns the six digits that both ends show.
func (t transcript) code() string {
	h := begin("code", string(t.Newcomer), string(t.Owner), t.NewcomerName, t.OwnerName, string(t.Run), string(t.NewcomerNumber[:]), string(t.OwnerNumber[:]))
	return fmt.Sprintf("%0*d", codeDigits, binary.BigEndian.Uint64(h.Sum(nil))%codes) // 2^64 is so large that all codes are equally likely
}

// begin hashes fields with their lengths, under what they are for.
func begin(purpose string, fields ...string) hash.Hash {
	h := sha256.New()
	for _, f := range append([]string{"pnode pairing 1 " + purpose}, fields...) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(f)))
		h.Write(n[:])
		h.Write([]byte(f))
	}
	return h
}

// newNumber returns a random number.
func newNumber() (n number, err error) {
	_, err = rand.Read(n[:])
	return n, err
}

// Spoken returns a code as people read it: in two groups of three digits.
func Spoken(code string) string { return code[:codeDigits/2] + " " + code[codeDigits/2:] }

// ParseCode returns the digits of a code as people write it, with or without a space or hyphen in it.
func ParseCode(text string) (code string, err error) {
	code = strings.NewReplacer(" ", "", "-", "").Replace(text)
	if len(code) != codeDigits || strings.Trim(code, "0123456789") != "" {
		return "", fmt.Errorf("code %q: want the %d digits that the newcomer shows", plan.Clip(text, maxNameBytes), codeDigits)
	}
	return code, nil
}
