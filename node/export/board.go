package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"pnode/node/api"
	"pnode/node/export/tfevents"
	"pnode/planner/plan"
)

// board writes TensorBoard's event files: one for each start, in the same folder.
type board struct {
	dir string
	*growing
	path   string
	begun  time.Time
	headed bool
	newest plan.Step // that was told; 0: none
}

// eventFiles begins the names of TensorBoard's files.
const eventFiles = "events.out.tfevents."

// newBoard makes the folder, and in it the event file of this start. TensorBoard reads the files of a folder in the order of their names,
// which begin with the time, as one run: a folder with another run's is refused.
func newBoard(dir string, files *own, now time.Time) (*board, error) {
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	err = os.MkdirAll(dir, 0o777)
	if other := otherRun(dir, files); other != "" {
		return nil, fmt.Errorf("--tensorboard is %s: it holds %s of another run: name another folder, or move its files away", dir, other)
	}
	name := fmt.Sprintf("%s%010d.%s.%d.pnode", eventFiles, now.Unix(), cmp.Or(plan.NameFrom(host), "localhost"), os.Getpid())
	path := filepath.Join(dir, name)
	var g *growing
	if err == nil {
		g, _, err = openGrowing(path)
	}
	if err != nil {
		return nil, fmt.Errorf("--tensorboard is %s: %w; name a folder that can be written to", dir, bare(err))
	}
	g.begin = func() error { return files.add(name) }
	return &board{dir: dir, growing: g, path: path, begun: now}, nil
}

// otherRun returns the name of an event file, if the folder has some and none of them is this run's.
func otherRun(dir string, files *own) (other string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "" // who writes there says so
	}
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case err != nil || !strings.HasPrefix(e.Name(), eventFiles) || info.Size() == 0: // a start without a step may leave an empty one
		case files.has(e.Name()):
			return ""
		default:
			other = e.Name()
		}
	}
	return other
}

func (b *board) batches() bool { return false }

func (b *board) name() string { return "--tensorboard " + b.dir }

// take keeps the scalars of an event. With the first step, and where steps are done again, what was written before of them does not count any
// more. Other events than steps may come late.
func (b *board) take(r Row) {
	scalars := Scalars(r.Event)
	if len(scalars) == 0 {
		return
	}
	if !b.headed {
		b.add(tfevents.AppendHeader(nil, b.begun))
		b.headed = true
	}
	if r.Kind == api.KindStep {
		if r.Step <= b.newest || b.newest == 0 {
			b.add(tfevents.AppendStart(nil, r.Time, uint64(r.Step)))
		}
		b.newest = r.Step
	}
	b.add(tfevents.AppendScalars(nil, r.Time, uint64(r.Step), scalars))
}

func (b *board) flush(context.Context) error { return b.growing.flush() }

// close removes the file where nothing came of it.
func (b *board) close(context.Context) error {
	err := b.file.Close()
	if b.end == 0 {
		err = errors.Join(err, os.Remove(b.path))
	}
	return bare(err)
}
