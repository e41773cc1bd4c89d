package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/spf13/cobra"

	"pnode/kernels/devices"
	"pnode/node"
	"pnode/node/api"
	"pnode/node/config"
	"pnode/node/dataset/files"
	"pnode/node/export"
	"pnode/node/progress"
	"pnode/planner/plan"
)

// environment returns a command its streams, interrupts and devices.
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	interrupts     *interrupts
	// screen: a node is shown on the whole terminal; nil for commands that run none.
	screen *bool
	// probe looks at this machine's devices in a process of its own.
	probe devices.Probe
	// withoutDrivers is why this program cannot open drivers, if it has tried; nil where it
	// can, or was never made to.
	withoutDrivers error
}

// progress shows a run: JSON lines on standard output if wanted, text on standard error.
func (e environment) progress(cfg config.Config, steps int) *progress.Writer {
	o := progress.Options{
		Text: e.stderr, Sample: e.stdout, Terminal: isTerminal(e.stderr), SampleTerminal: isTerminal(e.stdout), Steps: plan.Step(max(steps, 0)),
	}
	if cfg.JSON {
		o.JSON, o.Sample = e.stdout, nil // people read the sample with the rest
		o.JSONSamples = cfg.SampleEvery > 0
	}
	return progress.New(o)
}

// numbers opens what a run's numbers are written to, besides w. While another process runs a node in the run's folder, they are that one's.
func (e environment) numbers(w *progress.Writer, cfg config.Config) (*export.Exports, error) {
	if cfg.CSV != "" || cfg.TensorBoard != "" || cfg.MLflow != "" {
		if err := node.Running(cfg.Dir); err != nil {
			return nil, err
		}
	}
	return export.Open(export.Options{
		TensorBoard: cfg.TensorBoard, CSV: cfg.CSV, MLflow: cfg.MLflow, Dir: cfg.Dir, Settings: cfg.Parameters(),
		Warn: func(text string) { w.Notice("warning: " + text) },
	})
}

// withNumbers gives what happens to people, and its numbers to exports; local.Supervisor writes to it.
type withNumbers struct {
	*progress.Writer
	numbers *export.Exports
}

func (s withNumbers) Event(e api.Event) {
	s.Writer.Event(e)
	s.numbers.Event(e)
}

// output returns the sinks of a node: events, notices and log go to w, and numbers of events to exports.
func (e environment) output(ctx context.Context, w *progress.Writer, numbers *export.Exports, cfg config.Config) node.Output {
	e.interrupts.grace.Store(int64(cfg.Grace))
	e.interrupts.starts()
	log, noted := slog.New(w.Log(cfg.Level())), sync.Once{}
	return node.Output{
		Probe: e.probe,
		Events: func(event api.Event) {
			noted.Do(func() { noteNode(cfg.Dir, log) })
			e.interrupts.follow(event)
			w.Event(event)
			numbers.Event(event)
		},
		Notice:   w.Notice,
		Newcomer: e.doorbell(ctx, cfg, w.Notice),
		Log:      log,
	}
}

// isTerminal reports whether lines can be rewritten, or keys read.
func isTerminal(w any) bool {
	if out, ok := w.(*output); ok {
		w = out.Writer
	}
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// runsNode makes a command run a node, which ends with a checkpoint at an interrupt. Supervised, as
// `train --local` starts its nodes, it ends when standard input ends, too.
func (e environment) runsNode(c *cobra.Command, do func(ctx context.Context, args []string) error) {
	supervised := c.Flags().Bool("supervised", false, "end when standard input ends")
	c.Flags().Lookup("supervised").Hidden = true
	c.RunE = func(c *cobra.Command, args []string) error {
		e.interrupts.saves.Store(true)
		if err := e.checkFiles(); err != nil {
			return err
		}
		defer ownFiles()()
		ctx, cancel := context.WithCancel(c.Context())
		defer cancel()
		if *supervised {
			go func() { // reads as long as the process lives
				_, _ = io.Copy(io.Discard, e.stdin) // an error ends it as well
				cancel()
			}()
		}
		return do(ctx, args)
	}
}

// withNode makes a command without arguments call do with the running node that --dir names.
func withNode(c *cobra.Command, do func(context.Context, *api.Client) error) {
	dir := c.Flags().String("dir", "", "`FOLDER` of the node (default the newest one that runs)")
	c.Args = noArgs
	c.RunE = func(c *cobra.Command, _ []string) error {
		client, err := dial(c.Context(), *dir)
		if err != nil {
			return err
		}
		defer client.Close()
		return do(c.Context(), client)
	}
}

// dial connects to the running node in dir, or without dir to one of the newest run that has any.
func dial(ctx context.Context, dir string) (*api.Client, error) {
	if dir != "" {
		dir = config.Absolute(dir)
		client, err := api.Dial(ctx, dir)
		if !errors.Is(err, api.ErrNoNode) {
			return client, err
		}
		if _, missing := os.Stat(dir); errors.Is(missing, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w in %s: %w; check the spelling, relative paths begin at the current folder%s", api.ErrNoNode, dir, files.ErrMissing, elsewhere(ctx))
		}
		if running := node.Running(dir); running != nil {
			return nil, fmt.Errorf("%w in %s that answers: one has the folder and is starting or ending; ask again in a moment", api.ErrNoNode, dir)
		}
		if config.Belongs(dir) {
			if _, left := os.Stat(filepath.Join(dir, api.AddressFile)); errors.Is(left, fs.ErrNotExist) {
				err = fmt.Errorf("%w in %s", api.ErrNoNode, dir)
			}
			if m, lookErr := node.Look(dir); lookErr == nil && m.Finished > 0 {
				err = fmt.Errorf("%w: its run is finished at step %d: go on with `%s`", err, m.Finished, m.Next)
			} else {
				err = fmt.Errorf("%w: start it again with `%s`", err, node.StartAgain(dir))
			}
		}
		return nil, fmt.Errorf("%w%s", err, elsewhere(ctx))
	}
	return newest(ctx)
}

// taken explains why a start refuses a folder: a run there that goes on is not to be resumed.
func taken(err error, dir string) error {
	if !errors.Is(err, config.ErrDirTaken) {
		return err
	}
	return cmp.Or(node.Running(config.Absolute(dir)), err)
}

// output remembers the first failed write to standard output: a command whose result was lost on
// a full disk has failed.
type output struct {
	io.Writer

	mu  sync.Mutex // guards err
	err error      // the first
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.err == nil {
			o.err = fmt.Errorf("standard output is incomplete: %w", err)
		}
	}
	return n, err
}

// lost returns the error of the first failed write.
func (o *output) lost() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
