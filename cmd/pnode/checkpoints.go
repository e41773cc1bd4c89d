package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"pnode/checkpoint"
	"pnode/node"
	"pnode/node/config"
	"pnode/node/local"
	"pnode/node/progress"
)

func (e environment) checkpointsCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "checkpoints",
		Short: "List or verify the checkpoints of a stopped node",
		Args:  usageArgs(cobra.NoArgs),
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.PersistentFlags().StringVar(&dir, "dir", "", "`FOLDER` of the run or node (default the newest run's)")
	c.AddCommand(
		&cobra.Command{
			Use:     "ls",
			Short:   "List checkpoints, newest first",
			Example: "  pnode checkpoints ls\n  pnode checkpoints ls --dir ~/run7",
			Args:    usageArgs(cobra.NoArgs),
			RunE:    func(c *cobra.Command, _ []string) error { return e.eachStore(c.Context(), dir, e.listCheckpoints) },
		},
		&cobra.Command{
			Use:     "verify",
			Short:   "Read every stored byte and compare it with its checksum",
			Example: "  pnode checkpoints verify",
			Args:    usageArgs(cobra.NoArgs),
			RunE:    func(c *cobra.Command, _ []string) error { return e.eachStore(c.Context(), dir, e.verifyCheckpoints) },
		},
	)
	return c
}

// eachStore opens the store of the node in dir, or of each local node of the run in dir.
func (e environment) eachStore(ctx context.Context, dir string, do func(context.Context, *checkpoint.Store) error) error {
	dir, err := config.Config{Dir: dir, Resume: true}.RunDir(time.Now())
	if err != nil {
		return err
	}
	dirs := local.NodeDirs(dir)
	if len(dirs) == 0 {
		dirs = []string{dir}
	}
	failed := 0
	for _, d := range dirs {
		fmt.Fprintln(e.stdout, d)
		if storeErr := e.withStore(ctx, d, do); storeErr != nil {
			failed++
			err = storeErr
			fmt.Fprintln(e.stdout, err)
		}
	}
	if failed > 1 {
		return fmt.Errorf("%d of %d nodes' checkpoints failed, the last one: %w", failed, len(dirs), err)
	}
	return err
}

func (e environment) withStore(ctx context.Context, dir string, do func(context.Context, *checkpoint.Store) error) error {
	store, err := node.OpenStore(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	return errors.Join(do(ctx, store), store.Close())
}

func (e environment) listCheckpoints(_ context.Context, store *checkpoint.Store) error {
	manifests, err := store.Manifests()
	return errors.Join(progress.Checkpoints(e.stdout, manifests), err)
}

func (e environment) verifyCheckpoints(ctx context.Context, store *checkpoint.Store) error {
	report, err := store.Verify(ctx, nil)
	if err != nil {
		return err
	}
	return progress.Verified(e.stdout, report)
}
