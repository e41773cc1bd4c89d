package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"pnode/kernels/devices"
	"pnode/node/config"
)

func (e environment) doctorCommand() *cobra.Command {
	flags := config.Default()
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Show the devices of this machine, and what is missing",
		Long: `List every device with its driver, memory, features, self-test and measured rates. Say which
devices a node uses, and what to do about devices that do not work.

Drivers are tried in a process of their own: one that crashes is named and left out.`,
		Example: `  pnode doctor
  pnode doctor --devices opencl:1      try this one, even if a node would not use it
  pnode doctor --json | jq '.devices[] | select(.used)'`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := devices.Diagnose(c.Context(), devices.Options{Names: flags.Devices.Names(), Threads: flags.Threads, Probe: e.probe})
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(e.stdout).Encode(d)
			}
			_, err = io.WriteString(e.stdout, diagnosis(d, e.withoutDrivers))
			return err
		},
	}
	addThreads(c.Flags(), &flags.Threads)
	addDevices(c.Flags(), &flags)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// diagnosis returns the report as text.
func diagnosis(d devices.Diagnosis, withoutDrivers error) string {
	var b strings.Builder
	for _, device := range d.Devices {
		describe(&b, device)
	}
	for _, m := range d.Missing {
		fmt.Fprintf(&b, "no %s devices: %s\n", m.Backend, m.Why)
	}
	switch {
	case d.Drivers:
	case withoutDrivers != nil:
		fmt.Fprintf(&b, "this program opens no drivers here: %v\n", withoutDrivers)
	default:
		b.WriteString("this program opens no drivers: it was built with -tags static; build it without, or take a release's file\n")
	}
	for _, a := range d.Advice {
		fmt.Fprintf(&b, "%s\n", a)
	}
	return b.String()
}

func describe(b *strings.Builder, d devices.Diagnosed) {
	line := func(what, text string) {
		if text != "" {
			fmt.Fprintf(b, "  %-10s %s\n", what, text)
		}
	}
	fmt.Fprintf(b, "%s  %s\n", d.Name, d.Model)
	line("driver", strings.Join(slices.DeleteFunc([]string{d.Platform, d.Version, d.Driver}, func(s string) bool { return s == "" }), ", "))
	line("bus", d.PCI)
	if d.MemoryBytes > 0 {
		memory := fmt.Sprintf("%.1f GiB, %.1f GiB in one buffer", gib(d.MemoryBytes), gib(d.AllocBytes))
		if d.FreeBytes > 0 {
			memory += fmt.Sprintf(", %.1f GiB free", gib(d.FreeBytes))
		}
		line("memory", memory)
	}
	line("features", strings.Join(d.Features, ", "))
	line("products", d.Products)
	line("problem", d.Problem)
	if d.Passed {
		line("self-test", "passed")
		rates := fmt.Sprintf("products %.1f GFLOP/s", giga(d.Rates.MatMulFLOPS))
		if half := d.Rates.MatMulBF16FLOPS; half > 0 {
			rates += fmt.Sprintf(", in bf16 %.1f GFLOP/s", giga(half))
		}
		if half := d.Rates.MatMulF16FLOPS; half > 0 {
			rates += fmt.Sprintf(", in f16 %.1f GFLOP/s", giga(half))
		}
		rates += fmt.Sprintf(", attention %.1f GFLOP/s, memory %.1f GB/s", giga(d.Rates.AttentionFLOPS), giga(d.Rates.MemoryBytesPerS))
		if d.Rates.CopyBytesPerS > 0 {
			rates += fmt.Sprintf(", copies %.1f GB/s each way", giga(d.Rates.CopyBytesPerS))
		}
		line("measured", rates)
	}
	if d.Used {
		line("used", "yes")
	} else {
		line("used", "no: "+d.Why)
	}
}

func gib(bytes int64) float64 { return float64(bytes) / (1 << 30) }
func giga(n int64) float64    { return float64(n) / 1e9 }

// probeName names the hidden command that tries drivers in a process of its own.
const probeName = "probe-devices"

func probeCommand() *cobra.Command {
	var s devices.Selection
	c := &cobra.Command{
		Use:     probeName,
		Short:   "Look at what drivers offer, a line for each thing found",
		Example: "  pnode probe-devices --skip opencl:1",
		Hidden:  true,
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			return devices.Examine(os.Stdout, s)
		},
	}
	c.Flags().StringArrayVar(&s.Names, "name", nil, "look at this device")
	c.Flags().StringArrayVar(&s.Skip, "skip", nil, "leave this backend or device out")
	c.Flags().StringArrayVar(&s.Plain, "plain", nil, "leave this device's matrix units alone")
	return c
}
