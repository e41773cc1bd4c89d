package checkpoint

import (
	"bytes"
	"fmt"

	"lukechampine.com/blake3"
)

// sealed returns the content of a file whose first line is a checksum of the text after it.
func sealed(kind string, text []byte) []byte {
	return append(fmt.Appendf(nil, "pnode %s, BLAKE3 %x\n", kind, blake3.Sum256(text)), text...)
}

// maxSealLine bounds the first line.
const maxSealLine = 128

// unsealed returns the text of such a file; the error wraps ErrCorrupt. The text aliases content.
func unsealed(kind string, content []byte) ([]byte, error) {
	_, text, ok := bytes.Cut(content, []byte("\n"))
	if !ok || !bytes.Equal(sealed(kind, text), content) {
		return nil, fmt.Errorf("%w: its bytes do not match its checksum", ErrCorrupt)
	}
	return text, nil
}
