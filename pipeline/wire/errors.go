package wire

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// What decoders find wrong; every error of this package wraps one of them.
var (
	ErrMagic    = errors.New("wire: not a frame of this protocol")
	ErrVersion  = errors.New("wire: unknown version")
	ErrKind     = errors.New("wire: unknown kind")
	ErrClass    = errors.New("wire: unknown class")
	ErrChecksum = errors.New("wire: checksum does not match")
	ErrLength   = errors.New("wire: bad length")
	ErrValue    = errors.New("wire: value out of range")
)

// unknownVersion returns the refusal of a frame or stream that another version of the protocol wrote.
func unknownVersion(what string, got byte) error {
	fetch := "fetch the sender's release of pnode for this node"
	if got < Version {
		fetch = "fetch this node's release of pnode for the sender"
	}
	return fmt.Errorf("%w %d of a %s, this node knows version %d: %s", ErrVersion, got, what, Version, fetch)
}

// Clip shortens text to most bytes at most, at the end of a character.
func Clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}
