package consensus

import "errors"

var (
	// ErrRejected is wrapped by every refusal of the state machine: the entry was
	// committed and has changed nothing; proposing it again will not help.
	ErrRejected = errors.New("consensus: entry rejected")
	// ErrStale is wrapped, together with ErrRejected, when the entry was made from an older
	// state than the one it met: look at the state again and decide anew.
	ErrStale = errors.New("made from an older state")
	// ErrMalformed is wrapped by every error about bytes that are no entry, state, log
	// record or request.
	ErrMalformed = errors.New("consensus: malformed")
	// ErrCorrupt is wrapped when something read back from the store fails its checksum.
	ErrCorrupt = errors.New("consensus: corrupt record in the store")
	// ErrClosed is wrapped by the answers of a node that was closed or whose store failed.
	ErrClosed = errors.New("consensus: node is closed")
	// ErrStore is wrapped when the store of a node that runs could not be written or read.
	ErrStore = errors.New("this node cannot keep its copy of the run's log")
	// ErrNoLeader is wrapped when the context of a proposal ended before a leader
	// answered. Whether the entry was committed is then unknown.
	ErrNoLeader = errors.New("consensus: no leader answered")
)
