package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"pnode/node/api"
	"pnode/node/config"
)

// inviteTTL covers the longest run.
const inviteTTL = 7 * 24 * time.Hour

// lastGrace is how long a node has to stop after another one has.
const lastGrace = 15 * time.Second

// member is one node of the fleet.
type member struct {
	number int
	dir    string
	run    *process // nil before the first start and after it was told to end
	away   time.Time
	back   func() error // ends the absence at away; nil where there is none
	told   bool         // its process is to end
	rotted bool         // its store was damaged since it joined
}

// fleet holds the nodes of a run.
type fleet struct {
	Options
	members []*member
	steps   chan progress
	over    chan struct{} // closed when nobody reads steps any more
	invite  string
	newest  progress
	gaps    []gap // between new steps
	alive   []span
	count   int // nodes alive now
}

// gap is the time between two new steps.
type gap struct{ from, to time.Time }

// span says how many nodes were alive from a time on.
type span struct {
	from  time.Time
	alive int
}

func newFleet(o Options) *fleet {
	f := &fleet{Options: o, steps: make(chan progress, 1024), over: make(chan struct{})}
	for i := range o.Nodes + 1 {
		f.members = append(f.members, &member{number: i, dir: config.NodeDir(o.Dir, i)})
	}
	return f
}

// found starts the run and the nodes that join it.
func (f *fleet) found(ctx context.Context) error {
	args := append([]string{"train", "--listen", "127.0.0.1:0", "--min-nodes", fmt.Sprint(f.Nodes), "--voters", "any", "--threads", "1"}, f.trainArgs()...)
	if f.Replicas != "" {
		args = append(args, "--replicas", f.Replicas)
	}
	if f.Stages != "" {
		args = append(args, "--stages", f.Stages)
	}
	if err := f.start(f.members[0], "", args); err != nil {
		return err
	}
	for f.invite == "" {
		if f.members[0].run.hasEnded() {
			return fmt.Errorf("chaos: the run did not begin: %s", lastLine(f.members[0].dir+logFile))
		}
		if client, err := api.Dial(ctx, f.members[0].dir); err == nil {
			f.invite, err = client.Invite(ctx, api.InviteRequest{TTL: inviteTTL, Uses: api.MaxInviteUses})
			client.Close()
			if err != nil && !errors.Is(err, api.ErrNotReady) {
				return fmt.Errorf("chaos: get an invite: %w", err)
			}
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	for _, m := range f.members[1:f.Nodes] {
		if err := f.enter(m); err != nil {
			return err
		}
	}
	return nil
}

// enter starts a node that joins, or comes back from its folder.
func (f *fleet) enter(m *member) error {
	switch {
	case m.number == 0:
		return f.start(m, "", []string{"train", "--resume", "--threads", "1"})
	case config.Belongs(m.dir):
		return f.start(m, "", []string{"join", "--threads", "1"})
	}
	return f.start(m, f.invite, []string{"join", "--listen", "127.0.0.1:0", "--threads", "1"})
}

func (f *fleet) start(m *member, invite string, args []string) (err error) {
	m.run, err = startProcess(f.over, f.Binary, m.dir, invite, f.Env, append(args, "--log-level", "debug"), f.steps)
	m.told, m.back = false, nil
	f.changed(1)
	return err
}

// changed notes that so many nodes more are alive.
func (f *fleet) changed(by int) {
	f.count += by
	f.alive = append(f.alive, span{time.Now(), f.count})
}

// awayNodes counts the nodes that are to come back.
func (f *fleet) awayNodes() (n int) {
	for _, m := range f.members {
		if m.back != nil {
			n++
		}
	}
	return n
}

// inject carries a fault out.
func (f *fleet) inject(x Fault) error {
	m := f.members[x.Node]
	until := func(back func() error) { m.away, m.back = time.Now().Add(x.Away), back }
	switch x.Kind {
	case Join:
		if err := f.enter(m); err != nil {
			return err
		}
		until(func() error { m.told, m.back = true, nil; f.changed(-1); return m.run.leave() })
		return nil
	case Pause:
		f.changed(-1)
		until(func() error { m.back = nil; f.changed(1); return m.run.resume() })
		return m.run.pause()
	case Leave:
		m.told = true
		f.changed(-1)
		until(func() error {
			if !m.run.hasEnded() {
				return nil // asked again at the next look
			}
			return f.enter(m)
		})
		return m.run.leave()
	}
	m.told = true
	f.changed(-1)
	m.run.kill()
	until(func() error { return f.enter(m) })
	switch x.Kind {
	case Wipe:
		return os.RemoveAll(m.dir)
	case Rot:
		m.rotted = true
		return rot(filepath.Join(m.dir, "store"), x.Draw)
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

// took takes a step in.
func (f *fleet) took(p progress) {
	if p.Step <= f.newest.Step {
		return
	}
	if f.newest.Step > 0 {
		f.gaps = append(f.gaps, gap{f.newest.at, p.at})
	}
	f.newest = p
}

// unexpected returns nodes whose processes ended without having been told to.
func (f *fleet) unexpected() (all []*member) {
	for _, m := range f.members {
		if m.run != nil && !m.told && m.run.hasEnded() {
			all = append(all, m)
		}
	}
	return all
}

// stop ends the run on all nodes with a checkpoint, those that are still leaving too.
func (f *fleet) stop(ctx context.Context) error {
	var failed error
	for _, m := range f.members {
		client, err := api.Dial(ctx, m.dir)
		if err != nil {
			continue
		}
		failed = client.Stop(ctx)
		client.Close()
		if failed == nil {
			break
		}
	}
	late := time.NewTimer(stopWithin)
	defer late.Stop()
	for left, before := f.running(), len(f.running()); len(left) > 0; left = f.running() {
		if len(left) < before { // one that was on its way in finds nobody to let it in
			before = len(left)
			late.Reset(lastGrace)
		}
		select {
		case p := <-f.steps:
			f.took(p)
		case <-left[0].run.ended:
		case <-late.C:
			for _, m := range left {
				_ = m.run.stdin.Close() // at whose end it leaves
			}
		case <-ctx.Done():
			return fmt.Errorf("chaos: node %d does not stop: %w", left[0].number, errors.Join(failed, ctx.Err()))
		}
	}
	return failed
}

// running returns the nodes whose processes have not ended.
func (f *fleet) running() (all []*member) {
	for _, m := range f.members {
		if m.run != nil && !m.run.hasEnded() {
			all = append(all, m)
		}
	}
	return all
}

// end ends all processes that are left.
func (f *fleet) end() {
	close(f.over)
	for _, m := range f.members {
		if m.run != nil {
			m.run.kill()
		}
	}
}

// dirs returns the folders of nodes that are there.
func (f *fleet) dirs() (dirs []string) {
	for _, m := range f.members {
		if config.Belongs(m.dir) {
			dirs = append(dirs, m.dir)
		}
	}
	return dirs
}

func lastLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
