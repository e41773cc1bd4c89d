package main

import (
	"os"

	"github.com/spf13/cobra"

	"pnode/kernels/devices"
)

// probeName names the hidden command that tries drivers in a process of its own.
const probeName = "probe-devices"

func probeCommand() *cobra.Command {
	var s devices.Selection
	c := &cobra.Command{
		Use:     probeName,
		Short:   "Look at what drivers offer, a line for each thing found",
		Example: "  pnode probe-devices --skip opencl:1",
		Hidden:  true,
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			return devices.Examine(os.Stdout, s)
		},
	}
	c.Flags().StringArrayVar(&s.Names, "name", nil, "look at this device")
	c.Flags().StringArrayVar(&s.Skip, "skip", nil, "leave this backend or device out")
	c.Flags().StringArrayVar(&s.Plain, "plain", nil, "leave this device's matrix units alone")
	return c
}
