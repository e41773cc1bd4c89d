package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/pflag"

	"pnode/kernels"
	"pnode/kernels/devices"
	"pnode/node"
	"pnode/node/config"
	"pnode/node/dataset/files"
	"pnode/node/weights"
)

// modelFlags name the model that a command reads, and adapters for it: folders, or models on the hub.
type modelFlags struct{ dir, lora string }

func (m *modelFlags) add(f *pflag.FlagSet) {
	f.StringVar(&m.dir, "dir", "", "`FOLDER` of a run, a Hugging Face model or an imported one; hf:ORG/NAME downloads one (default the newest run)")
	f.StringVar(&m.lora, "lora", "", "merge the adapters in `FOLDER` (PEFT layout; or hf:ORG/NAME) into the model")
}

// computeFlags name the devices and threads that a command computes on.
type computeFlags struct {
	devices config.Devices
	threads int
}

func (c *computeFlags) add(f *pflag.FlagSet) {
	addThreads(f, &c.threads)
	f.Var(&c.devices, "devices", "device to compute on, for example cuda:1; auto takes the fastest GPU that works, else the processor; of several the fastest is taken")
}

// onDevice opens the device for a model to compute on, and closes it after do.
func (e environment) onDevice(ctx context.Context, c computeFlags, m *weights.Model, do func(kernels.Device) error) error {
	if m.Words == nil {
		return fmt.Errorf("%s: %w", m.From, m.NoWords)
	}
	set, err := devices.OpenOne(ctx, devices.Options{Names: c.devices.Names(), Threads: c.threads, Probe: e.probe})
	if err != nil {
		return err
	}
	for _, reason := range set.Dropped {
		fmt.Fprintf(e.stderr, "pnode: %s\n", reason)
	}
	device := set.Devices[0]
	err = do(device.Device)
	if errors.Is(err, kernels.ErrOutOfMemory) {
		err = fmt.Errorf("%w: end other programs that use %s, or take another device with --devices (cpu is the processor)", err, device.Name())
	}
	return errors.Join(err, set.Close())
}

// withModel opens a model, which it downloads if it has to, prints its warnings, and closes it after do.
func (e environment) withModel(ctx context.Context, from modelFlags, do func(*weights.Model) error) error {
	if err := e.haveModels(ctx, &from.dir, &from.lora); err != nil {
		return err
	}
	if err := checkLoRA(from.lora); err != nil {
		return err
	}
	m, err := orInterrupted(ctx, func() (*weights.Model, error) { return from.open(ctx) })
	if err != nil {
		return err
	}
	for _, warning := range m.Warnings {
		fmt.Fprintln(e.stderr, "warning: "+warning)
	}
	return errors.Join(do(m), m.Close())
}

func (m modelFlags) open(ctx context.Context) (*weights.Model, error) {
	opened, err := node.OpenModel(ctx, m.dir, slog.New(slog.DiscardHandler))
	if err == nil && m.lora != "" {
		return weights.WithAdapters(opened, m.lora)
	}
	return opened, err
}

// orInterrupted returns what open returns, or an error as soon as ctx ends: the end of the process then ends open, which
// may read a large file or wait for a disk that hangs.
func orInterrupted(ctx context.Context, open func() (*weights.Model, error)) (*weights.Model, error) {
	type opened struct {
		model *weights.Model
		err   error
	}
	done := make(chan opened, 1)
	go func() {
		m, err := open()
		done <- opened{m, err}
	}()
	select {
	case o := <-done:
		return o.model, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// checkLoRA refuses a folder of adapters that is not there, before a model is read for it.
func checkLoRA(dir string) error {
	if dir == "" {
		return nil
	}
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("lora: %w", files.Explain(err))
	}
	return nil
}

// tellModel prints which model computes, and on what.
func (e environment) tellModel(m *weights.Model, on kernels.Device) {
	fmt.Fprintf(e.stderr, "%s, %.1f M parameters, on %s\n", m.From, float64(m.Config.Params())/1e6, on.Name())
}
