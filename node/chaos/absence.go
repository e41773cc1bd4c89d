package chaos

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"pnode/planner/plan"
)

// leaveWithin is how long a node may take to hand over and end: a cloud gives no more.
const leaveWithin = noticeTime

// absence is a fault from its begin until its node takes part again.
type absence struct {
	Fault
	until time.Time // zero while a node that leaves has not ended
	late  time.Time // when one that leaves should have ended
	back  func() error
	// stops has the process stopped and continued in turn; stopped says which it is now.
	stops, stopped bool
}

// inject carries a fault out.
func (f *fleet) inject(x Fault) error {
	m, now := f.members[x.Node], time.Now()
	m.absent = &absence{Fault: x, until: now.Add(x.Away)}
	switch x.Kind {
	case Join:
		m.absent.back = func() error { return f.depart(m, Fault{Kind: Leave, Node: x.Node}, nil) }
		return f.enter(m)
	case Leave, Notice:
		return f.depart(m, x, func() error { return f.enter(m) })
	case Pause:
		f.changed(-1)
		m.absent.back = func() error { f.changed(1); return m.run.resume() }
		return m.run.pause()
	case Slow:
		end, err := f.lines.disturb(x)
		if end == nil {
			f.changed(-0.5)
			end = func() error { f.changed(0.5); return m.run.resume() }
			m.absent.stops = true
		}
		m.absent.back = end
		return err
	case Full:
		m.filled = true
		end, err := f.lines.disturb(x)
		m.absent.back = func() error {
			if err := end(); err != nil || !m.told {
				return err
			}
			return f.enter(m)
		}
		return err
	case Cut, OneWay:
		end, err := f.lines.disturb(x)
		f.changed(-1)
		m.absent.back = func() error { f.changed(1); return end() }
		return err
	}
	m.told = true
	f.changed(-1)
	m.run.kill()
	m.absent.back = func() error { return f.enter(m) }
	switch x.Kind {
	case Wipe:
		return wipe(m.dir)
	case Rot:
		m.rotted = true
		return rot(filepath.Join(m.dir, "store"), x.Draw)
	}
	return nil
}

// depart has a node hand over and end: by a signal, or by the word of its cloud.
func (f *fleet) depart(m *member, x Fault, back func() error) error {
	m.told = true
	m.absent = &absence{Fault: x, late: time.Now().Add(leaveWithin), back: back}
	if x.Kind == Notice {
		m.cloud.take(m.absent.late)
		return nil
	}
	return m.run.leave()
}

// goOn looks at an absence: whether its node has left, is to be stopped or continued, or comes back.
func (f *fleet) goOn(m *member, now time.Time) error {
	a := m.absent
	switch {
	case a == nil:
		return nil
	case a.until.IsZero() && m.run.hasEnded():
		f.changed(-1)
		if code := m.run.cmd.ProcessState.ExitCode(); code != 0 {
			f.early++
			f.Tell(fmt.Sprintf("%v: it ended with code %d: %s", a.Fault, code, lastLine(m.dir+logFile)))
		}
		a.until = now.Add(a.Away)
	case a.until.IsZero() && now.After(a.late):
		return fmt.Errorf("%w: node %d has not left within %s", ErrFailed, m.number, plan.Duration(leaveWithin))
	case a.until.IsZero():
	case now.After(a.until):
		m.absent = nil
		if a.back != nil {
			return a.back()
		}
	case a.stops:
		a.stopped = !a.stopped
		if a.stopped {
			return m.run.pause()
		}
		return m.run.resume()
	}
	return nil
}

// returnAll brings all nodes back that are away, but for those on their way out.
func (f *fleet) returnAll() (err error) {
	for _, m := range f.members {
		if a := m.absent; a != nil && a.back != nil && !a.until.IsZero() {
			m.absent = nil
			err = errors.Join(err, a.back())
		}
	}
	return err
}

// wipe deletes all that is in a folder, which may be a disk of its own.
func wipe(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	if err != nil {
		return fmt.Errorf("chaos: delete what a node has: %w", err)
	}
	return nil
}

// rot flips eight bits of one file below dir.
func rot(dir string, seed uint64) error {
	var files []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		if info, err := e.Info(); err == nil && info.Size() > 0 {
			files = append(files, path)
		}
		return nil
	})
	if err != nil || len(files) == 0 {
		return err
	}
	draw := rand.New(rand.NewPCG(seed, 1))
	path := files[draw.IntN(len(files))]
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("chaos: damage a store: %w", err)
	}
	for range 8 {
		b[draw.IntN(len(b))] ^= 1 << draw.IntN(8)
	}
	return os.WriteFile(path, b, 0o600)
}
