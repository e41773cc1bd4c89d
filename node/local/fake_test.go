package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"pnode/node/api"
	"pnode/node/config"
	"pnode/planner/plan"
)

// The children of these tests are this test binary itself, started with scriptVariable
// set: fake nodes that serve a real API with scripted events. They see each other only
// through files in the run's folder.

const (
	scriptVariable = "PNODE_LOCAL_TEST_SCRIPT"
	nodesVariable  = "PNODE_LOCAL_TEST_NODES"
)

func TestMain(m *testing.M) {
	script := os.Getenv(scriptVariable)
	if script == "" {
		os.Exit(m.Run())
	}
	if err := runFake(script, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "log line\npnode: %v\n\n", err)
		if errors.Is(err, errFinished) {
			os.Exit(ExitFinished)
		}
		os.Exit(1)
	}
}

// fake is a node that does what its script says.
type fake struct {
	api.Hub
	run      string // the run's folder
	script   string
	followed chan struct{} // closed when somebody follows the events
	once     sync.Once

	mu       sync.Mutex // guards notReady
	notReady int        // invites to put off
}

// Events tells play that it may begin: a run is longer than it takes to be followed.
func (f *fake) Events(ctx context.Context) <-chan api.Event {
	defer f.once.Do(func() { close(f.followed) })
	return f.Hub.Events(ctx)
}

var errFinished = errors.New("the run is finished")

const fakeInvite = "pnode1-fake"

func (*fake) Status() api.Status { return api.Status{State: "training"} }

func (*fake) Invites() ([]api.Invite, error) { return nil, nil }

func (*fake) Profiles() (api.Profiles, error) { return api.Profiles{}, nil }

func (*fake) Revoke(context.Context, api.RevokeRequest) (string, error) { return "", api.ErrNotReady }

func (f *fake) Invite(_ context.Context, r api.InviteRequest) (string, error) {
	if !r.Owner {
		return "", errors.New("the nodes of one machine are its owner's")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.notReady > 0 || f.script == "unready" {
		f.notReady--
		return "", fmt.Errorf("no address yet: %w", api.ErrNotReady)
	}
	return fakeInvite, nil
}

func (*fake) Checkpoints() (api.CheckpointList, error) { return api.CheckpointList{}, nil }

func (*fake) Schedule(io.Writer) error { return api.ErrNotReady }

func (f *fake) Leave(context.Context) error { return nil }

func (f *fake) Recover(context.Context) (api.Recovery, error) {
	return api.Recovery{}, api.ErrNotReady
}

// Stop reaches all nodes of the run.
func (*fake) KeepWhole() (api.Keeping, error) { return api.Keeping{}, api.ErrNotReady }

func (*fake) Model() (api.Model, error) { return api.Model{}, api.ErrNotReady }

func (*fake) Chunk(context.Context, plan.Step, plan.Hash) ([]byte, error) {
	return nil, api.ErrNotReady
}

func (f *fake) Stop(ctx context.Context) error {
	if f.script == "minority" { // nothing can be committed
		<-ctx.Done()
		return ctx.Err()
	}
	if f.script == "deaf" || f.script == "stuck" {
		return errors.New("not now")
	}
	return os.WriteFile(filepath.Join(f.run, "stop"), nil, 0o600)
}

// after is the value of a flag.
func after(args []string, flag string) string {
	if i := slices.Index(args, flag); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

func runFake(script string, args []string) error {
	dir := after(args, "--dir")
	if invite := os.Getenv(config.InviteEnv); invite != "" {
		args = append(args[:1:1], append([]string{invite}, args[1:]...)...) // so that a test sees both
	}
	b, err := json.Marshal(args)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "args.json"), b, 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, config.MembershipFile), nil, 0o600); err != nil {
		return err
	}
	f := &fake{run: filepath.Dir(dir), script: script, notReady: 2, followed: make(chan struct{})}
	s, err := api.Listen(api.Options{Dir: dir, Node: f})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- s.Run(ctx) }()
	err = f.play(filepath.Base(dir))
	f.Close()
	cancel()
	return errors.Join(err, <-over)
}

// play carries the script out.
func (f *fake) play(name string) error {
	f.Publish(api.Event{Kind: api.KindState, Message: "training"})
	switch f.script {
	case "short":
		<-f.followed
		nodes, err := strconv.Atoi(os.Getenv(nodesVariable))
		if err != nil {
			return err
		}
		f.await(filepath.Join("node-"+strconv.Itoa(nodes-1), "args.json")) // all are there
		f.steps(1, 1, 30)
		return f.done(30)
	case "kill":
		f.steps(1, 1, 6)
		f.await("killed")
		f.Publish(api.Event{Kind: api.KindPlan, Generation: 2, Message: "two stages"})
		f.steps(2, 4, 10)
		return f.done(10)
	case "stoppable":
		f.steps(1, 1, 3)
		f.await("stop")
		return nil
	case "late":
		if name == "node-1" { // on its way in
			_, err := io.Copy(io.Discard, os.Stdin)
			return errors.Join(errors.New("interrupted"), err)
		}
		f.steps(1, 1, 3)
		f.await("stop")
	case "asleep":
		if name == "node-0" {
			f.waits("no leader: 1 of 3 voters is up")
			f.await("told")
			f.waits("no leader: 1 of 3 voters is up")
			f.waits("no leader: 2 of 3 voters are up")
		}
		f.await("stop")
	case "finished":
		if name == "node-1" { // needs the other
			_, err := io.Copy(io.Discard, os.Stdin)
			return errors.Join(errors.New("no majority"), err)
		}
		return errFinished
	case "missed":
		if name == "node-1" { // comes back when the other has done the last step
			f.await("told")
			return errFinished
		}
		f.steps(1, 1, 3)
		f.await("over")
		return f.done(3)
	case "refused":
		return errors.New("the disk is full")
	case "loser":
		f.steps(1, 1, 3)
		if name == "node-1" {
			<-f.followed
			return errors.New("the disk is full")
		}
		f.await("told")
	case "deaf", "minority":
		f.steps(1, 1, 3)
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	case "unready":
		f.await("stop")
	case "asked":
		f.steps(1, 1, 3)
		f.await("told")
		return f.done(3)
	case "stuck":
		f.steps(1, 1, 3)
		f.await("never")
	case "broken":
		if name == "node-1" {
			return errors.New("the disk is full")
		}
		f.await("stop")
	}
	return nil
}

// steps publishes steps of a generation; the loss tells the step, not the node.
func (f *fake) steps(generation plan.Generation, from, to plan.Step) {
	for step := from; step <= to; step++ {
		f.Publish(api.Event{Kind: api.KindStep, Generation: generation, Step: step, Loss: 1 / float64(step)})
	}
}

func (f *fake) waits(why string) { f.Publish(api.Event{Kind: api.KindWaiting, Message: why}) }

func (f *fake) done(step plan.Step) error {
	f.Publish(api.Event{Kind: api.KindSample, Step: step, Message: "text"})
	f.Publish(api.Event{Kind: api.KindDone, Step: step, Message: "finished"})
	return nil
}

// await waits for a file in the run's folder.
func (f *fake) await(file string) {
	for missing(filepath.Join(f.run, file)) {
		<-time.After(10 * time.Millisecond)
	}
}

func missing(path string) bool {
	_, err := os.Stat(path)
	return err != nil
}

func (*fake) MayInvite() error { return api.ErrNotReady }

// fakeNewcomer asks the nodes of the script "asked", until it is let in.
var fakeNewcomer = api.Newcomer{Name: "laptop", Address: "192.0.2.7", Code: "482913", Since: time.Unix(1, 0).UTC()}

func (f *fake) Newcomers() ([]api.Newcomer, error) {
	if f.script != "asked" {
		return nil, api.ErrNotReady
	}
	return []api.Newcomer{fakeNewcomer}, nil
}

func (f *fake) Refuse(r api.Refusal) ([]api.Newcomer, error) {
	if f.script != "asked" || r.Code != fakeNewcomer.Code {
		return nil, api.ErrNotReady
	}
	return []api.Newcomer{fakeNewcomer}, os.WriteFile(filepath.Join(f.run, "told"), nil, 0o600)
}

func (f *fake) Admit(_ context.Context, code string) (string, error) {
	if f.script != "asked" || code != fakeNewcomer.Code {
		return "", api.ErrNotReady
	}
	return "laptop may join", os.WriteFile(filepath.Join(f.run, "told"), nil, 0o600)
}
