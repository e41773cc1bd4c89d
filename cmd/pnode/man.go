//go:build man

package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// extraCommands lists what a build tag adds: a program built with the tag man writes the manual pages of a release. Users'
// programs leave out what that takes.
var extraCommands = []func(environment) *cobra.Command{environment.manCommand}

func (e environment) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man FOLDER",
		Short:  "Write the manual pages",
		Hidden: true,
		Args:   usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root := c.Root()
			forManual(root)
			return doc.GenManTree(root, &doc.GenManHeader{Source: "pnode", Manual: "pnode"}, args[0])
		},
	}
}

// forManual turns the texts of a command, and those below it, into the Markdown that the pages are made of.
func forManual(c *cobra.Command) {
	c.DisableAutoGenTag = true
	c.Long, c.Short = markdown(c.Long), markdown(c.Short)
	each := func(f *pflag.Flag) {
		f.Usage = markdown(strings.ReplaceAll(f.Usage, "`", ""))
	}
	c.InitDefaultHelpFlag()
	c.Flags().VisitAll(each)
	for _, child := range c.Commands() {
		forManual(child)
	}
}

var markdownSigns = strings.NewReplacer(`\`, `\\`, "*", `\*`, "_", `\_`, "<", `\<`, "[", `\[`, "`", "\\`")

// markdown takes plain text. Lines that begin with two blanks are examples, which stay as they are.
func markdown(text string) string {
	var b strings.Builder
	example := false
	for line := range strings.Lines(text) {
		indented := strings.HasPrefix(line, "  ")
		if indented != example && strings.TrimSpace(line) != "" {
			b.WriteByte('\n')
			example = indented
		}
		if indented {
			b.WriteString("  " + line)
			continue
		}
		b.WriteString(markdownSigns.Replace(line))
	}
	return b.String()
}
