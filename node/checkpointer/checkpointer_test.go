package checkpointer

import (
	"io"
	"testing"
)

func TestFixedWriterRefusesMoreThanItsBytes(t *testing.T) {
	dst := make([]byte, 4)
	w := &fixedWriter{rest: dst}
	if _, err := io.WriteString(w, "abc"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, "de"); err == nil {
		t.Fatal("wrote 5 bytes into 4")
	}
	if string(dst[:3]) != "abc" {
		t.Errorf("wrote %q", dst)
	}
}
