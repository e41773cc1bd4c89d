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
	"pnode/planner/plan"
)

// anyRun stands for --lan without a name.
const anyRun = "any"

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
command for each. If there is none, and somebody is at a terminal, it looks for a run in the local
network, as --lan does: one that was started with "pnode train --lan". Its owner is asked to let
this machine in, and both show a code of six digits, which the owner enters there ("pnode admit CODE").

Other users of a machine can see its command lines while a program runs. Where they must not
see the invite, give it on standard input ("-"), in a file (--invite-file) or in the
environment (` + config.InviteEnv + `).`,
		Example: `  pnode join pnode1-...                     join from any machine that reaches the address
  pnode join - < invite.txt                 the same, with an invite that nobody else sees
  pnode join                                return to the unfinished run of this machine
  pnode join --lan                          ask the owner of a run in the local network
  pnode join --dir ~/run7                   return to the run in a folder`,
		Args: usageArgs(cobra.MatchAll(cobra.MaximumNArgs(1), named)),
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&file, "invite-file", "", "read the invite from `FILE`")
	f.StringVar(&flags.Dir, "dir", "", "`FOLDER` of this node (default a new one; without an invite that of the unfinished run of this machine)")
	lan := f.String("lan", "", "ask for an invite in the local network: the run of the machine with this `NAME`, or with this ID; without a name the only one")
	f.Lookup("lan").NoOptDefVal = anyRun
	addMachineFlags(f, &flags)
	f.Lookup("listen").Usage = "accept other nodes at `HOST:PORT` (default any port)"
	e.screen = addScreen(c)
	e.runsNode(c, func(ctx context.Context, args []string) error {
		if err := flags.Validate(); err != nil {
			return err
		}
		if name := cmp.Or(append(args, "")...); c.Flags().Changed("lan") && *lan == anyRun && plan.ValidName(name) && name != "-" && !strings.HasPrefix(name, "pnode1-") {
			return usageError{c.CommandPath(), fmt.Errorf("unexpected %q: the machine of a run stands after =: pnode join --lan=%s", name, name)}
		}
		target, err := e.target(cmp.Or(append(args, "")...), file)
		if err != nil {
			return usageError{c.CommandPath(), err}
		}
		if !c.Flags().Changed("lan") {
			return e.join(ctx, flags, target, nil)
		}
		if target != "" {
			return usageError{c.CommandPath(), errors.New("an invite and --lan: give one of them")}
		}
		return e.join(ctx, flags, target, lan)
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

func (e environment) join(ctx context.Context, cfg config.Config, target string, lan *string) error {
	if err := errors.Join(cfg.TryListen(), cfg.TryMetrics()); err != nil {
		return err
	}
	target, returns, err := e.place(ctx, &cfg, target, lan)
	if err != nil {
		return err
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
	err = e.interrupts.ended(node.Join(ctx, cfg, target, e.output(ctx, w, numbers, cfg)))
	numbers.Close()
	ended()
	return errors.Join(err, w.Close(), place.Tidy())
}

// place finds out where a node goes that has no invite: to the run in the local network that lan names, if it is not nil; else, without a folder, to
// the unfinished run of this machine; where there is none, into the local network again if a person is there to say whose run that may be. returns is a line that names the unfinished run.
func (e environment) place(ctx context.Context, cfg *config.Config, target string, lan *string) (invite, returns string, err error) {
	switch {
	case target != "" || lan == nil && cfg.Dir != "":
		return target, "", nil
	case lan != nil:
		if *lan == anyRun {
			*lan = ""
		}
		invite, err = e.askLAN(ctx, *cfg, *lan)
		return invite, "", err
	}
	here, err := nodesHere()
	if err != nil {
		return "", "", err
	}
	n, ok, err := here.ComeBack(ctx)
	switch {
	case err != nil:
		return "", "", err
	case ok:
		cfg.Dir = n.Folder()
		return "", fmt.Sprintf("coming back to run %s as %s, %s, in %s", n.Run, n.Name, n.Progress(), n.Folder()), nil
	}
	if !e.hasPerson() {
		return "", "", fmt.Errorf("%w on this machine that is unfinished, and nobody is at a terminal to say whose run of the local network to join: enter one with `pnode join INVITE`, or with --lan=NAME", config.ErrNoRun)
	}
	fmt.Fprintln(e.stderr, "no unfinished run on this machine: looking for one in the local network")
	invite, err = e.askLAN(ctx, *cfg, "")
	return invite, "", err
}

// askLAN has the owner of a run in the local network asked, and returns the invite that this machine gets.
func (e environment) askLAN(ctx context.Context, cfg config.Config, run string) (invite string, err error) {
	e.interrupts.starts()
	return node.LocalAsk{
		Run: run, Name: cmp.Or(cfg.Name, cfg.MachineName(), "a newcomer"),
		Tell:    func(line string) { fmt.Fprintln(e.stderr, line) },
		Confirm: e.confirm,
	}.Do(ctx)
}

// hasPerson reports whether somebody can be asked.
func (e environment) hasPerson() bool { return isTerminal(e.stdin) && isTerminal(e.stderr) }

// confirm asks people whether the machine that has let this one in is theirs. Without a terminal there is nobody to ask.
func (e environment) confirm(ctx context.Context, machine, code string) error {
	if !e.hasPerson() {
		return nil
	}
	fmt.Fprintf(e.stderr, "%s lets this machine in. Press Enter if %s was entered there by you, Ctrl-C if not: ", machine, code)
	pressed := make(chan error, 1)
	go func() {
		_, err := bufio.NewReader(e.stdin).ReadString('\n')
		pressed <- err
	}()
	select {
	case err := <-pressed:
		return err
	case <-ctx.Done():
		return node.ErrInterrupted
	}
}
