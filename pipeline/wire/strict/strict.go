// Package strict decodes JSON that another program wrote: one value that fills the data,
// without fields that the reader does not know. Bounds are the callers' to check before. It
// is pure, imports nothing of this module, and is called by all that decode such JSON: the
// consensus log, manifests of checkpoints and token shards, tokenizers, nodes' messages.
package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// ErrTrailing is the error of bytes behind the value.
var ErrTrailing = errors.New("bytes after the value")

// Decode decodes data into v, a pointer. After an error v may hold a part of it.
func Decode(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return ErrTrailing
	}
	return nil
}
