package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"pnode/deploy/image"
	"pnode/kernels/devices"
)

// computing lists the commands that look for devices.
var computing = []string{"train", "join", "plan", "doctor"}

func main() {
	var withoutDrivers error
	if len(os.Args) > 1 && slices.Contains(computing, os.Args[1]) {
		withoutDrivers = image.Enter("version") // does not return where the image runs
	}
	e := environment{withoutDrivers: withoutDrivers, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, interrupts: &interrupts{exit: os.Exit}}
	if own, err := image.Executable(); err == nil {
		e.probe = devices.Probe{own, probeName}
	}
	os.Exit(e.run(os.Args[1:]))
}

// run carries a command line out and returns the exit code.
func (e environment) run(args []string) int {
	ctx, stop := e.interrupts.watch(context.Background(), e.stderr)
	defer stop()
	out := &output{Writer: e.stdout}
	e.stdout = out
	root := e.rootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = out.lost()
	}
	if err != nil {
		fmt.Fprintf(e.stderr, "pnode: %s\n", sentence(err))
	}
	return exitCode(err)
}

func (e environment) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "pnode",
		Short: "Train one model on many machines",
		Long: `pnode pools unlike computers behind slow links into one training run of a language model.
One command starts a run, another joins it, and no server keeps it alive.`,
		Example: `  pnode train                          train a small model on text of this machine
  pnode train --local 3                the same, as three nodes
  pnode join pnode1-...                join a run with an invite
  pnode watch                          look at the run in a browser
  pnode status --watch                 the same in a terminal`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          usageArgs(knownCommand),
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },

		PersistentPreRunE: func(c *cobra.Command, _ []string) error { return checkFlags(c) },
	}
	root.SuggestionsMinimumDistance = 2
	root.SetIn(e.stdin)
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{c.CommandPath(), explainFlag(c.Flags(), err)}
	})
	root.AddCommand(
		e.trainCommand(), e.joinCommand(), e.statusCommand(), e.psCommand(), e.profileCommand(), e.watchCommand(), e.inviteCommand(), e.admitCommand(), e.revokeCommand(), e.leaveCommand(), e.recoverCommand(),
		e.fetchCommand(), e.checkpointsCommand(), e.auditCommand(), e.chaosCommand(), e.planCommand(), e.simulateCommand(), e.scheduleCommand(), e.tokenizeCommand(), e.samplesCommand(),
		e.generateCommand(), e.evalCommand(),
		e.pullCommand(), e.importCommand(), e.exportCommand(), e.benchCommand(), e.doctorCommand(), probeCommand(), e.versionCommand(), exitCodesTopic(), trustTopic(),
	)
	for _, command := range extraCommands {
		root.AddCommand(command(e))
	}
	addBuiltIns(root)
	return root
}

// knownCommand refuses a word that names no command, and suggests the closest one.
func knownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if likely := c.SuggestionsFor(args[0]); len(likely) > 0 {
		return fmt.Errorf("unknown command %q: did you mean %q?", args[0], likely[0])
	}
	return fmt.Errorf("unknown command %q", args[0])
}

// addBuiltIns adds the library's commands, help and completion, and makes them refuse unknown words.
func addBuiltIns(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Args, help.Example = usageArgs(func(help *cobra.Command, args []string) error {
			found, rest, err := root.Find(args)
			if err != nil || found == root {
				return knownCommand(root, args)
			}
			return knownCommand(found, rest)
		}), "  pnode help train\n  pnode help exit-codes\n  pnode help trust"
	}
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		completion.Args = usageArgs(knownCommand)
		completion.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
		for _, shell := range completion.Commands() {
			shell.Args, shell.Example = noArgs, "  "+shell.CommandPath()
		}
	}
}
