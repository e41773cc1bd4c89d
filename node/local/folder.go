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
	"pnode/planner/plan"
)

func (s *Supervisor) nodeDir(index int) string { return config.NodeDir(s.options.Dir, index) }

// nameOf returns what people call a node: by this machine's name and its number.
func (s *Supervisor) nameOf(index int) string {
	name, number := cmp.Or(s.options.Config.MachineName(), "node"), "-"+strconv.Itoa(index)
	return name[:min(len(name), plan.MaxNameBytes-len(number))] + number
}

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
	s.tellOwner(c.Listen)
	first := s.options.Config // node 0 has the settings of the run, for one process of many
	first.Local, first.Dir, first.Resume, first.JSON, first.Cluster, first.Trace, first.Metrics = 0, "", false, false, "", "", ""
	first.SampleEvery, first.SamplePrompt = 0, ""                           // ownArgs has them
	first.TensorBoard, first.CSV, first.MLflow, first.OTLP = "", "", "", "" // the supervisor has the steps of all nodes
	first.MinNodes = s.options.Nodes
	if c.Replicas > 0 && c.Stages == 0 { // the user cut the model: every node gets a stage
		first.Stages = config.Count(s.options.Nodes / int(c.Replicas))
	}
	first.Listen, first.Threads, first.LogLevel = s.listen(), s.threads(), s.logLevel()
	var b bytes.Buffer
	err := first.Print(&b)
	if err == nil {
		err = os.WriteFile(path, b.Bytes(), 0o600)
	}
	if err != nil {
		return fmt.Errorf("local: write %s: %w", path, err)
	}
	return nil
}

// resume takes over the name, how many cores a node had, which devices and how much of their memory, unless the user says otherwise.
func (s *Supervisor) resume(path string) error {
	if !config.Belongs(s.nodeDir(0)) {
		return fmt.Errorf("local: %w in %s: its first node never began; resume another node with `pnode join --dir FOLDER`", config.ErrNoRun, s.nodeDir(0))
	}
	stored, err := config.Load(path)
	if err != nil {
		return fmt.Errorf("local: the settings of the run: %w", err)
	}
	s.tellOwner(cmp.Or(s.options.Config.Listen, stored.Listen))
	c := &s.options.Config
	c.Name = cmp.Or(c.Name, stored.Name)
	c.Threads = cmp.Or(c.Threads, stored.Threads)
	c.Devices = cmp.Or(c.Devices, stored.Devices)
	c.Memory = cmp.Or(c.Memory, stored.Memory)
	if s.emulated { // the file says what memory there is
		return nil
	}
	return c.CheckMemory(s.options.Nodes)
}

// listen returns where node 0 listens: loopback, any port, unless the user wants to be reached from elsewhere.
func (s *Supervisor) listen() string { return cmp.Or(s.options.Config.Listen, s.listenOf(0)) }

const loopback = "127.0.0.1:0"

// threads returns each node's share of the cores.
func (s *Supervisor) threads() int {
	return cmp.Or(s.options.Config.Threads, max(1, runtime.GOMAXPROCS(0)/s.options.Nodes))
}

// logLevel returns the user's level, at least info: the logs go to files.
func (s *Supervisor) logLevel() string {
	if s.options.Config.LogLevel == "debug" {
		return "debug"
	}
	return "info"
}

// trainArgs returns the command line of node 0. One that is resumed has its settings in its folder, but for those of
// this start.
func (s *Supervisor) trainArgs() []string {
	args := []string{"train", "--supervised", "--dir", s.nodeDir(0)}
	if !s.options.Config.Resume {
		args = append(args, "--config", filepath.Join(s.options.Dir, config.RunFile))
		return append(args, s.ownArgs(0)...)
	}
	if end := s.options.Config.Extends(); end > 0 {
		args = append(args, "--steps", strconv.FormatUint(uint64(end), 10))
	}
	args = append(args, "--resume", "--threads", strconv.Itoa(s.threads()), "--log-level", s.logLevel())
	if s.options.Config.Listen != "" || len(s.listens) > 0 {
		args = append(args, "--listen", s.listen())
	}
	return append(args, s.ownArgs(0)...)
}

// ownArgs returns the arguments that every node of this start has for itself: its name, its part of the devices and
// their memory, how it is to look, and its timeline.
func (s *Supervisor) ownArgs(index int) []string {
	c, nodes := s.options.Config, s.options.Nodes
	devices := c.Devices.Of(index, nodes)
	args := []string{"--devices", devices.String()}
	if keep := s.keepWhole(index); keep != "" {
		args = append(args, "--keep-whole="+keep)
	}
	if c.MachineName() != "" {
		args = append(args, "--name", s.nameOf(index))
	}
	if s.emulated { // the file says what memory there is
		args = append(args, "--emulate", s.emulationFile(index))
	} else {
		args = append(args, "--memory", c.Memory.Part(devices, c.Devices.Sharers(index, nodes), nodes).String())
	}
	if c.OnLostMajority != 0 {
		args = append(args, "--on-lost-majority", c.OnLostMajority.String())
	}
	if c.AwaitHolders != config.Default().AwaitHolders {
		args = append(args, "--await-holders", c.AwaitHolders.String())
	}
	if c.Trace != "" {
		args = append(args, "--trace", s.traceFile(index))
	}
	if c.OTLP != "" {
		args = append(args, "--otlp", c.OTLP, "--otlp-every", strconv.Itoa(c.OTLPEvery))
	}
	if c.Metrics != "" && index == 0 { // one address for all: every node knows the run
		args = append(args, "--metrics", c.Metrics)
	}
	if c.SampleEvery > 0 && index == 0 { // all would write the same
		args = append(args, "--sample-every", strconv.Itoa(c.SampleEvery), "--sample-prompt="+c.SamplePrompt)
	}
	if c.LAN && index == 0 { // one who admits is enough
		args = append(args, "--lan")
	}
	if c.Notices != "" {
		args = append(args, "--notices", c.Notices)
	}
	return args
}

// keepWhole returns the setting of a node. The folders of all are together; only node 0 keeps the layers of nodes elsewhere.
func (s *Supervisor) keepWhole(index int) string {
	c := s.options.Config
	if index > 0 || c.KeepWhole == "" && c.Listen == "" && c.SampleEvery == 0 && !c.Resume {
		return config.KeepOff
	}
	return c.KeepWhole // when empty it is what the folder had
}

// joinArgs returns the command line of another node, which goes on from its folder or finds its invite in the environment:
// other users of the machine see command lines.
func (s *Supervisor) joinArgs(index int) []string {
	args := []string{
		"join", "--supervised",
		"--dir", s.nodeDir(index),
		"--listen", s.listenOf(index),
		"--threads", strconv.Itoa(s.threads()),
		"--log-level", s.logLevel(),
	}
	return append(args, s.ownArgs(index)...)
}

// traceFile returns the file of a node's timeline.
func (s *Supervisor) traceFile(index int) string {
	return filepath.Join(s.nodeDir(index), "trace.json")
}
