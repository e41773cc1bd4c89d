package plan

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// FaultKind says what was wrong with what a worker owed another.
type FaultKind string

// Kinds of faults.
const (
	BadFrame      FaultKind = "frame"      // a message that cannot be read: length, shape, checksum
	BadTensor     FaultKind = "tensor"     // activations or gradients that are not finite, or far too large
	BadReport     FaultKind = "report"     // losses or norms that cannot be
	BadCommit     FaultKind = "commit"     // a commit that does not follow from what its receiver knows
	BadParameters FaultKind = "parameters" // parameters or optimizer state that are not finite
	NoProgress    FaultKind = "progress"   // a message that did not come in time
	LostLink      FaultKind = "link"       // no connection to a member that lives
)

// Kinds that no worker finds: what a leader concludes.
const (
	FalseWord FaultKind = "word" // accusations that nobody else confirms
	LossJump  FaultKind = "jump" // a loss far above those before
	BadSum    FaultKind = "sum"  // messages or losses of a round that others have otherwise than their sender says, or sooner than it might send them
)

var workerKinds = []FaultKind{BadFrame, BadTensor, BadReport, BadCommit, BadParameters, NoProgress, LostLink}

// Valid reports whether k is one of the kinds.
func (k FaultKind) Valid() bool {
	return slices.Contains(workerKinds, k) || k == FalseWord || k == LossJump || k == BadSum
}

const (
	// MaxFaultBytes bounds the detail of a fault.
	MaxFaultBytes = 200

	maxAccusedBytes = 128
)

// Fault is the error of a worker that did not get from Accused what it owed in a step of the plan. It is one
// member's word. A worker whose own result is at fault accuses its own peer.
type Fault struct {
	Accused PeerID    `json:"accused"`
	Kind    FaultKind `json:"kind"`
	Step    Step      `json:"step"`
	Detail  string    `json:"detail"`
}

// Error returns what was wrong, without the name of the accused, which callers know better.
func (f *Fault) Error() string { return fmt.Sprintf("step %d: %s: %s", f.Step, f.Kind, f.Detail) }

// Told returns the fault as it is sent to others: its detail printable, and cut where it is too long.
func (f Fault) Told() Fault {
	f.Detail = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, f.Detail)
	for len(f.Detail) > MaxFaultBytes {
		_, last := utf8.DecodeLastRuneInString(f.Detail)
		f.Detail = f.Detail[:len(f.Detail)-last]
	}
	return f
}

// Check returns why others do not take the fault, if they do not.
func (f Fault) Check() error {
	switch {
	case !slices.Contains(workerKinds, f.Kind):
		return fmt.Errorf("fault of kind %.40q, want one of %v", f.Kind, workerKinds)
	case f.Accused == "" || len(f.Accused) > maxAccusedBytes:
		return fmt.Errorf("fault of a peer of %d bytes, want 1 to %d", len(f.Accused), maxAccusedBytes)
	case f.Told().Detail != f.Detail:
		return fmt.Errorf("fault with a detail of %d bytes, want at most %d, all of them printable", len(f.Detail), MaxFaultBytes)
	}
	return nil
}
