package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"pnode/deploy/image"
	"pnode/node/chaos"
	"pnode/node/config"
)

func (e environment) chaosCommand() *cobra.Command {
	o := chaos.Options{Nodes: 5, Seed: 1, Quiet: 10 * time.Second, Every: 15 * time.Second, Longest: 8 * time.Second, AtOnce: 1, Network: chaos.Auto}
	var minutes, seconds float64
	var kinds []string
	var asJSON bool
	c := &cobra.Command{
		Use:   "chaos [-- TRAIN-FLAG...]",
		Short: "Break the nodes of a run by a seeded schedule, and prove that nothing was lost",
		Long: fmt.Sprintf(`Train on several processes of this machine, and kill, pause, cut off, wipe and damage them at times that
follow from the seed: %v. Then prove from the ledgers of all
nodes that every sample of every step entered once (pnode audit), train the same without faults, and
compare all losses and the weights to the bit. A run with local steps (-- --sync local), whose losses depend on
who was there, is trained again by its log instead (pnode audit --recompute).

Where this process is root and has ip and nft, each node has a network namespace (--network), and a line
of its own (--line), and its folder is on a disk in memory until the end. On loopback there are no faults of lines
and disks: cut, oneway and full. --emulate gives every node
the device that a file describes, so that a few cores are enough for many nodes.

One node is away at a time (--at-once), and the founder's folder is never deleted or damaged. A fault
waits until the one before is mended. "Throughput kept" is the number of steps over what the nodes alive at each moment
could give: the time, each moment times the share of nodes alive, over the time of a step in the quiet
start. Flags of pnode train follow after "--". The exit code is 1 when anything was wrong; the same seed
gives the same schedule again.`, chaos.Kinds),
		Example: `  pnode chaos --nodes 5 --minutes 30
  pnode chaos --nodes 3 --seconds 40 --seed 7 --faults kill,pause
  pnode chaos --minutes 5 --network namespaces --line 100Mbit/s,5ms --faults kill,cut,oneway,slow
  pnode chaos --replicas 2 --seconds 120 --json -- --preset nano --lr 0.001
  pnode chaos --nodes 3 --seconds 40 --faults kill,leave -- --sync local:h=5`,
		RunE: func(c *cobra.Command, args []string) (err error) {
			if o.Kinds, err = chaos.ParseKinds(kinds); err != nil {
				return err
			}
			if o.Binary, err = image.Executable(); err != nil {
				return err
			}
			if o.Dir == "" {
				root, err := config.DefaultDir()
				if err != nil {
					return err
				}
				if o.Dir, err = config.NewRunDir(root, time.Now()); err != nil {
					return err
				}
			}
			o.Train, o.Within = args, time.Duration((minutes*60+seconds)*float64(time.Second))
			o.Tell = func(line string) { fmt.Fprintln(e.stderr, line) }
			report, failed := chaos.Run(c.Context(), o)
			switch {
			case report.Audit.Steps == 0 && failed != nil:
			case asJSON:
				err = json.NewEncoder(e.stdout).Encode(report)
			default:
				err = report.Print(e.stdout)
			}
			return errors.Join(err, failed)
		},
	}
	f := c.Flags()
	f.IntVar(&o.Nodes, "nodes", o.Nodes, "processes of the run")
	f.Float64Var(&minutes, "minutes", 0, "time of the faults, added to --seconds")
	f.Float64Var(&seconds, "seconds", 0, "time of the faults")
	f.Uint64Var(&o.Seed, "seed", o.Seed, "seed of the schedule of faults")
	f.DurationVar(&o.Every, "every", o.Every, "mean time between two faults")
	f.DurationVar(&o.Longest, "longest", o.Longest, "longest absence of a node; one that joins or is slow is so for 8s more")
	f.IntVar(&o.AtOnce, "at-once", o.AtOnce, "how many nodes may be away at the same time: 2 with five nodes or more")
	f.Var(&o.Network, "network", fmt.Sprintf("where the nodes are: %v", chaos.Networks))
	f.Var(&o.Line, "line", "rate of each node's line and time from node to node in namespaces, such as 100Mbit/s,5ms (default no limits)")
	f.StringVar(&o.Emulate, "emulate", "", "emulate the device in `FILE` (YAML, as of pnode train --emulate) on every node of the run with faults")
	f.DurationVar(&o.Quiet, "quiet", o.Quiet, "time without faults at the start, which gives the time of a step")
	f.StringSliceVar(&kinds, "faults", nil, fmt.Sprintf("`KINDS` of faults, separated by commas (default all that the network can have, of %v)", chaos.Kinds))
	f.StringVar(&o.Replicas, "replicas", "", "copies of the model (default auto)")
	f.StringVar(&o.Stages, "stages", "", "pipeline stages of each copy (default auto)")
	f.StringVar(&o.Dir, "dir", "", "`FOLDER` for the nodes and their logs (default a new one)")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}
