package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pnode/node/bench/losses"
	"pnode/node/config"
)

func (e environment) benchLossesCommand() *cobra.Command {
	var o losses.Options
	var arms []string
	c := &cobra.Command{
		Use:   "losses --folder FOLDER --arm FLAGS --arm FLAGS... [-- TRAIN-FLAG...]",
		Short: "What settings do to the loss, over seeds",
		Long: `Train a model with each of several choices of settings (arms) and each seed, one run after the other, and
compare held-out losses with those of the first arm. An arm is a flag of pnode train, or several; what all arms have in common
follows after "--". Runs of one seed begin with the same parameters and read the same samples.

Everything is kept in the folder. After an interrupt the same command goes on where it stopped, and arms and
seeds can be added. losses.svg there has the curves. A table says how far arms are from the first one after the last
step and at their best, and how many of the steps they need that the first one needs for its least loss.`,
		Example: `  pnode bench losses --folder sync --arm '--sync every-step' --arm '--sync local:h=30,codec=int8,warmup=10%' \
    --arm '--sync local:h=30,codec=topk,warmup=10%' -- --preset nano --local 2 --replicas 2 --steps 2500
  pnode bench losses --folder muon --arm '--lr 1e-3' --arm '--lr 2e-3' --arm '--optimizer muon --lr 2e-3'`,
	}
	f := e.measures(c, func(ctx context.Context, m measuring) (report, error) {
		o.Binary, o.Progress = m.binary, m.progress
		var err error
		if o.Arms, err = armsOf(arms, c.Flags().Args()); err != nil {
			return nil, usageError{c.CommandPath(), err}
		}
		switch {
		case o.Folder == "":
			return nil, usageError{c.CommandPath(), errors.New("--folder is missing: name one that keeps what is measured")}
		case o.Seeds < 1 || o.Seeds > 1000:
			return nil, usageError{c.CommandPath(), fmt.Errorf("--seeds is %d: take 1 to 1000", o.Seeds)}
		}
		r, err := losses.Train(ctx, o)
		if len(r.Runs) > 0 {
			err = errors.Join(err, draw(filepath.Join(o.Folder, "losses.svg"), r))
		}
		return r, err
	})
	c.Args = cobra.ArbitraryArgs
	f.StringVar(&o.Folder, "folder", "", "`FOLDER` that keeps what is measured")
	f.StringArrayVar(&arms, "arm", nil, "`FLAGS` of pnode train that make an arm, the first one to compare with; repeat it for each")
	f.IntVar(&o.Seeds, "seeds", 3, "how many seeds to train each arm with, from 1 on")
	return c
}

// armsOf returns arms from their flags of pnode train and those that all have in common.
func armsOf(arms, common []string) (all []losses.Arm, err error) {
	if len(arms) < 2 {
		return nil, errors.New("name two arms or more with --arm: the first one is what the others are compared with")
	}
	names := map[string]string{}
	for _, arm := range arms {
		args := append(append([]string(nil), common...), strings.Fields(arm)...)
		cfg := config.Default()
		f := pflag.NewFlagSet("arm", pflag.ContinueOnError)
		f.SetOutput(io.Discard)
		addTrainFlags(f, &cfg)
		if err := f.Parse(args); err != nil {
			return nil, fmt.Errorf("--arm %q: %w", arm, explainValue(err))
		}
		if f.NArg() > 0 {
			return nil, fmt.Errorf("--arm %q: %q is no flag of pnode train", arm, f.Arg(0))
		}
		for _, own := range []string{"dir", "seed", "resume"} {
			if f.Changed(own) {
				return nil, fmt.Errorf("--arm %q: --%s is each run's own", arm, own)
			}
		}
		if cfg, err = config.Effective("", cfg, givenKeys(f)); err != nil {
			return nil, fmt.Errorf("--arm %q: %w", arm, err)
		}
		cfg.Local = max(1, cfg.Local)
		name := armName(arm)
		if other, taken := names[name]; taken {
			return nil, fmt.Errorf("--arm %q and %q are the same", arm, other)
		}
		names[name] = arm
		if len(all) > 0 && cfg.Steps != all[0].Config.Steps {
			return nil, fmt.Errorf("--arm %q has %d steps, the first one %d: losses are compared after the same steps", arm, cfg.Steps, all[0].Config.Steps)
		}
		all = append(all, losses.Arm{Name: name, Config: cfg, Says: strings.Join(args, " ")})
	}
	return all, nil
}

// armName returns the name of an arm's files: its flags, of letters that every file system has.
func armName(flags string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune(".-=", r):
			return r
		case r == ' ' || r == ',' || r == ':':
			return '-'
		}
		return '_'
	}, strings.Join(strings.Fields(flags), " "))
	return strings.TrimLeft(strings.ReplaceAll(name, "--", ""), "-")
}

// draw writes the curves of a report to a file.
func draw(path string, r losses.Report) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return r.SVG(file)
}
