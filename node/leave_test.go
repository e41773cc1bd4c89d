package node

import (
	"errors"
	"testing"
	"time"
)

func TestStopText(t *testing.T) {
	for want, got := range map[string]string{
		"stopping (Ctrl-C): the step under way (one takes 40.0 s) ends first, then the newest is saved; after 2 minutes without that the run goes on from the checkpoint before": stopText("Ctrl-C", 12, true, 40*time.Second),
		"stopping (Ctrl-C): the step under way ends first, then the newest is saved; after 2 minutes without that the run goes on from the checkpoint before":                    stopText("Ctrl-C", 0, true, 0),
		"stopping (SIGTERM): step 13 is being saved": stopText("SIGTERM", 13, false, time.Second),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

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
