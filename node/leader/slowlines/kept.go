package slowlines

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"time"

	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
	"pnode/swarm/twofold"
)

const (
	// linesFile has the slow lines that a node has seen, so that it need not see them again after a restart. It asks nobody else
	// for them, who could slander any.
	linesFile = "slow-lines"
	// mostKept bounds the lines in it, those of a plan of 500 devices in a row, both ways.
	mostKept = 1000
	// maxLinesBytes bounds the file, maxPeerBytes and maxFigure what a line says.
	maxLinesBytes = 512 << 10
	maxPeerBytes  = 128
	maxFigure     = int64(1e15)
	// keepEvery is how often it is written for the moments alone at which lines were used last.
	keepEvery = 2 * time.Minute
)

// keptLine is a slowLine in the file.
type keptLine struct {
	From        plan.PeerID    `json:"from"`
	To          plan.PeerID    `json:"to"`
	BytesPerS   int64          `json:"bytes_per_s"`
	RTTNanos    int64          `json:"rtt_ns"`
	JitterNanos int64          `json:"jitter_ns"`
	Transport   plan.Transport `json:"transport,omitempty"`
	UsedUnix    int64          `json:"used"` // seconds since 1970
	Times       int            `json:"times"`
}

// decode reads a file, and refuses one that this package would not write.
func decode(data []byte) (kept []keptLine, err error) {
	if err := strict.Decode(data, &kept); err != nil {
		return nil, fmt.Errorf("slowlines: %s: %w", linesFile, err)
	}
	if len(kept) > mostKept {
		return nil, fmt.Errorf("slowlines: %s: %d lines, at most %d are kept", linesFile, len(kept), mostKept)
	}
	for i, k := range kept {
		figures := []int64{k.BytesPerS, k.RTTNanos, k.JitterNanos, k.UsedUnix, int64(k.Times) - 1}
		if slices.Min(figures) < 0 || slices.Max(figures) > maxFigure || k.From == "" || k.To == "" || k.From == k.To || max(len(k.From), len(k.To), len(k.Transport)) > maxPeerBytes {
			return nil, fmt.Errorf("slowlines: %s: line %d is out of bounds", linesFile, i)
		}
	}
	return kept, nil
}

// File keeps what is known of slow lines in a node's folder. Its methods may not be called concurrently.
type File struct {
	dir     string
	log     *slog.Logger
	changes int // of the lines when they were written
	at      time.Time
	failing bool
}

// InFolder returns the file in a folder; "" keeps nothing.
func InFolder(dir string, log *slog.Logger) *File { return &File{dir: dir, log: log} }

// Load has lines count as the process before has seen them, for as long after they were used as without a restart. A file that cannot be
// read counts as none.
func (f *File) Load(l *Lines, now time.Time) {
	if f.dir == "" {
		return
	}
	kept, err := twofold.Read(f.dir, linesFile, maxLinesBytes, decode)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			f.log.Info("slow lines have to be seen anew", "cause", err)
		}
		return
	}
	l.slow = map[[2]plan.PeerID]*slowLine{}
	for _, k := range kept {
		s := slowLine{known: true, used: time.Unix(k.UsedUnix, 0), times: k.Times}
		s.seen.From, s.seen.To, s.seen.Transport = k.From, k.To, k.Transport
		s.seen.BytesPerS, s.seen.RTTNanos, s.seen.JitterNanos = k.BytesPerS, k.RTTNanos, k.JitterNanos
		if s.used.After(now) { // by a clock that was ahead
			s.used = now
		}
		l.slow[[2]plan.PeerID{k.From, k.To}] = &s
	}
	l.changes = 1
	l.forget(now)
	f.changes, f.at = 1, now
}

// Keep writes lines where they are others than in the file, or where it may have them as unused for long.
func (f *File) Keep(l *Lines, now time.Time) {
	known := l.With(nil)
	if f.dir == "" || f.changes == l.changes && (len(known) == 0 || now.Sub(f.at) < keepEvery) {
		return
	}
	kept := make([]keptLine, 0, len(known))
	for _, s := range known {
		k := l.slow[[2]plan.PeerID{s.From, s.To}]
		kept = append(kept, keptLine{s.From, s.To, s.BytesPerS, s.RTTNanos, s.JitterNanos, s.Transport, k.used.Unix(), k.times})
	}
	slices.SortStableFunc(kept, func(a, b keptLine) int { return cmp.Compare(b.UsedUnix, a.UsedUnix) })
	b, err := json.Marshal(kept[:min(len(kept), mostKept)])
	if err == nil {
		err = twofold.Write(f.dir, linesFile, b)
	}
	if err != nil && !f.failing {
		f.log.Warn("a restart has to see slow lines anew", "cause", err)
	}
	f.failing, f.changes, f.at = err != nil, l.changes, now // also where it failed: a full disk is not written to at each look
}
