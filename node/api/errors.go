package api

import "errors"

// Errors of this package.
var (
	// ErrNoNode: no node runs in the folder.
	ErrNoNode = errors.New("api: no node runs")
	// ErrUnreachable: the folder names a node that does not answer.
	ErrUnreachable = errors.New("api: the node does not answer")
	// ErrNotReady: the node runs but cannot do this yet; ask again.
	ErrNotReady = errors.New("not ready yet")
	// ErrRefused: the node answered that it will not or cannot.
	ErrRefused = errors.New("api: the node refused")
)

// NotReady is an ErrNotReady that says only what a node lacks: the client that asked says the rest.
type NotReady string

func (e NotReady) Error() string { return string(e) }

// Is reports whether target is ErrNotReady.
func (NotReady) Is(target error) bool { return target == ErrNotReady }
