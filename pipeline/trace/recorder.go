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

// Recorder writes spans to a file. Its methods may be called at the same time, and on nil.
type Recorder struct {
	base time.Time

	mu    sync.Mutex // guards what follows
	file  *os.File
	out   *bufio.Writer
	line  []byte
	spans int
}

// Create begins a file, in place of one that is there.
func Create(path string) (*Recorder, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	r := &Recorder{base: time.Now(), file: file, out: bufio.NewWriterSize(file, 1<<16)}
	_, _ = r.out.WriteString("[\n{}") // errors stick until Close
	return r, nil
}

// Name records what people call a worker of a generation, and its peer.
func (r *Recorder) Name(worker int, name string, peer plan.PeerID) {
	if r == nil {
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
	if r != nil {
		s.Start, s.End = r.nanos(begin, end)
		r.put(s)
	}
}

func (r *Recorder) put(s Timed) {
	row := 0
	if s.Action.Op == schedule.Reduce {
		row = rowOf(reductionsRow, s.Action.Replica, s.Action.Stage)
	}
	r.write(line{
		name: s.Action.String(), category: s.Action.Op.String(), start: s.Start, end: s.End,
		worker: s.Worker, row: row, generation: s.Generation, step: s.Step, segments: s.Segments,
	})
}

// line is an event of a file, with names that need no quoting.
type line struct {
	name, category        string
	start, end            int64 // nanoseconds since 1970
	worker, row, segments int
	generation            plan.Generation
	step                  plan.Step
}

func (r *Recorder) write(l line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.spans++; r.spans > MaxSpans {
		return
	}
	b := append(r.line[:0], ",\n{\"name\":\""...)
	b = append(b, l.name...)
	b = append(append(b, "\",\"cat\":\""...), l.category...)
	b = micros(append(b, "\",\"ph\":\"X\",\"ts\":"...), l.start)
	b = micros(append(b, ",\"dur\":"...), l.end-l.start)
	b = strconv.AppendInt(append(b, ",\"pid\":"...), int64(l.worker), 10)
	b = strconv.AppendInt(append(b, ",\"tid\":"...), int64(l.row), 10)
	b = strconv.AppendUint(append(b, ",\"args\":{\"generation\":"...), uint64(l.generation), 10)
	b = strconv.AppendUint(append(b, ",\"step\":"...), uint64(l.step), 10)
	if l.segments > 1 {
		b = strconv.AppendInt(append(b, ",\"segments\":"...), int64(l.segments), 10)
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
	if r == nil {
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
