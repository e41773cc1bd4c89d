//go:build !man

package main

import "github.com/spf13/cobra"

// extraCommands lists what a build tag adds (man.go).
var extraCommands []func(environment) *cobra.Command
