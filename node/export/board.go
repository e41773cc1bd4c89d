package export

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"pnode/node/api"
	"pnode/node/export/tfevents"
	"pnode/planner/plan"
)

// board writes TensorBoard's event files: one for each start, in the same folder.
type board struct {
	dir string
	*growing
	newest plan.Step // that was told; 0: none
}

// newBoard makes the folder, and in it the event file of this start. TensorBoard reads the files of a folder in the order of their names,
// which begin with the time.
func newBoard(dir string, now time.Time) (*board, error) {
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	err = os.MkdirAll(dir, 0o777)
	var g *growing
	if err == nil {
		name := fmt.Sprintf("events.out.tfevents.%010d.%s.%d.pnode", now.Unix(), cmp.Or(plan.NameFrom(host), "localhost"), os.Getpid())
		g, _, err = openGrowing(filepath.Join(dir, name))
	}
	if err != nil {
		return nil, fmt.Errorf("--tensorboard is %s: %w; name a folder that can be written to", dir, bare(err))
	}
	g.add(tfevents.AppendHeader(nil, now))
	return &board{dir: dir, growing: g}, nil
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
	if r.Kind == api.KindStep {
		if r.Step <= b.newest || b.newest == 0 {
			b.add(tfevents.AppendStart(nil, r.Time, uint64(r.Step)))
		}
		b.newest = r.Step
	}
	b.add(tfevents.AppendScalars(nil, r.Time, uint64(r.Step), scalars))
}

func (b *board) flush(context.Context) error { return b.growing.flush() }

func (b *board) close(context.Context) error { return bare(b.file.Close()) }
