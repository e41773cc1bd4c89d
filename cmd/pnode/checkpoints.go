package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pnode/node"
	"pnode/node/api"
	"pnode/node/config"
	"pnode/node/plain"
	"pnode/node/progress"
)

func (e environment) checkpointsCommand() *cobra.Command {
	var dir string
	var asJSON bool
	c := &cobra.Command{
		Use:   "checkpoints",
		Short: "List or verify the checkpoints of a node on this machine",
		Args:  usageArgs(knownCommand),
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.PersistentFlags().StringVar(&dir, "dir", "", "`FOLDER` of the run or node (default the newest run's)")
	ls := &cobra.Command{
		Use:   "ls",
		Short: "List checkpoints, newest first",
		Example: `  pnode checkpoints ls
  pnode checkpoints ls --dir ~/run7
  pnode checkpoints ls --json | jq '.[].checkpoints[0].step'`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if asJSON {
				return e.listCheckpointsJSON(c.Context(), dir)
			}
			return e.eachNode(c.Context(), dir, e.listCheckpoints)
		},
	}
	ls.Flags().BoolVar(&asJSON, "json", false, "print one JSON array, with an object for each node")
	c.AddCommand(
		ls,
		&cobra.Command{
			Use:   "verify",
			Short: "Compare every stored byte of a stopped node with its checksum",
			Long: `Compare every chunk of the checkpoints of a stopped node with its checksum, and the keys, the membership, run.json, the
loss curve and the ledger beside them. Each file that is damaged is named with what helps; nothing is changed. Logs, the page's
address and the cache of tokens have no checksum, and the run does not need them.`,
			Example: "  pnode checkpoints verify",
			Args:    noArgs,
			RunE:    func(c *cobra.Command, _ []string) error { return e.eachNode(c.Context(), dir, e.verifyCheckpoints) },
		},
	)
	return c
}

// nodeDirs returns the node's folder that dir names, or those of the local nodes of a run.
func nodeDirs(dir string) ([]string, error) {
	dir, err := config.Existing(dir)
	if err != nil {
		return nil, err
	}
	dirs := config.NodeDirs(dir)
	if len(dirs) == 0 || config.Belongs(dir) {
		dirs = []string{dir}
	}
	return dirs, nil
}

// eachNode calls do with the node in dir, or with each local node of the run in dir.
// It reports an error that several nodes share once, with their names.
func (e environment) eachNode(ctx context.Context, dir string, do func(ctx context.Context, dir string) error) error {
	dirs, err := nodeDirs(dir)
	if err != nil {
		return err
	}
	var failures []error
	failed := map[string][]string{} // nodes by the text of their error
	for _, d := range dirs {
		if _, err := fmt.Fprintln(e.stdout, d); err != nil {
			return err
		}
		if err := do(ctx, d); err != nil {
			if failed[err.Error()] == nil {
				failures = append(failures, err)
			}
			failed[err.Error()] = append(failed[err.Error()], filepath.Base(d))
		}
	}
	if len(dirs) == 1 {
		return errors.Join(failures...)
	}
	for i, err := range failures {
		failures[i] = fmt.Errorf("%s: %w", strings.Join(failed[err.Error()], ", "), err)
	}
	return errors.Join(failures...)
}

// checkpointsIn asks the node in dir, or reads its folder when it does not run.
func checkpointsIn(ctx context.Context, dir string) (api.CheckpointList, error) {
	client, err := api.Dial(ctx, dir)
	switch {
	case errors.Is(err, api.ErrNoNode):
		return node.StoredCheckpoints(dir, slog.New(slog.DiscardHandler))
	case err != nil:
		return api.CheckpointList{}, err
	}
	defer client.Close()
	return client.Checkpoints(ctx)
}

// folderList holds what --json prints of a node.
type folderList struct {
	Dir string `json:"dir"`
	api.CheckpointList
}

// listCheckpointsJSON prints the checkpoints of all nodes that can be listed.
func (e environment) listCheckpointsJSON(ctx context.Context, dir string) error {
	dirs, err := nodeDirs(dir)
	if err != nil {
		return err
	}
	all := []folderList{}
	var failures []error
	for _, d := range dirs {
		list, err := checkpointsIn(ctx, d)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		all = append(all, folderList{d, list})
		failures = append(failures, progress.Listed(list))
	}
	return errors.Join(append(failures, json.NewEncoder(e.stdout).Encode(all))...)
}

// listCheckpoints prints the checkpoints of the node in dir.
func (e environment) listCheckpoints(ctx context.Context, dir string) error {
	list, err := checkpointsIn(ctx, dir)
	if err != nil {
		return err
	}
	if err := progress.Checkpoints(e.stdout, list.Checkpoints, time.Now()); err != nil {
		return err
	}
	return progress.Listed(list)
}

// verifyCheckpoints reads every byte of a store that no node uses, and writes nothing.
func (e environment) verifyCheckpoints(ctx context.Context, dir string) error {
	if client, err := api.Dial(ctx, dir); err == nil {
		defer client.Close()
		return fmt.Errorf("the node in %s runs (pid %d) and uses its checkpoints: stop it with Ctrl-C or `pnode leave --dir %s` to verify them, then start it again in its folder",
			dir, client.PID(), plain.Quote(dir))
	}
	compared, damaged := node.VerifyFiles(dir)
	files := progress.VerifiedFiles(e.stdout, compared, damaged)
	store, err := node.OpenStore(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	report, err := store.Verify(ctx, nil)
	if err == nil {
		err = progress.Verified(e.stdout, report)
	}
	return errors.Join(files, err, store.Close())
}
