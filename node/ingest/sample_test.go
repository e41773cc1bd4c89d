package ingest

import (
	"testing"

	"pnode/node/dataset/tokenizer"
	"pnode/planner/plan"
)

// TestSamplesCannotDriveATerminal: control characters of both sets, marks that turn text around
// and what is no UTF-8 become question marks.
func TestSamplesCannotDriveATerminal(t *testing.T) {
	tokens := tokenizer.Bytes{}.Encode(nil, []byte("a\x1b[2J\u009b2J\u202eb\tcé\n\xff\x00\x7f日\u200dn\u3000"))
	if got, want := printable(tokenizer.Bytes{}, plan.DataSpec{}, tokens, 99), "a?[2J?2J?b\tcé\n???日\u200dn\u3000"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
