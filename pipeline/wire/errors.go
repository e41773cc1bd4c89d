package wire

import "errors"

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
