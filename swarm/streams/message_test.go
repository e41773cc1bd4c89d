package streams

import (
	"bytes"
	"testing"
)

// FuzzReadMessage wants no more memory than bytes that came, and a round trip.
func FuzzReadMessage(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 'h', 'i'})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 1, 0, 'x'})
	f.Fuzz(func(t *testing.T, data []byte) {
		message, err := ReadMessage(bytes.NewReader(data), 1<<16)
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := WriteMessage(&again, message); err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(data, again.Bytes()) {
			t.Fatalf("%q reads as %q", data, message)
		}
	})
}
