package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (e environment) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print what this program was built from",
		Example: "  pnode version",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(e.stdout, version())
			return err
		},
	}
}

// version returns the build information that Go puts into every program, on one line.
func version() string {
	version, commit, changed := "(devel)", "unknown", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				commit = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				changed = ", changed"
			}
		}
	}
	return fmt.Sprintf("pnode %s, commit %s%s, %s %s/%s", version, commit, changed, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
