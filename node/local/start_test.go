package local

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"pnode/node/config"
)

// args returns the arguments that a node was started with.
func args(t *testing.T, dir string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "args.json"))
	if err != nil {
		t.Fatal(err)
	}
	var a []string
	if err := json.Unmarshal(b, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

func TestCommandLinesAndRunFile(t *testing.T) {
	t.Parallel()
	cluster := config.Config{Cluster: "many.yaml"}
	if _, err := New(Options{Nodes: config.MaxLocal + 1, Config: cluster}); err == nil || !strings.Contains(err.Error(), "cluster many.yaml has 65 devices: want 1 to 64") {
		t.Errorf("a cluster of too many nodes: %v", err)
	}
	s, _ := supervise(t, "short", 2, func(o *Options) {
		o.Config.Steps, o.Config.Local, o.Config.JSON, o.Config.Dir, o.Config.Threads = 77, 2, true, "/elsewhere", 5
		o.Config.Devices, o.Config.Memory, o.Config.Name = "opencl:0,cpu", "opencl:0=8GiB", "desk"
		o.Config.SampleEvery, o.Config.SamplePrompt = 9, "--one"
	})
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	dir := s.options.Dir
	want := []string{"train", "--supervised", "--dir", filepath.Join(dir, "node-0"), "--config", filepath.Join(dir, "run.yaml"), "--devices", "opencl:0", "--name", "desk-0", "--memory", "opencl:0=8GiB,cpu=50%", "--sample-every", "9", "--sample-prompt=--one"}
	if got := args(t, s.nodeDir(0)); !reflect.DeepEqual(got, want) {
		t.Errorf("node 0: %q, want %q", got, want)
	}
	want = []string{"join", fakeInvite, "--supervised", "--dir", filepath.Join(dir, "node-1"), "--listen", "127.0.0.1:0", "--threads", "5", "--log-level", "info", "--devices", "cpu", "--keep-whole=off", "--name", "desk-1", "--memory", "cpu=50%"}
	if got := args(t, s.nodeDir(1)); !reflect.DeepEqual(got, want) {
		t.Errorf("node 1: %q, want %q", got, want)
	}
	c, err := config.Load(filepath.Join(dir, "run.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	wantConfig := config.Default()
	wantConfig.Steps, wantConfig.MinNodes, wantConfig.Listen, wantConfig.Threads, wantConfig.LogLevel = 77, 2, "127.0.0.1:0", 5, "info"
	wantConfig.Devices, wantConfig.Memory, wantConfig.Name = "opencl:0,cpu", "opencl:0=8GiB", "desk"
	if !reflect.DeepEqual(c, wantConfig) {
		t.Errorf("run.yaml:\n got %+v\nwant %+v", c, wantConfig)
	}
	if got := config.NodeDirs(dir); !reflect.DeepEqual(got, []string{s.nodeDir(0), s.nodeDir(1)}) {
		t.Errorf("node folders %q", got)
	}
}

func TestResumeStartsTheNodesFromTheirFolders(t *testing.T) {
	t.Parallel()
	s, _ := supervise(t, "short", 2, func(o *Options) { o.Config.Name = "desk" })
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	dir := s.options.Dir
	again, _ := supervise(t, "short", 2, func(o *Options) { o.Dir = dir })
	if err := again.Run(t.Context()); !errors.Is(err, config.ErrDirTaken) || !strings.Contains(err.Error(), "--resume") {
		t.Errorf("a second start in the folder: %v", err)
	}
	resumed, out := supervise(t, "short", 3, func(o *Options) { o.Dir, o.Config.Resume, o.Config.Name = dir, true, "" })
	if err := resumed.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"train", "--supervised", "--dir", resumed.nodeDir(0), "--resume", "--threads", strconv.Itoa(s.threads()), "--log-level", "info", "--devices", "cpu", "--name", "desk-0", "--memory", "cpu=33.3333%"}
	if a := args(t, resumed.nodeDir(0)); !reflect.DeepEqual(a, want) {
		t.Errorf("node 0: %q, want %q", a, want)
	}
	if a := args(t, resumed.nodeDir(1)); a[1] != "--supervised" {
		t.Errorf("node 1 has an invite: %q", a)
	}
	if a := args(t, resumed.nodeDir(2)); a[1] != fakeInvite {
		t.Errorf("the new node 2 has no invite: %q", a)
	}
	if got := out.stepsOf(1); !reflect.DeepEqual(got, numbers(1, 30)) {
		t.Errorf("steps %v", got)
	}
	for memory, says := range map[config.Memory]string{"150MB": "--memory is 150MB: want 200MB or more for cpu", "cuda:0=1GB": "nothing about cuda:0"} {
		refused, _ := supervise(t, "short", 2, func(o *Options) { o.Dir, o.Config.Resume, o.Config.Memory = dir, true, memory })
		if err := refused.Run(t.Context()); !errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("resumed with memory %v: %v, want %q", memory, err, says)
		}
	}
	// A node that was not admitted before it died needs an invite.
	for _, file := range []string{config.MembershipFile, "args.json"} {
		if err := os.Remove(filepath.Join(resumed.nodeDir(1), file)); err != nil {
			t.Fatal(err)
		}
	}
	third, _ := supervise(t, "short", 2, func(o *Options) { o.Dir, o.Config.Resume, o.Config.Name = dir, true, "" })
	if err := third.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := args(t, third.nodeDir(1)); a[1] != fakeInvite {
		t.Errorf("node 1 without a membership has no invite: %q", a)
	}
	empty, _ := supervise(t, "short", 2, func(o *Options) { o.Config.Resume = true })
	if err := empty.Run(t.Context()); !errors.Is(err, config.ErrNoRun) {
		t.Errorf("nothing to resume: %v", err)
	}
}

func TestStartErrors(t *testing.T) {
	t.Parallel()
	if _, err := New(Options{Nodes: 0}); !errors.Is(err, config.ErrInvalid) {
		t.Errorf("no nodes: %v", err)
	}
	if _, err := New(Options{Nodes: config.MaxLocal + 1}); !errors.Is(err, config.ErrInvalid) {
		t.Errorf("too many nodes: %v", err)
	}
	s, _ := supervise(t, "short", 2, func(o *Options) { o.Binary = filepath.Join(o.Dir, "none") })
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "start node-0") {
		t.Errorf("no binary: %v", err)
	}
}
