package local

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"pnode/node/config"
	"pnode/pipeline/trace"
)

func (s *Supervisor) nodeDir(index int) string { return config.NodeDir(s.options.Dir, index) }

// prepare writes run.yaml, or reads it to resume.
func (s *Supervisor) prepare() error {
	c := s.options.Config
	c.Dir, c.Local = s.options.Dir, s.options.Nodes
	if err := c.CheckDir(); err != nil {
		return err
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return fmt.Errorf("local: make the run's folder: %w", err)
	}
	if err := s.emulate(); err != nil {
		return err
	}
	path := filepath.Join(c.Dir, config.RunFile)
	if c.Resume {
		return s.resume(path)
	}
	var b bytes.Buffer
	err := s.nodeConfig().Print(&b)
	if err == nil {
		err = os.WriteFile(path, b.Bytes(), 0o600)
	}
	if err != nil {
		return fmt.Errorf("local: write %s: %w", path, err)
	}
	return nil
}

// resume takes over how many cores a node had, which devices and how much of their memory, unless the user says otherwise.
func (s *Supervisor) resume(path string) error {
	if !config.Belongs(s.nodeDir(0)) {
		return fmt.Errorf("local: %w in %s: its first node never began; resume another node with `pnode join --dir FOLDER`", config.ErrNoRun, s.nodeDir(0))
	}
	stored, err := config.Load(path)
	if err != nil {
		return fmt.Errorf("local: the settings of the run: %w", err)
	}
	c := &s.options.Config
	c.Threads = cmp.Or(c.Threads, stored.Threads)
	c.Devices = cmp.Or(c.Devices, stored.Devices)
	c.Memory = cmp.Or(c.Memory, stored.Memory)
	if s.emulated { // the file says what memory there is
		return nil
	}
	return c.Memory.CheckLocal(c.Devices, s.options.Nodes)
}

// nodeConfig are the settings of node 0: those of the run, for one process of many.
func (s *Supervisor) nodeConfig() config.Config {
	c := s.options.Config
	c.Local, c.Dir, c.Resume, c.JSON, c.Cluster = 0, "", false, false, ""
	c.MinNodes = s.options.Nodes
	if c.Replicas > 0 && c.Stages == 0 { // the user cut the model: every node gets a stage
		c.Stages = config.Count(s.options.Nodes / int(c.Replicas))
	}
	c.Listen = s.listen()
	c.Threads = s.threads()
	c.LogLevel, c.Trace = s.logLevel(), ""
	return c
}

// listen is loopback, any port, unless the user wants to be reached from elsewhere.
func (s *Supervisor) listen() string { return cmp.Or(s.options.Config.Listen, s.listenOf(0)) }

const loopback = "127.0.0.1:0"

// threads is each node's share of the cores.
func (s *Supervisor) threads() int {
	return cmp.Or(s.options.Config.Threads, max(1, runtime.GOMAXPROCS(0)/s.options.Nodes))
}

// devices are a node's part of those that the user named.
func (s *Supervisor) devices(index int) config.Devices {
	return s.options.Config.Devices.Of(index, s.options.Nodes)
}

// resources are the arguments for what a node may use of this machine.
func (s *Supervisor) resources(index int) []string {
	devices, nodes := s.devices(index), s.options.Nodes
	args := []string{"--devices", devices.String()}
	if s.emulated { // the file says what memory there is
		return args
	}
	sharers := s.options.Config.Devices.Sharers(index, nodes)
	return append(args, "--memory", s.options.Config.Memory.Part(devices, sharers, nodes).String())
}

// logLevel is at least info: the logs go to files.
func (s *Supervisor) logLevel() string {
	if s.options.Config.LogLevel == "debug" {
		return "debug"
	}
	return "info"
}

// trainArgs is the command line of node 0. One that is resumed has its settings in its
// folder, but for those of this start.
func (s *Supervisor) trainArgs() []string {
	args := []string{"train", "--supervised", "--dir", s.nodeDir(0)}
	if !s.options.Config.Resume {
		args = append(args, "--config", filepath.Join(s.options.Dir, config.RunFile))
		return append(args, s.beside(0)...)
	}
	args = append(args, "--resume", "--threads", strconv.Itoa(s.threads()), "--log-level", s.logLevel())
	if s.options.Config.Listen != "" || len(s.listens) > 0 {
		args = append(args, "--listen", s.listen())
	}
	return append(args, s.beside(0)...)
}

// beside are the arguments that every node of this start has for itself.
func (s *Supervisor) beside(index int) []string {
	args := append(s.resources(index), s.emulateArgs(index)...)
	if s.options.Config.Trace != "" {
		args = append(args, "--trace", s.traceFile(index))
	}
	return args
}

// joinArgs is the command line of another node; an empty target goes on from its folder.
func (s *Supervisor) joinArgs(index int, target string) []string {
	args := []string{"join"}
	if target != "" {
		args = append(args, target)
	}
	args = append(
		args, "--supervised",
		"--dir", s.nodeDir(index),
		"--listen", s.listenOf(index),
		"--threads", strconv.Itoa(s.threads()),
		"--log-level", s.logLevel(),
	)
	return append(args, s.beside(index)...)
}

// traceFile is where a node writes its timeline.
func (s *Supervisor) traceFile(index int) string {
	return filepath.Join(s.nodeDir(index), "trace.json")
}

// joinTraces makes one file of the nodes' timelines.
func (s *Supervisor) joinTraces() error {
	if s.options.Config.Trace == "" {
		return nil
	}
	var files []string
	for i := range s.options.Nodes {
		files = append(files, s.traceFile(i))
	}
	return trace.Join(s.options.Config.Trace, files...)
}
