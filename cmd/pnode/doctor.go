package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"pnode/kernels/devices"
	"pnode/node/config"
	"pnode/pipeline/model"
	"pnode/planner/founding"
	"pnode/planner/plan"
)

func (e environment) doctorCommand() *cobra.Command {
	flags := config.Default()
	var asJSON, net bool
	var dir, file string
	c := &cobra.Command{
		Use:   "doctor [--net INVITE|MULTIADDR|-]",
		Short: "Show the devices of this machine, and what is missing; or what is in the way to a run",
		Long: `List every device with its driver, memory, features, self-test and measured rates. Say which
devices a node uses, and what to do about devices that do not work. Name the folders of runs
that other users of this machine can open.

Drivers are tried in a process of their own: one that crashes is named and left out.

With --net, test the way to the contact of an invite instead: names, routes, UDP, TCP, the proxy
that HTTPS_PROXY names, the clocks, the invite. It takes at most 15 s, changes nothing and does
not use the invite. The exit code is 0 if this machine can join, else that of a join that fails
(` + "`pnode help exit-codes`" + `). In a run, --net --dir FOLDER lists what its links go over, and why.`,
		Example: `  pnode doctor
  pnode doctor --devices opencl:1      try this one, even if a node would not use it
  pnode doctor --json | jq '.devices[] | select(.used)'
  pnode doctor --net pnode1-...        can this machine join, and over what?
  pnode doctor --net - < invite.txt    the same, with an invite that nobody else sees
  pnode doctor --net --dir ~/run7      over what do the links of this run go?`,
		Args: usageArgs(cobra.MatchAll(cobra.MaximumNArgs(1), named)),
		RunE: func(c *cobra.Command, args []string) error {
			if !net && (len(args) > 0 || file != "") {
				return usageError{c.CommandPath(), errors.New("an invite is for --net: pnode doctor --net INVITE")}
			}
			if net && dir != "" && len(args) == 0 && file == "" {
				return e.showLinks(c.Context(), dir, asJSON)
			}
			if net {
				target, err := e.target(cmp.Or(append(args, "")...), file)
				if err == nil && target == "" {
					err = errors.New("--net wants an invite or the address of a member")
				}
				if err != nil {
					return usageError{c.CommandPath(), err}
				}
				return e.diagnoseNet(c.Context(), target, asJSON)
			}
			d, err := devices.Diagnose(c.Context(), devices.Options{Names: flags.Devices.Names(), Threads: flags.Threads, Probe: e.probe})
			if err != nil {
				return err
			}
			open, err := openFolders(dir)
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(e.stdout).Encode(struct {
					devices.Diagnosis
					OpenFolders []string `json:"open_folders,omitempty"`
				}{d, open})
			}
			d.Advice = append(d.Advice, open...)
			_, err = io.WriteString(e.stdout, diagnosis(d, e.withoutDrivers))
			return err
		},
	}
	addThreads(c.Flags(), &flags.Threads)
	addDevices(c.Flags(), &flags)
	c.Flags().BoolVar(&net, "net", false, "test the way to the contact of an invite")
	c.Flags().StringVar(&file, "invite-file", "", "read the invite from `FILE`")
	c.Flags().StringVar(&dir, "dir", "", "look at the run in `FOLDER` (default every run in the user's folder)")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// openFolders returns a line for each folder of a run that other users can open: dir, or those in the user's folder.
func openFolders(dir string) ([]string, error) {
	dirs := []string{dir}
	if dir == "" {
		root, err := config.DefaultDir()
		if err != nil { // a user without a folder has no runs there
			return nil, nil
		}
		if dirs, err = config.RunDirs(root); err != nil {
			return []string{sentence(err)}, nil // the devices are told all the same
		}
	} else if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("%w: %s is not there: name the folder of a run with --dir", config.ErrNoRun, dir)
	}
	var open []string
	for _, d := range dirs {
		if told := config.OpenToOthers(d); told != "" {
			open = append(open, told)
		}
	}
	return open, nil
}

// diagnosis returns the report as text.
func diagnosis(d devices.Diagnosis, withoutDrivers error) string {
	var b strings.Builder
	for _, device := range d.Devices {
		describe(&b, device)
	}
	for _, m := range d.Missing {
		fmt.Fprintf(&b, "no %s devices: %s\n", m.Backend, strings.TrimPrefix(m.Why, m.Backend+": "))
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
		rates += fmt.Sprintf(", %.1f µs a call besides", float64(d.Rates.CallNanos)/1e3)
		if d.Rates.CopyBytesPerS > 0 {
			rates += fmt.Sprintf(", copies %.1f GB/s each way", giga(d.Rates.CopyBytesPerS))
		}
		line("measured", rates)
		line("storage", storage(d))
	}
	if d.Used {
		line("used", "yes")
	} else {
		line("used", "no: "+d.Why)
	}
}

// storage says what a run on this device alone would store by itself, and why; empty where that is float32 and there is no choice.
func storage(d devices.Diagnosed) string {
	w := founding.PrecisionOf(plan.StorageAuto, []plan.DeviceProfile{{MatMulFLOPS: d.Rates.MatMulFLOPS, MatMulBF16FLOPS: d.Rates.MatMulBF16FLOPS, MatMulF16FLOPS: d.Rates.MatMulF16FLOPS}}, true)
	switch {
	case w.Half == model.StorageF32 && d.Name == devices.CPU:
		return "auto takes f32 here: this processor uses no instructions for products of bf16"
	case w.Half == model.StorageF32:
		return ""
	}
	return fmt.Sprintf("auto takes %v here: products in %v are %s times as fast as in f32", w.Storages[0], w.Half, w.Times())
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
