package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"pnode/node/api"
	"pnode/node/plain"
	"pnode/planner/plan"
)

// lookEvery is the time between two looks at how far a copy is.
const lookEvery = time.Second

func (e environment) fetchCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "fetch",
		Short: "Bring the whole model of a run to this machine",
		Long: `Have a running node of this machine keep the newest checkpoint whole, with the state of every layer,
and show how it comes. The node keeps a whole one from then on, until it ends, like a node that was
started with --keep-whole. With it this folder alone gives the model (pnode generate, eval, export),
and the run can go on from it. Ctrl-C ends the waiting, not the copying.`,
		Example: `  pnode fetch
  pnode fetch --dir ~/run7`,
	}
	withNode(c, e.fetch)
	return c
}

// fetch returns when the node has the checkpoint that is the newest one now, or a later one.
func (e environment) fetch(ctx context.Context, node *api.Client) error {
	k, err := node.KeepWhole(ctx)
	looks := time.NewTicker(lookEvery)
	defer looks.Stop()
	for target, before := k.Newest, k.Copy; err == nil; {
		target = min(target, k.Newest) // less where the run went back
		if k.Copy.Step >= target {
			_, err = fmt.Fprintf(e.stdout, "the whole model of step %d is here: `pnode generate --dir %s --prompt TEXT` or `pnode export OUT --dir %s`\n", k.Copy.Step, plain.Quote(node.Dir()), plain.Quote(node.Dir()))
			return err
		}
		if k.Copy.Why != "" {
			return fmt.Errorf("the checkpoint of step %d cannot be kept here: %s; the node tries again", target, k.Copy.Why)
		}
		if k.Copy.Next > 0 && k.Copy.DoneBytes != before.DoneBytes {
			fmt.Fprintln(e.stdout, copyProgress(before, k.Copy))
		}
		before = k.Copy
		select {
		case <-looks.C:
			k, err = node.KeepWhole(ctx)
		case <-ctx.Done():
			return fmt.Errorf("not waited for: the node in %s goes on with the copy", node.Dir())
		}
	}
	if errors.Is(err, api.ErrUnreachable) {
		err = fmt.Errorf("the node in %s has ended: %w", node.Dir(), err)
	}
	return err
}

// copyProgress says how far a copy is, with its rate since a look before.
func copyProgress(before, now plan.WholeCopy) string {
	text := fmt.Sprintf("step %d: %.1f of %.1f MB", now.Next, float64(now.DoneBytes)/1e6, float64(now.SizeBytes)/1e6)
	if came := now.DoneBytes - before.DoneBytes; before.Next == now.Next && came > 0 {
		rate := float64(came) / lookEvery.Seconds()
		left := time.Duration(min(float64(now.SizeBytes-now.DoneBytes)/rate, 1e9) * float64(time.Second)) // 1e9 s is for ever
		text += fmt.Sprintf(" at %.1f MB/s, %s to go", rate/1e6, plan.Duration(left.Round(time.Second)))
	}
	return text
}
