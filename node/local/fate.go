package local

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"pnode/pipeline/wire"
)

// maxSentence bounds what is repeated of a node's last words; the log has all of them.
const maxSentence = 500

// NodeError says how a node ended that did not end well. It wraps ErrNotFinished.
type NodeError struct {
	Node int
	// Name is what people call the node.
	Name string
	// Code is the exit code; -1 when a signal ended the process.
	Code int
	// Sentence is why, in the node's own words; empty when it had none, as after a crash.
	Sentence string
	// State is how the process ended, such as "signal: killed".
	State string
	Log   string
}

func (e *NodeError) Error() string {
	if e.Sentence == "" {
		return fmt.Sprintf("%s ended without a word (%s); its log is %s", e.Name, e.State, e.Log)
	}
	return fmt.Sprintf("%s: %s (its log is %s)", e.Name, e.Sentence, e.Log)
}

// Unwrap makes it an ErrNotFinished.
func (e *NodeError) Unwrap() error { return ErrNotFinished }

// plainError is a NodeError of which only the sentence counts: all nodes say it, or the
// first did before there was a run.
type plainError struct{ *NodeError }

func (e plainError) Error() string { return e.Sentence }
func (e plainError) Unwrap() error { return e.NodeError }

// unbegunError is a NodeError that ended a run before its first step, and the way back.
type unbegunError struct {
	*NodeError
	wayBack string
}

func (e unbegunError) Error() string { return e.NodeError.Error() + "; " + e.wayBack }
func (e unbegunError) Unwrap() error { return e.NodeError }

// fate blocks until the process has ended and returns how.
func (c *child) fate() *NodeError {
	<-c.ended
	state := c.cmd.ProcessState
	e := &NodeError{Node: c.index, Name: c.name, Code: state.ExitCode(), State: state.String(), Log: filepath.Join(c.dir, logFile)}
	if sentence, ok := strings.CutPrefix(lastLine(e.Log), "pnode: "); ok && e.Code > 0 {
		e.Sentence = clip(sentence)
	}
	return e
}

func clip(s string) string {
	if len(s) <= maxSentence {
		return s
	}
	return wire.Clip(s, maxSentence) + "..."
}

// lastLine returns the last line of a file that is not empty.
func lastLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	const tail = 16 << 10
	if size, err := f.Seek(0, io.SeekEnd); err != nil || size < tail {
		_, _ = f.Seek(0, io.SeekStart)
	} else {
		_, _ = f.Seek(-tail, io.SeekEnd)
	}
	b, err := io.ReadAll(io.LimitReader(f, tail))
	if err != nil {
		return ""
	}
	b = bytes.TrimSpace(b)
	return string(b[bytes.LastIndexByte(b, '\n')+1:])
}

// fates holds the nodes that did not end well. Each is shown once: as a notice when the others are known to go on, or
// else in the error of the run.
type fates struct {
	mu      sync.Mutex // guards what follows
	all     []*NodeError
	pending []*NodeError // not told yet
	reasons []string     // told
}

func (f *fates) add(e *NodeError) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all, f.pending = append(f.all, e), append(f.pending, e)
}

// tell shows what is pending; a reason that was shown already in short.
func (f *fates) tell(out Output) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.pending {
		if e.Sentence != "" && slices.Contains(f.reasons, e.Sentence) {
			out.Notice(fmt.Sprintf("%s ended too, for the same reason", e.Name))
			continue
		}
		f.reasons = append(f.reasons, e.Sentence)
		out.Notice(e.Error())
	}
	f.pending = nil
}

// verdict returns the error of a run in which no node ended well: what all of them say, or what was not shown yet.
func (f *fates) verdict() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.all) == 0 {
		return nil
	}
	first := f.all[0]
	differs := func(e *NodeError) bool { return e.Sentence != first.Sentence }
	if first.Sentence != "" && len(f.all) > 1 && !slices.ContainsFunc(f.all, differs) {
		return plainError{first}
	}
	if len(f.pending) == 0 {
		return fmt.Errorf("%w: all have ended, see above", ErrNotFinished)
	}
	var errs []error
	for _, e := range f.pending {
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}
