package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"pnode/node/api"
)

// logFile in a node's folder gets what the node prints.
const logFile = "log.txt"

// errEnded: the process is gone.
var errEnded = errors.New("the node has ended")

// child is one node process.
type child struct {
	index int
	name  string // for people
	dir   string
	cmd   *exec.Cmd
	stdin io.Closer     // the child ends when this is closed
	ended chan struct{} // closed after the process was waited for
}

// startChild starts a node in its own process group.
func startChild(index int, name, dir, binary string, args, env []string) (*child, error) {
	fail := func(err error) (*child, error) {
		return nil, fmt.Errorf("local: start %s: %w", name, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	log, err := os.OpenFile(filepath.Join(dir, logFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fail(err)
	}
	defer log.Close() // the child has its own handle
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = ownGroup()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return fail(err)
	}
	if err := cmd.Start(); err != nil {
		return fail(err)
	}
	return &child{index: index, name: name, dir: dir, cmd: cmd, stdin: stdin, ended: make(chan struct{})}, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// kill ends the process at once; one that is gone already is fine.
func (c *child) kill() { _ = c.cmd.Process.Kill() }

// hasEnded reports whether the process is gone.
func (c *child) hasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// finished reports whether the process ended well.
func (c *child) finished() bool { return c.hasEnded() && c.cmd.ProcessState.Success() }

// pause waits a moment. The error is errEnded when the process is gone, or the context's.
func (c *child) pause(ctx context.Context) error {
	timer := time.NewTimer(pollEvery)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.ended:
		return errEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}

// dial waits for the API of this very process, and not of one before it in the folder.
func (c *child) dial(ctx context.Context) (*api.Client, error) {
	for {
		client, err := api.Dial(ctx, c.dir)
		if err == nil {
			if client.PID() == c.pid() {
				return client, nil
			}
			client.Close()
		}
		if err := c.pause(ctx); err != nil {
			return nil, err
		}
	}
}

// follow passes the node's events on until the process is gone. A stream that breaks is opened again; sequence numbers
// keep events from being passed on twice.
func (c *child) follow(m *merge) {
	ctx := context.Background() // the process's end ends it
	seen := uint64(0)
	for {
		client, err := c.dial(ctx)
		if err != nil {
			return
		}
		for e, err := range client.Events(ctx) {
			if err == nil && e.Seq > seen {
				seen = e.Seq
				m.event(c.index, e)
			}
		}
		client.Close()
		if c.pause(ctx) != nil {
			return
		}
	}
}
