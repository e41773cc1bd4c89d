package config

import (
	"fmt"
	"strings"
	"time"
)

// LostMajority says what a node does when a majority of the run's voters is lost: 0 has it wait, a time is when it recovers the
// run by itself, as `pnode recover` does.
type LostMajority time.Duration

const (
	wait         = "wait"
	recoverAfter = "recover-after="
	// Sooner nothing is recovered, see swarm/consensus.RecoverAfter.
	leastRecoverAfter = 10 * time.Minute
	mostRecoverAfter  = 30 * 24 * time.Hour
)

// Set reads wait, or recover-after=10m.
func (m *LostMajority) Set(text string) error {
	if text == wait || text == "" {
		*m = 0
		return nil
	}
	after, ok := strings.CutPrefix(text, recoverAfter)
	d, err := time.ParseDuration(after)
	if !ok || err != nil || d < leastRecoverAfter || d > mostRecoverAfter {
		return fmt.Errorf("%q: want wait, or recover-after=10m, with a time from 10m to 720h", text)
	}
	*m = LostMajority(d)
	return nil
}

// String returns the text that Set reads.
func (m LostMajority) String() string {
	if m == 0 {
		return wait
	}
	return recoverAfter + typed(time.Duration(m))
}

// Type names the values for a flag's help.
func (*LostMajority) Type() string { return "wait|recover-after=TIME" }
