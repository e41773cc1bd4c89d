package trace

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// MaxSpans bounds the spans of a file; further ones are left out.
const MaxSpans = 1 << 20

// Recorder writes spans to a file, and hands them on. Its methods may be called at the same time, and on nil.
type Recorder struct {
	base time.Time
	// to gets the spans of each step that is a multiple of every, and of the one that follows; nil: nobody does.
	to    func(Span)
	every plan.Step

	mu    sync.Mutex // guards what follows
	file  *os.File   // nil for none
	out   *bufio.Writer
	line  []byte
	spans int
}

// Create begins a file, in place of one that is there.
func Create(path string) (*Recorder, error) { return Open(path, 1, nil) }

// Open begins a file, in place of one that is there, where a path is given. It hands the spans of every so many steps to a function, if there is
// one, and those of the steps right after them, which tell that a worker is done with the step before. Workers call it, at the same time: it
// must be quick.
func Open(path string, every plan.Step, to func(Span)) (*Recorder, error) {
	r := &Recorder{base: time.Now(), to: to, every: max(every, 1)}
	if path == "" {
		return r, nil
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	r.file, r.out = file, bufio.NewWriterSize(file, 1<<16)
	_, _ = r.out.WriteString("[\n{}") // errors stick until Close
	return r, nil
}

// Name records what people call a worker of a generation, and its peer.
func (r *Recorder) Name(worker int, name string, peer plan.PeerID) {
	if r == nil || r.file == nil {
		return
	}
	args, err := json.Marshal(map[string]any{"name": name, "peer": peer})
	if err != nil {
		panic("trace: a string does not marshal: " + err.Error())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, ",\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"args\":%s}", worker, args)
}

// Add writes a span that began and ended at these times of this process.
func (r *Recorder) Add(s Timed, begin, end time.Time) {
	if r.wants(s.Step) {
		s.Start, s.End = r.nanos(begin, end)
		r.put(s)
	}
}

// wants reports whether somebody takes the spans of a step. Others cost nothing.
func (r *Recorder) wants(step plan.Step) bool {
	return r != nil && (r.file != nil || r.handsOn(step))
}

func (r *Recorder) handsOn(step plan.Step) bool { return r.to != nil && step%r.every <= 1 }

func (r *Recorder) put(s Timed) {
	row := 0
	if s.Action.Op == schedule.Reduce {
		row = rowOf(reductionsRow, s.Action.Replica, s.Action.Stage)
	}
	r.write(Span{
		Name: s.Action.String(), Category: s.Action.Op.String(), Start: s.Start, End: s.End,
		Worker: s.Worker, Row: row, Generation: s.Generation, Step: s.Step, Segments: s.Segments,
	})
}

// Span says what a worker did for some time: an action or a copy, with names that need no quoting.
type Span struct {
	Name, Category string
	Start, End     int64 // nanoseconds since 1970
	// Worker is its number in the plan. Row is 0 for its program, and another one for each thing that goes on beside it.
	Worker, Row int
	// Segments are those of an action that has several; 0 for copies.
	Segments   int
	Generation plan.Generation
	Step       plan.Step
}

func (r *Recorder) write(l Span) {
	if r.handsOn(l.Step) {
		r.to(l)
	}
	if r.file == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.spans++; r.spans > MaxSpans {
		return
	}
	b := append(r.line[:0], ",\n{\"name\":\""...)
	b = append(b, l.Name...)
	b = append(append(b, "\",\"cat\":\""...), l.Category...)
	b = micros(append(b, "\",\"ph\":\"X\",\"ts\":"...), l.Start)
	b = micros(append(b, ",\"dur\":"...), l.End-l.Start)
	b = strconv.AppendInt(append(b, ",\"pid\":"...), int64(l.Worker), 10)
	b = strconv.AppendInt(append(b, ",\"tid\":"...), int64(l.Row), 10)
	b = strconv.AppendUint(append(b, ",\"args\":{\"generation\":"...), uint64(l.Generation), 10)
	b = strconv.AppendUint(append(b, ",\"step\":"...), uint64(l.Step), 10)
	if l.Segments > 1 {
		b = strconv.AppendInt(append(b, ",\"segments\":"...), int64(l.Segments), 10)
	}
	r.line = append(b, "}}"...)
	_, _ = r.out.Write(r.line)
}

// nanos returns times since 1970 that do not jump when the clock is set, the second not before the first.
func (r *Recorder) nanos(begin, end time.Time) (int64, int64) {
	start := r.base.UnixNano() + begin.Sub(r.base).Nanoseconds()
	return start, start + max(0, end.Sub(begin).Nanoseconds())
}

// micros appends nanoseconds as microseconds.
func micros(b []byte, nanos int64) []byte {
	b = strconv.AppendInt(b, nanos/1000, 10)
	rest := nanos % 1000
	return append(b, '.', byte('0'+rest/100), byte('0'+rest/10%10), byte('0'+rest%10))
}

// Close ends the file. The error is the first of all writes.
func (r *Recorder) Close() error {
	if r == nil || r.file == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = r.out.WriteString("\n]\n")
	if err := errors.Join(r.out.Flush(), r.file.Close()); err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	return nil
}
