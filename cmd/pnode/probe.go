package main

import (
	"os"

	"github.com/spf13/cobra"

	"pnode/kernels/devices"
)

// probeName is the command by which this program looks at devices in a process of its own.
const probeName = "probe-devices"

func probeCommand() *cobra.Command {
	var names, skip []string
	c := &cobra.Command{
		Use:     probeName,
		Short:   "Look at what drivers offer, a line for each thing found",
		Example: "  pnode probe-devices --skip opencl:1",
		Hidden:  true,
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			return devices.Examine(os.Stdout, names, skip)
		},
	}
	c.Flags().StringArrayVar(&names, "name", nil, "look at this device")
	c.Flags().StringArrayVar(&skip, "skip", nil, "leave this backend or device out")
	return c
}
