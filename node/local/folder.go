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
)

// runFile in the run's folder holds the settings that the nodes were started with.
const runFile = "run.yaml"

// NodeDirs are the folders of the nodes of a local run in order, node-0 first; none when
// dir is no local run's.
func NodeDirs(dir string) []string {
	var dirs []string
	for i := 0; exists(nodeDir(dir, i)); i++ {
		dirs = append(dirs, nodeDir(dir, i))
	}
	return dirs
}

func nodeDir(dir string, index int) string {
	return filepath.Join(dir, "node-"+strconv.Itoa(index))
}

func (s *Supervisor) nodeDir(index int) string { return nodeDir(s.options.Dir, index) }

// belongs tells whether the node in dir is in a run already and can come back by itself.
func belongs(dir string) bool { return exists(filepath.Join(dir, config.MembershipFile)) }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// prepare writes run.yaml, or checks that there is a run to resume.
func (s *Supervisor) prepare() error {
	dir := s.options.Dir
	path := filepath.Join(dir, runFile)
	if s.options.Config.Resume {
		if !belongs(s.nodeDir(0)) || !exists(path) {
			return fmt.Errorf("local: %w: %s holds no run of local nodes", config.ErrNoRun, dir)
		}
		return nil
	}
	if belongs(s.nodeDir(0)) {
		return fmt.Errorf("%w: %s: go on with it with --resume, or name another folder with --dir", ErrDirTaken, dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("local: make the run's folder: %w", err)
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

// nodeConfig are the settings of node 0: those of the run, for one process of many.
func (s *Supervisor) nodeConfig() config.Config {
	c := s.options.Config
	c.Local, c.Dir, c.Resume, c.JSON = 0, "", false, false
	c.MinNodes = s.options.Nodes
	if c.Replicas > 0 && c.Stages == 0 { // the user cut the model: every node gets a stage
		c.Stages = config.Count(s.options.Nodes / int(c.Replicas))
	}
	c.Listen = s.listen()
	c.Threads = s.threads()
	c.LogLevel = s.logLevel()
	return c
}

// listen is loopback, any port, unless the user wants to be reached from elsewhere.
func (s *Supervisor) listen() string { return cmp.Or(s.options.Config.Listen, loopback) }

const loopback = "127.0.0.1:0"

// threads is each node's share of the cores.
func (s *Supervisor) threads() int {
	return cmp.Or(s.options.Config.Threads, max(1, runtime.GOMAXPROCS(0)/s.options.Nodes))
}

// logLevel is at least info: the logs go to files.
func (s *Supervisor) logLevel() string {
	if s.options.Config.LogLevel == "debug" {
		return "debug"
	}
	return "info"
}

// trainArgs is the command line of node 0.
func (s *Supervisor) trainArgs() []string {
	args := []string{
		"train", "--supervised",
		"--config", filepath.Join(s.options.Dir, runFile),
		"--dir", s.nodeDir(0),
	}
	if s.options.Config.Resume {
		args = append(args, "--resume")
	}
	return args
}

// joinArgs is the command line of another node; an empty target goes on from its folder.
func (s *Supervisor) joinArgs(index int, target string) []string {
	args := []string{"join"}
	if target != "" {
		args = append(args, target)
	}
	return append(
		args, "--supervised",
		"--dir", s.nodeDir(index),
		"--listen", loopback,
		"--threads", strconv.Itoa(s.threads()),
		"--log-level", s.logLevel(),
	)
}
