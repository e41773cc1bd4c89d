// Package version makes the error that refuses a format of an unknown version: of a handshake, a message, a
// log entry or a snapshot. The policy is in package swarm's documentation.
//
// It knows no format: each has its own number where its codec is. It imports nothing of the project.
package version

import (
	"errors"
	"fmt"
)

// Err is wrapped by every refusal of an unknown version.
var Err = errors.New("unknown version")

// Unknown returns the refusal of a format named what: its writer used version theirs, the reader knows version
// ours. The text says which end needs another release, and means the same at both ends.
func Unknown(what string, theirs, ours int) error {
	fetch := "fetch the writer's release of pnode for the reader"
	if theirs < ours {
		fetch = "fetch the reader's release of pnode for the writer"
	}
	return fmt.Errorf("%s has %w %d, its reader knows version %d: %s", what, Err, theirs, ours, fetch)
}
