package chaos

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"pnode/planner/plan"
)

// logFile in a node's folder's place gets what its processes print.
const logFile = ".log"

// process is one start of a node.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer     // the process ends when this is closed
	ended chan struct{} // closed after the process was waited for
}

// progress is a step that a node told of.
type progress struct {
	Step       plan.Step       `json:"step"`
	Generation plan.Generation `json:"generation"`
	at         time.Time
}

// launch says how a node is started: in which folder, where, and with which arguments of pnode and variables.
type launch struct {
	on          machine
	binary, dir string
	args, env   []string
}

// begin starts a node, whose steps go to steps until over is closed.
func (l launch) begin(over <-chan struct{}, steps chan<- progress) (*process, error) {
	log, err := os.OpenFile(l.dir+logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	defer log.Close() // the process has its own handle
	cmd := exec.Command(l.binary, append(l.args, "--supervised", "--json", "--dir", l.dir, "--name", filepath.Base(l.dir))...)
	cmd.Env = append(os.Environ(), l.env...)
	cmd.Stderr, cmd.SysProcAttr = log, ownGroup()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	if err := l.on.start(cmd); err != nil {
		return nil, fmt.Errorf("chaos: start a node: %w", err)
	}
	p := &process{cmd: cmd, stdin: stdin, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var at progress
			if json.Unmarshal(lines.Bytes(), &at) == nil && at.Step > 0 {
				at.at = time.Now()
				select {
				case steps <- at:
				case <-over:
				}
			}
		}
		_ = cmd.Wait() // the same as ProcessState
	}()
	return p, nil
}

// hasEnded reports whether the process is gone.
func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// kill ends the process at once and waits for its end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // one that is gone already is fine
	<-p.ended
}
