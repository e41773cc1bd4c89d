package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pnode/node"
	"pnode/node/config"
)

// maxInviteFile bounds what is read of an invite's file or of standard input.
const maxInviteFile = 4 << 10

func (e environment) joinCommand() *cobra.Command {
	flags := config.Default()
	var file string
	c := &cobra.Command{
		Use:   "join [INVITE|MULTIADDR|-]",
		Short: "Join a run, or return to one",
		Long: `Join a run with an invite that "pnode train --listen" or "pnode invite" printed. A folder that
belongs to a run already needs none: with --dir alone its node comes back, and the address of a
member (a multiaddr) says where to look first. Without --dir, too, it comes back to the one
unfinished run of this machine, wherever its folder is; if there are several, it names the
command for each.

Other users of a machine can see its command lines while a program runs. Where they must not
see the invite, give it on standard input ("-"), in a file (--invite-file) or in the
environment (` + config.InviteEnv + `).`,
		Example: `  pnode join pnode1-...                     join from any machine that reaches the address
  pnode join - < invite.txt                 the same, with an invite that nobody else sees
  pnode join                                return to the unfinished run of this machine
  pnode join --dir ~/run7                   return to the run in a folder`,
		Args: usageArgs(cobra.MatchAll(cobra.MaximumNArgs(1), named)),
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&file, "invite-file", "", "read the invite from `FILE`")
	f.StringVar(&flags.Dir, "dir", "", "`FOLDER` of this node (default a new one; without an invite that of the unfinished run of this machine)")
	addMachineFlags(f, &flags)
	f.Lookup("listen").Usage = "accept other nodes at `HOST:PORT` (default any port)"
	e.screen = addScreen(c)
	e.runsNode(c, func(ctx context.Context, args []string) error {
		if err := flags.Validate(); err != nil {
			return err
		}
		target, err := e.target(cmp.Or(append(args, "")...), file)
		if err != nil {
			return usageError{c.CommandPath(), err}
		}
		return e.join(ctx, flags, target)
	})
	return c
}

// target returns the invite or the address to join by: the argument, the first line of standard input for "-", that of a
// file, or the environment's; empty for none.
func (e environment) target(arg, file string) (string, error) {
	var from io.Reader
	what := "--invite-file"
	switch {
	case arg != "" && file != "":
		return "", errors.New("an invite as argument and --invite-file: give one of them")
	case arg == "-":
		from, what = e.stdin, "standard input"
	case arg != "":
		return arg, nil
	case file == "":
		return os.Getenv(config.InviteEnv), nil
	default:
		f, err := os.Open(file)
		if err != nil {
			return "", fmt.Errorf("--invite-file: %w", err)
		}
		defer f.Close()
		from, what = f, file
	}
	line, err := bufio.NewReader(io.LimitReader(from, maxInviteFile)).ReadString('\n')
	if line = strings.TrimSpace(line); line == "" {
		if errors.Is(err, io.EOF) {
			err = errors.New("want the invite on its first line")
		}
		return "", fmt.Errorf("no invite in %s: %w", what, err)
	}
	return line, nil
}

func (e environment) join(ctx context.Context, cfg config.Config, target string) error {
	if err := errors.Join(cfg.TryListen(), cfg.TryMetrics()); err != nil {
		return err
	}
	returns := ""
	if target == "" && cfg.Dir == "" {
		var err error
		if cfg.Dir, returns, err = unfinished(ctx); err != nil {
			return err
		}
	}
	place, err := config.JoinPlace(cfg.Dir, target != "", time.Now())
	if err != nil {
		return taken(err, cfg.Dir)
	}
	if err := cfg.TryFiles(); err != nil {
		return errors.Join(err, place.Tidy())
	}
	cfg.Dir = place.Dir
	w, ended := e.show(ctx, cfg, 0)
	defer ended()
	numbers, err := e.numbers(w, cfg)
	if err != nil {
		return errors.Join(err, place.Tidy())
	}
	defer numbers.Close()
	if returns != "" {
		w.Notice(returns)
	}
	if warning := config.MakePrivate(cfg.Dir); warning != "" {
		w.Notice(warning)
	}
	err = node.Join(ctx, cfg, target, e.output(w, numbers, cfg))
	numbers.Close()
	ended()
	return errors.Join(err, w.Close(), place.Tidy())
}

// unfinished returns the folder of the one unfinished run of this machine, and a line that names it; empty where there is none.
func unfinished(ctx context.Context) (dir, says string, err error) {
	here, err := nodesHere()
	if err != nil {
		return "", "", err
	}
	n, ok, err := here.ComeBack(ctx)
	if err != nil || !ok {
		return "", "", err
	}
	return n.Folder(), fmt.Sprintf("coming back to run %s as %s, %s, in %s", n.Run, n.Name, n.Progress(), n.Folder()), nil
}
