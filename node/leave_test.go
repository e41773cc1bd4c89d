package node

import (
	"errors"
	"testing"
)

// TestAFailedSampleIsToldOnce however often the run's end is proposed.
func TestAFailedSampleIsToldOnce(t *testing.T) {
	for _, want := range []error{nil, errors.New("out of memory")} {
		var last completion
		written, told := 0, []error{}
		for range 3 {
			last.sampleOnce(func() (string, error) { written++; return "text", want }, func(err error) { told = append(told, err) })
		}
		if written != 1 || last.sample != "text" || len(told) > 1 || (want != nil) != (len(told) == 1) {
			t.Errorf("written %d times as %q, told %v", written, last.sample, told)
		}
	}
}
