package bench

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"pnode/planner/plan"
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
	// With are libraries that the peer computes by, with their versions.
	With []string `json:"with,omitempty"`
	// Libraries are folders with libraries that the peer brings.
	Libraries []string `json:"libraries,omitempty"`
	// Found are the libraries that a peer was asked to look for.
	Found []library `json:"found,omitempty"`
	// Error says why there is no peer.
	Error string `json:"error,omitempty"`
}

const (
	maxNameBytes = 200
	maxPathBytes = 4096
	maxSaidBytes = 1000
)

// check refuses what would spoil a table, or the terminal that shows it.
func (h *hello) check() error {
	h.Error = clean(h.Error)
	if h.Error == "" && h.Name == "" {
		return errors.New("it says no name")
	}
	texts, paths := append([]string{h.Name, h.Kernel}, h.With...), slices.Clone(h.Libraries)
	for i := range h.Found {
		l := &h.Found[i]
		l.Error = clean(l.Error)
		texts, paths = append(texts, l.Name, l.Kernel), append(paths, l.Path)
	}
	return cmp.Or(checkPrintable(maxNameBytes, texts), checkPrintable(maxPathBytes, paths))
}

func checkPrintable(most int, texts []string) error {
	for _, text := range texts {
		if !plan.Printable(text, most) {
			return fmt.Errorf("it says %.80q: want at most %d bytes of printable text", text, most)
		}
	}
	return nil
}

// clean makes what another program said fit to be shown: one line, without control characters.
func clean(text string) string {
	words := strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) || r == utf8.RuneError })
	text = strings.Join(words, " ")
	if len(text) > maxSaidBytes {
		text = strings.ToValidUTF8(text[:maxSaidBytes], "") + "..."
	}
	return text
}

// answer is a line of a peer.
type answer struct {
	Seconds   float64 `json:"seconds"`
	PeakBytes int64   `json:"peak_bytes"`
	Loss      float64 `json:"loss"`
	Error     string  `json:"error,omitempty"`

	Losses []float64 `json:"losses,omitempty"` // of all steps, where these are few
	// The rest is of tasks with Profile: seconds by class of calls, what they computed, and the rate
	// of multiply-adds in registers alone right after them, in GFLOP/s.
	Classes    map[string]float64 `json:"classes,omitempty"`
	FLOPs      int64              `json:"flops,omitempty"`
	Arithmetic float64            `json:"gflops,omitempty"`
	// Of generated texts: what their first tokens took, and the tokens of the first one; of this program's side also the rate at which
	// memory was read right after them, as much of it as a step reads.
	PromptSeconds float64 `json:"prompt_seconds,omitempty"`
	Tokens        []int32 `json:"tokens,omitempty"`
	ReadRate      float64 `json:"read_gb_s,omitempty"`
	StepBytes     int64   `json:"step_bytes,omitempty"`
	// Of launches and copies: the figure, what it means, and what it cannot be measured without.
	Percent float64 `json:"percent,omitempty"`
	Note    string  `json:"note,omitempty"`
	Lacks   string  `json:"lacks,omitempty"`
}

// grace is how long a program that was ended may keep its output open: processes of its own have it.
const grace = 5 * time.Second

// startPeer runs a program and waits for its hello. Its last argument describes as JSON what it has to
// do. The error says what is missing. env holds variables besides this process's.
func startPeer(ctx context.Context, env []string, what any, program string, args ...string) (*peer, error) {
	return startPeerBy(ctx, (*exec.Cmd).Start, env, what, program, args...)
}

// startPeerBy does what startPeer does, and has start start the process.
func startPeerBy(ctx context.Context, start func(*exec.Cmd) error, env []string, what any, program string, args ...string) (*peer, error) {
	described, err := json.Marshal(what)
	if err != nil {
		return nil, err
	}
	p := &peer{cmd: exec.CommandContext(ctx, program, append(args, string(described))...)}
	p.cmd.Stderr, p.cmd.WaitDelay, p.cmd.Env = &p.errors, grace, append(os.Environ(), env...)
	in, inErr := p.cmd.StdinPipe()
	out, outErr := p.cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		return nil, err
	}
	p.in, p.pipe, p.out = in, out, bufio.NewReaderSize(out, maxAnswerBytes)
	if err := start(p.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	p.forget = context.AfterFunc(ctx, func() { _ = out.Close() }) // what it started may hold the other end
	if err := p.receive(&p.hello); err != nil {
		return nil, err
	}
	if err := p.hello.check(); err != nil {
		_ = p.close() // the error says why
		return nil, fmt.Errorf("first line of %s: %w", program, err)
	}
	if p.hello.Error != "" {
		_ = p.close() // says the same
		return nil, errors.New(p.hello.Error)
	}
	return p, nil
}

// asks returns the side that sends a request each round; nil without a peer. What it answers is a time
// that something can take.
func (p *peer) asks(request any) side {
	if p == nil {
		return nil
	}
	return func() (answer, error) {
		a, err := p.ask(request)
		if err == nil && !(a.Seconds > 1e-9 && a.Seconds < 1e9 && a.PeakBytes >= 0) {
			err = fmt.Errorf("%s says that it took %v s and %d bytes", p.hello.Name, a.Seconds, a.PeakBytes)
		}
		return a, err
	}
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
		return a, fmt.Errorf("%s: %s", p.hello.Name, clean(a.Error))
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
		_ = p.close() // the error says why
		return fmt.Errorf("answer of %s: %w", p.cmd.Path, err)
	}
	return nil
}

// close ends the peer, if there is one, by ending its input, and its output in case it still
// writes, and waits for it.
func (p *peer) close() error {
	if p == nil {
		return nil
	}
	p.ended.Do(func() {
		p.forget()
		_ = p.in.Close() // it may be gone already
		_ = p.pipe.Close()
		if err := p.cmd.Wait(); err != nil {
			p.end = fmt.Errorf("%s: %w%s", p.cmd.Path, err, p.errors.note())
		}
	})
	return p.end
}

// closing ends this program's own side, whose error counts where there is no other.
func closing(p *peer, err *error) {
	if closed := p.close(); *err == nil {
		*err = closed
	}
}

// tail keeps the end of what a peer wrote to its standard error.
type tail struct{ buf bytes.Buffer }

const tailBytes = 4 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.buf.Write(b)
	t.buf.Next(max(0, t.buf.Len()-tailBytes))
	return len(b), nil
}

// note returns the last line, in brackets. It comes after Wait, which ends the writing.
func (t *tail) note() string {
	lines := strings.Split(strings.TrimSpace(t.buf.String()), "\n")
	if last := clean(lines[len(lines)-1]); last != "" {
		return " (" + last + ")"
	}
	return ""
}
