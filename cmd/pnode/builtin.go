package main

import "github.com/spf13/cobra"

// addBuiltIns adds the library's commands, help and completion, and makes them refuse unknown words.
func addBuiltIns(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Args, help.Example = usageArgs(knownTopic), "  pnode help train\n  pnode help exit-codes"
	}
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		completion.Args = usageArgs(cobra.NoArgs)
		completion.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
		for _, shell := range completion.Commands() {
			shell.Args, shell.Example = usageArgs(cobra.NoArgs), "  "+shell.CommandPath()
		}
	}
}

// knownTopic refuses a topic without help.
func knownTopic(help *cobra.Command, args []string) error {
	found, rest, err := help.Root().Find(args)
	if err != nil || found == help.Root() {
		return knownCommand(help.Root(), args)
	}
	return knownCommand(found, rest)
}
