package ledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"pnode/planner/plan"
)

// FileName is the ledger in a node's folder.
const FileName = "ledger"

const (
	// syncEvery is how much of the ledger the end of the machine may cost.
	syncEvery = 5 * time.Second
	// maxFileBytes bounds what Read takes into memory: about 20 million steps.
	maxFileBytes = 1 << 30
)

// Recorder appends to the ledger of a node. Its methods may be called concurrently. A write that fails is logged
// once, and training goes on: the commit in other nodes' ledgers vouches for this one.
type Recorder struct {
	dir  string
	head Head
	log  *slog.Logger

	mu      sync.Mutex               // guards what follows
	file    *os.File                 // nil before the first record
	works   map[plan.WorkerID]uint64 // newest one written, by its key
	tellers map[Teller]uint64        // written, by their keys
	memory  memory
	dirty   bool
	failed  bool
}

// New returns the recorder of the ledger in a node's folder, which the first record opens, or makes where there is none. It
// knows what is in the ledger from before.
func New(dir string, head Head, log *slog.Logger) *Recorder {
	return &Recorder{dir: dir, head: head, log: log, works: map[plan.WorkerID]uint64{}, tellers: map[Teller]uint64{}, memory: recall(dir)}
}

// Follow records which lineage the log is of that the plans from now on are from, where that is another one than before. What this node
// wrote of generations since the two parted is given up: others are not told of it, and are asked for what the lineage has in its place.
// It returns the newest generation that both have; parted is false where the lineage is the one of before.
func (r *Recorder) Follow(p plan.Partings) (shared plan.Generation, parted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	shared, parted = r.memory.lineage.Since(p)
	if !parted {
		return 0, false
	}
	clear(r.works)
	r.memory.giveUp(shared, p)
	r.append(appendJSON(nil, kindLineage, Lineage{p}))
	return shared, true
}

// Plan records a plan of the log.
func (r *Recorder) Plan(p plan.Plan, reasons []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.works)
	planned := Planned{Plan: p, Reasons: reasons}
	r.memory.plan(planned)
	r.append(appendJSON(nil, kindPlan, planned))
}

// Step records a committed step of a worker, with its work where that is not what it was.
func (r *Recorder) Step(w Work, c Commit) {
	payload := marshal(w)
	key := keyOf(payload)
	r.mu.Lock()
	defer r.mu.Unlock()
	var b []byte
	if before, known := r.works[w.Worker]; !known || before != key {
		b = appendRecord(b, kindWork, payload)
		r.works[w.Worker] = key
	}
	r.memory.took(w, c)
	r.append(appendEntry(b, key, c))
}

// Outer records an outer step of the log, once.
func (r *Recorder) Outer(o Outer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.memory.reached[o.Generation] >= o.To {
		return
	}
	r.memory.merged(o)
	r.append(appendJSON(nil, kindOuter, o))
}

// append writes records in one call of the system; the caller holds mu.
func (r *Recorder) append(b []byte) {
	if err := r.write(b); err != nil {
		clear(r.works)
		clear(r.tellers)
		if !r.failed {
			r.log.Warn("the ledger here lacks steps: training goes on, and those of other nodes vouch for them", "cause", err)
		}
		r.failed = true
		return
	}
	r.dirty, r.failed = true, false
}

func (r *Recorder) write(b []byte) (err error) {
	if r.file == nil {
		r.file, err = os.OpenFile(filepath.Join(r.dir, FileName), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		b = append(appendJSON(nil, kindHead, r.head), b...)
	}
	return appendWhole(r.file, b)
}

// appendable has the methods of a file opened to append that appendWhole uses.
type appendable interface {
	io.Writer
	Stat() (fs.FileInfo, error)
	Truncate(size int64) error
}

// appendWhole appends all of b to a file or nothing: what a full disk has taken of it is cut off again.
func appendWhole(f appendable, b []byte) error {
	taken, err := f.Write(b)
	if err == nil || taken == 0 {
		return err
	}
	info, unknown := f.Stat()
	if unknown != nil {
		return errors.Join(err, unknown)
	}
	return errors.Join(err, f.Truncate(info.Size()-int64(taken)))
}

// Run brings the ledger to the disk every syncEvery until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r.mu.Lock()
		dirty, file := r.dirty, r.file
		r.dirty = false
		r.mu.Unlock()
		if dirty {
			if err := file.Sync(); err != nil && !errors.Is(err, os.ErrClosed) {
				r.log.Warn("the ledger is not on the disk", "cause", err)
			}
		}
	}
}

// Close brings the ledger to the disk and closes it.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil {
		return nil
	}
	return errors.Join(r.file.Sync(), r.file.Close())
}

// Read reads the ledger in a node's folder, while the node runs or after. The error wraps fs.ErrNotExist where there is
// none.
func Read(dir string) (Contents, error) {
	f, err := os.Open(filepath.Join(dir, FileName))
	if err != nil {
		return Contents{}, fmt.Errorf("ledger: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return Contents{}, fmt.Errorf("ledger: read: %w", err)
	}
	if len(b) > maxFileBytes {
		return Contents{}, fmt.Errorf("ledger: %s is over %d bytes: it is no node's ledger", f.Name(), maxFileBytes)
	}
	return Decode(b), nil
}
