package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// maxAnswerBytes bounds a line of a peer.
const maxAnswerBytes = 1 << 16

// peer is another program that answers requests. It ends with the context it was started
// under, or by close.
type peer struct {
	hello  hello
	cmd    *exec.Cmd
	in     io.WriteCloser
	pipe   io.Closer // what out reads
	out    *bufio.Reader
	errors tail
	forget func() bool // the context
	ended  sync.Once
	end    error // how it ended
}

// hello is the first line of a peer: what it is, and by which kernels it computes.
type hello struct {
	Name   string `json:"name"`
	Kernel string `json:"kernel"`
	// Dropped are reasons why better kernels are not used.
	Dropped []string `json:"dropped,omitempty"`
	// Libraries are folders with libraries that the peer brings.
	Libraries []string `json:"libraries,omitempty"`
	// Error says why there is no peer.
	Error string `json:"error,omitempty"`
}

// answer is a line of a peer.
type answer struct {
	Seconds   float64 `json:"seconds"`
	PeakBytes int64   `json:"peak_bytes"`
	Loss      float64 `json:"loss"`
	Error     string  `json:"error,omitempty"`

	Classes map[string]float64 `json:"classes,omitempty"` // seconds by class of calls
	FLOPs   int64              `json:"flops,omitempty"`
	// Arithmetic is the rate of multiply-adds in registers alone, right after, in GFLOP/s.
	Arithmetic float64 `json:"gflops,omitempty"`

	Losses []float64 `json:"losses,omitempty"` // of all steps, where these are few
	// DeviceClock tells whether the device says when it came to events.
	DeviceClock bool `json:"device_clock,omitempty"`
	// DeviceSeconds is what the calls of a step take the device where it never waits for the host, 0
	// without its clock, HostSeconds what the host takes to enqueue them.
	DeviceSeconds float64 `json:"device_seconds,omitempty"`
	HostSeconds   float64 `json:"host_seconds,omitempty"`
	// CopySeconds is the time of all copies of messages, HiddenSeconds the part of it in which the
	// stage computed.
	CopySeconds   float64 `json:"copy_seconds,omitempty"`
	HiddenSeconds float64 `json:"hidden_seconds,omitempty"`
}

// maxLosses bounds those of an answer.
const maxLosses = 1000

// startPython runs a script as a peer.
func startPython(ctx context.Context, python, script, arg string) (*peer, error) {
	return startPeer(ctx, nil, python, "-c", script, arg)
}

// grace is how long a program that was ended may keep its output open: processes of its own have it.
const grace = 5 * time.Second

// startPeer runs a program, with environment variables besides those that are, and waits for its
// hello. The error says what is missing.
func startPeer(ctx context.Context, env []string, program string, args ...string) (*peer, error) {
	p := &peer{cmd: exec.CommandContext(ctx, program, args...)}
	p.cmd.Stderr, p.cmd.WaitDelay = &p.errors, grace
	if len(env) > 0 {
		p.cmd.Env = append(os.Environ(), env...)
	}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.in, p.pipe, p.out = in, out, bufio.NewReaderSize(out, maxAnswerBytes)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	p.forget = context.AfterFunc(ctx, func() { _ = out.Close() }) // what it started may hold the other end
	if err := p.receive(&p.hello); err != nil {
		_ = p.close() // the error says why
		return nil, err
	}
	if p.hello.Error != "" {
		_ = p.close() // says the same
		return nil, errors.New(p.hello.Error)
	}
	return p, nil
}

// ask sends a request and waits for its answer.
func (p *peer) ask(request any) (answer, error) {
	var a answer
	line, err := json.Marshal(request)
	if err != nil {
		return a, err
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		_ = p.close() // its last words may be under way
		return a, fmt.Errorf("ask %s: %w%s", p.hello.Name, err, p.errors.note())
	}
	if err := p.receive(&a); err != nil {
		return a, err
	}
	if a.Error != "" {
		return a, fmt.Errorf("%s: %s", p.hello.Name, a.Error)
	}
	return a, nil
}

func (p *peer) receive(into any) error {
	line, err := p.out.ReadSlice('\n')
	if err != nil {
		_ = p.close() // its last words may be under way
		return fmt.Errorf("answer of %s: %w%s", p.cmd.Path, err, p.errors.note())
	}
	if err := json.Unmarshal(line, into); err != nil {
		return fmt.Errorf("answer of %s: %w", p.cmd.Path, err)
	}
	return nil
}

// close ends the peer by ending its input, and its output in case it still writes, and
// waits for it.
func (p *peer) close() error {
	p.ended.Do(func() { p.end = p.finish() })
	return p.end
}

func (p *peer) finish() error {
	p.forget()
	_ = p.in.Close() // it may be gone already
	_ = p.pipe.Close()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w%s", p.cmd.Path, err, p.errors.note())
	}
	return nil
}

// tail keeps the end of what a peer wrote to its standard error.
type tail struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

const tailBytes = 4 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(b)
	if extra := t.buf.Len() - tailBytes; extra > 0 {
		t.buf.Next(extra)
	}
	return len(b), nil
}

// note is the last line, in brackets. Wait has to come first, or the peer's last words
// may still be under way.
func (t *tail) note() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(t.buf.String()), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return " (" + last + ")"
	}
	return ""
}
