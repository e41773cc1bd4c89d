package plan

import "errors"

// WholeCopy says how far a member is that keeps the run's newest checkpoint whole, with the state of every layer: from
// such a member alone the model can be had, and the run can go on.
type WholeCopy struct {
	// Step and Generation name the newest checkpoint that is whole there; Step 0 is none.
	Step       Step       `json:"step,omitempty"`
	Generation Generation `json:"generation,omitempty"`
	// Next is the step of the checkpoint that is on its way there, 0 for none. DoneBytes of its SizeBytes are there.
	Next      Step  `json:"next,omitempty"`
	DoneBytes int64 `json:"done_bytes,omitempty"`
	SizeBytes int64 `json:"size_bytes,omitempty"`
	// Off marks a member that was told to keep none. Why says why one that should cannot.
	Off bool   `json:"off,omitempty"`
	Why string `json:"why,omitempty"`
}

// Bounds of what a member says of its copy.
const (
	maxCopyStep  = 1 << 40
	maxCopyBytes = 1 << 50
)

// Has reports whether a checkpoint is whole there.
func (c WholeCopy) Has(step Step, g Generation) bool {
	return step != 0 && c.Step == step && c.Generation == g
}

// Check returns an error for numbers that no member can truly have.
func (c WholeCopy) Check() error {
	switch {
	case c.Step > maxCopyStep || c.Next > maxCopyStep:
		return errors.New("a whole checkpoint of a step that no run has")
	case c.DoneBytes < 0 || c.DoneBytes > c.SizeBytes || c.SizeBytes > maxCopyBytes:
		return errors.New("a whole checkpoint of a size that no model has")
	}
	return nil
}
