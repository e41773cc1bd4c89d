package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"pnode/node/api"
	"pnode/node/config"
	"pnode/planner/plan"
)

// inviteTTL covers the longest run.
const inviteTTL = 7 * 24 * time.Hour

// lastGrace is how long a node has to stop after another one has.
const lastGrace = 15 * time.Second

// member is one node of the fleet.
type member struct {
	number int
	dir    string
	at     machine
	cloud  *cloud
	run    *process // nil before the first start
	absent *absence // nil while it takes part
	told   bool     // its process is to end
	rotted bool     // its store was damaged since it joined
	filled bool     // its disk was full since its process began
}

// fleet holds the nodes of a run.
type fleet struct {
	Options
	lines   network
	members []*member
	steps   chan progress
	told    chan told
	heard   []told
	over    chan struct{} // closed when nobody reads steps any more
	invite  string
	newest  progress
	gaps    []gap // between new steps
	alive   []span
	count   float64 // nodes alive now
	early   int     // nodes that left without handing over
}

// gap is the time between two new steps, and the generation of the later one.
type gap struct {
	from, to   time.Time
	generation plan.Generation
}

// span says how many nodes were alive from a time on; one that is stopped half of the time counts half.
type span struct {
	from  time.Time
	alive float64
}

// newFleet returns the nodes of a run, none of which is started, with a cloud for each.
func newFleet(o Options, n network) (*fleet, error) {
	f := &fleet{Options: o, lines: n, steps: make(chan progress, 1024), told: make(chan told, 64), over: make(chan struct{})}
	for i := range o.Nodes + 1 {
		m := &member{number: i, dir: config.NodeDir(o.Dir, i), at: n.machine(i)}
		if err := n.furnish(m.dir); err != nil {
			f.end()
			return nil, err
		}
		l, err := m.at.listen()
		if err != nil {
			f.end()
			return nil, fmt.Errorf("chaos: a metadata service for node %d: %w", i, err)
		}
		m.cloud = newCloud(l)
		f.members = append(f.members, m)
	}
	return f, nil
}

// client returns a connection to a running node.
func (m *member) client(ctx context.Context) (*api.Client, error) {
	return api.DialThrough(ctx, m.dir, func(_ context.Context, network, address string) (net.Conn, error) { return m.at.dial(network, address) })
}

// leads reports whether the node leads the run, as far as it knows.
func (m *member) leads(ctx context.Context) bool {
	client, err := m.client(ctx)
	if err != nil {
		return false
	}
	defer client.Close()
	status, err := client.Status(ctx)
	return err == nil && status.Peer == status.Leader
}

// found starts the run and the nodes that join it.
func (f *fleet) found(ctx context.Context) error {
	args := append([]string{"train", "--listen", f.lines.listenAt(), "--min-nodes", fmt.Sprint(f.Nodes), "--voters", "any", "--threads", "1"}, f.trainArgs()...)
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
		if client, err := f.members[0].client(ctx); err == nil {
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
	return f.start(m, f.invite, []string{"join", "--listen", f.lines.listenAt(), "--threads", "1"})
}

// start starts a node with an invite, "" for none.
func (f *fleet) start(m *member, invite string, args []string) (err error) {
	m.cloud.take(time.Time{})
	args = append(args, "--log-level", "debug", "--notices", "aws="+m.cloud.url)
	if f.Emulate != "" {
		args = append(args, "--emulate", f.Emulate)
	}
	env := append(slices.Clone(f.Env), config.InviteEnv+"="+invite)
	m.run, err = launch{on: m.at, binary: f.Binary, dir: m.dir, args: args, env: env}.begin(f.over, f.steps)
	m.told, m.filled = false, false
	f.changed(1)
	if err == nil {
		go f.hear(m, m.run)
	}
	return err
}

// changed notes that so many nodes more are alive.
func (f *fleet) changed(by float64) {
	f.count += by
	f.alive = append(f.alive, span{time.Now(), f.count})
}

// absentNodes counts the nodes that are to come back.
func (f *fleet) absentNodes() (n int) {
	for _, m := range f.members {
		if m.absent != nil {
			n++
		}
	}
	return n
}

// isFree reports whether no node of a fault is away.
func (f *fleet) isFree(x Fault) bool {
	return !slices.ContainsFunc(f.members, func(m *member) bool { return m.absent != nil && x.involves(m.number) })
}

// took takes a step in.
func (f *fleet) took(p progress) {
	if p.Step <= f.newest.Step {
		return
	}
	if f.newest.Step > 0 {
		f.gaps = append(f.gaps, gap{f.newest.at, p.at, p.Generation})
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
		client, err := m.client(ctx)
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
		case <-f.told:
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
		m.cloud.close()
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
