package export

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"pnode/node/api"
)

// columns of a CSV file. The time is in seconds since 1970.
var columns = []string{
	"time", "generation", "step", "loss", "held_out", "held_out_float32", "learning_rate", "gradient_norm", "tokens_per_second", "step_seconds", "memory_bytes",
}

// table is a CSV file of steps.
type table struct {
	path string
	*growing
	files        *own
	headed, rows bool // has a header, and a row
}

// newTable opens a file of an earlier start, or makes one. An unfinished line at its end, as a crash leaves one, is cut. Another run's file is
// refused.
func newTable(path string, files *own) (_ *table, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("--csv is %s: %w", path, err)
		}
	}()
	g, f, err := openGrowing(path)
	if err != nil {
		return nil, fmt.Errorf("%w; name a file in a folder that is there and can be written to", err)
	}
	t := &table{path: path, growing: g, files: files}
	if g.regular && g.end > 0 {
		if err := t.goOn(f); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return t, nil
}

// header is the first line.
func header() string { return strings.Join(columns, ",") + "\n" }

// goOn looks at what the file holds, and leaves it at its end.
func (t *table) goOn(f *os.File) error {
	lines := bufio.NewReader(io.NewSectionReader(f, 0, longestLine))
	first, err := lines.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return bare(err)
	}
	switch {
	case first == header():
		if t.end, err = wholeLines(f, t.end); err != nil {
			return err
		}
		row, err := lines.ReadString('\n')
		t.headed, t.rows = true, err == nil
		if t.rows && !t.files.has(row) {
			return fmt.Errorf("it holds the rows of another run, or of this one from before its folder kept %s: name another file, or move this one away; rows from now on have the same columns", OwnFile)
		}
		if t.rows { // or marks of event files, one a start, drive it out
			if err := t.files.add(row); err != nil {
				return err
			}
		}
	case strings.HasPrefix(header(), first): // all that an earlier start wrote, on a full disk
		t.end = 0
	default:
		return errors.New("it holds other columns: name another file, or move this one away")
	}
	if err := f.Truncate(t.end); err != nil {
		return bare(err)
	}
	_, err = f.Seek(t.end, io.SeekStart)
	return bare(err)
}

// longestLine bounds what is looked at for the end of the last whole line.
const longestLine = 64 << 10

// wholeLines returns the size of a file without an unfinished line at its end.
func wholeLines(f *os.File, size int64) (int64, error) {
	from := max(0, size-longestLine)
	tail := make([]byte, size-from)
	if _, err := f.ReadAt(tail, from); err != nil {
		return size, bare(err)
	}
	end := bytes.LastIndexByte(tail, '\n')
	if end < 0 {
		return size, errors.New("it has no lines: name another file, or move this one away")
	}
	return from + int64(end) + 1, nil
}

func (t *table) batches() bool { return false }

func (t *table) name() string { return "--csv " + t.path }

// take keeps the row of a step; other events have none.
func (t *table) take(r Row) {
	if r.Kind != api.KindStep {
		return
	}
	b := strconv.AppendFloat(nil, float64(r.Time.UnixMilli())/1e3, 'f', 3, 64)
	b = strconv.AppendUint(append(b, ','), uint64(r.Generation), 10)
	b = strconv.AppendUint(append(b, ','), uint64(r.Step), 10)
	for _, v := range []*float64{
		&r.Loss, r.HeldOut, r.HeldOutF32, known(r.LearningRate), r.GradientNorm, known(r.TokensPerS), known(r.StepS),
	} {
		if b = append(b, ','); v != nil && !math.IsNaN(*v) && !math.IsInf(*v, 0) {
			b = strconv.AppendFloat(b, *v, 'g', -1, 64)
		}
	}
	if b = append(b, ','); r.MemoryBytes > 0 {
		b = strconv.AppendInt(b, r.MemoryBytes, 10)
	}
	b = append(b, '\n')
	if !t.headed {
		t.add([]byte(header()))
	}
	if !t.rows && t.regular { // by which a later start knows the file
		t.begin = func() error { return t.files.add(string(b)) }
	}
	t.headed, t.rows = true, true
	t.add(b)
}

// known returns a number, nil where it is 0 and so not known.
func known(x float64) *float64 {
	if x == 0 {
		return nil
	}
	return &x
}

func (t *table) flush(context.Context) error { return t.growing.flush() }

func (t *table) close(context.Context) error { return bare(t.file.Close()) }
