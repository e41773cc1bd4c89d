package node

import (
	"errors"
	"testing"

	"pnode/node/dataset/tokenizer"
	"pnode/planner/plan"
)

// TestSamplesCannotDriveATerminal: control characters of both sets, marks that turn text around
// and what is no UTF-8 become question marks.
func TestSamplesCannotDriveATerminal(t *testing.T) {
	tokens := tokenizer.Bytes{}.Encode(nil, []byte("a\x1b[2J\u009b2J\u202eb\tcé\n\xff\x00\x7f日"))
	if got, want := printable(tokenizer.Bytes{}, plan.DataSpec{}, tokens), "a?[2J?2J?b\tcé\n???日"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestAFailedSampleIsToldOnce however often the run's end is proposed.
func TestAFailedSampleIsToldOnce(t *testing.T) {
	for _, want := range []error{nil, errors.New("out of memory")} {
		var last lastWords
		written, told := 0, []error{}
		for range 3 {
			last.sampleOnce(func() (string, error) { written++; return "text", want }, func(err error) { told = append(told, err) })
		}
		if written != 1 || last.sample != "text" || len(told) > 1 || (want != nil) != (len(told) == 1) {
			t.Errorf("written %d times as %q, told %v", written, last.sample, told)
		}
	}
}
