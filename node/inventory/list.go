package inventory

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/checkpoint"
	"pnode/node/api"
	"pnode/node/config"
	"pnode/node/plain"
	"pnode/planner/plan"
)

// The states of a node besides those of api.Status, which one that answers has.
const (
	// Starting: a process has the folder, and does not say yet, or not any more, where it is asked.
	Starting = "starting or ending"
	// Silent: a process has the folder, and does not answer in time.
	Silent = "does not answer"
	// Interrupted: it ended before its run did.
	Interrupted = "interrupted"
	// Finished: the run is.
	Finished = "finished"
)

// Node holds what is known of the node in a folder.
type Node struct {
	Dir  string     `json:"dir"`
	Run  plan.RunID `json:"run"`
	Name string     `json:"name"`
	// Running: its process answers, or at least has the folder, see Starting and Silent.
	Running bool   `json:"running"`
	State   string `json:"state"`
	// Waiting says why nothing moves; empty while it does.
	Waiting string `json:"waiting,omitempty"`
	// Step of Steps is the newest that is known: of a node that ended, the one of its newest checkpoint.
	Step  plan.Step `json:"step"`
	Steps plan.Step `json:"steps"`
	// PID is 0 where no process runs.
	PID int `json:"pid,omitempty"`
	// Since is when a node that runs was started, or when one that does not was last heard of; zero: not known.
	Since time.Time `json:"since,omitzero"`
	// Next is the command that shows a node that runs, or goes on with one that does not.
	Next string `json:"next"`
}

// Membership holds what a folder says of the node and its run.
type Membership struct {
	Run      plan.RunID
	Name     string
	Steps    plan.Step // of the run; 0: not known
	Finished plan.Step // 0: it is not
	Next     string    // the command to go on with it
}

// Inventory finds nodes.
type Inventory struct {
	Register Register
	// Root is config.DefaultDir: its runs are found without the register.
	Root string
	// Look reads the membership of a folder; an error means that it holds none.
	Look func(dir string) (Membership, error)
}

// Folders returns the folders of nodes, newest start first, each once.
func (i Inventory) Folders() []Entry {
	all := i.Register.Entries()
	runs, _ := config.RunDirs(i.Root) // those of the register are there all the same
	for _, run := range runs {
		for _, dir := range append(config.NodeDirs(run), run) {
			if !slices.ContainsFunc(all, func(e Entry) bool { return e.Folder == dir }) {
				all = append(all, Entry{Folder: dir})
			}
		}
	}
	return slices.DeleteFunc(all, func(e Entry) bool { return !config.Belongs(e.Folder) })
}

// most asks this many nodes at the same time.
const most = 8

// answersWithin bounds the wait for a node: the others are listed as well where one hangs.
const answersWithin = 2 * time.Second

// List returns all nodes that are known: those that run first, each group by the newest start.
func (i Inventory) List(ctx context.Context) []Node {
	folders := i.Folders()
	found := make([]*Node, len(folders))
	var g errgroup.Group
	g.SetLimit(most)
	for at, e := range folders {
		g.Go(func() error {
			found[at] = i.node(ctx, e)
			return nil
		})
	}
	_ = g.Wait() // none fails
	var running, ended []Node
	for _, n := range found {
		switch {
		case n == nil:
		case n.Running:
			running = append(running, *n)
		default:
			ended = append(ended, *n)
		}
	}
	return append(running, ended...)
}

// node returns what is known of one folder, nil for nothing.
func (i Inventory) node(ctx context.Context, e Entry) *Node {
	m, err := i.Look(e.Folder)
	if err != nil {
		return nil
	}
	n := &Node{Dir: e.Folder, Run: m.Run, Name: m.Name, Steps: m.Steps, Next: m.Next}
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	client, err := api.Dial(ctx, e.Folder)
	if err == nil {
		defer client.Close()
		var st api.Status
		if st, err = client.BriefStatus(ctx); err == nil {
			n.fill(st, client.PID(), e)
			return n
		}
	}
	left := checkpoint.Peek(filepath.Join(e.Folder, "store"))
	n.Step, n.Since = max(left.Newest, m.Finished), changed(filepath.Join(e.Folder, config.MembershipFile))
	switch {
	case left.InUse:
		n.State, n.Running, n.Since, n.PID = Starting, true, e.Started, left.PID
		if errors.Is(err, api.ErrUnreachable) {
			n.State = Silent
		}
		n.Next = "pnode status --dir " + plain.Quote(n.Dir)
	case m.Finished > 0:
		n.State, n.Step = Finished, m.Finished
	default:
		n.State = Interrupted
	}
	return n
}

// fill adds what a node that answers says of itself.
func (n *Node) fill(st api.Status, pid int, e Entry) {
	n.Running, n.State, n.Waiting, n.PID = true, st.State, st.Waiting, pid
	n.Step, n.Steps = st.Step, st.Steps
	if n.Since = e.Started; n.Since.IsZero() {
		n.Since = changed(filepath.Join(n.Dir, api.AddressFile))
	}
	for _, m := range st.Roster {
		if m.Self {
			n.Name = m.Name
		}
	}
	n.Next = "pnode status --watch --dir " + plain.Quote(n.Dir)
}

// changed returns when a file was last written; zero where there is none.
func changed(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
