package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/pflag"

	"pnode/node"
	"pnode/node/weights"
)

// modelFlags say which model a command reads.
type modelFlags struct{ dir, lora string }

func (m *modelFlags) add(f *pflag.FlagSet) {
	f.StringVar(&m.dir, "dir", "", "`FOLDER` of a stopped run, of a model in Hugging Face's layout, or of an imported one (default the newest run's)")
	f.StringVar(&m.lora, "lora", "", "`FOLDER` of adapters in PEFT's layout to work into the model")
}

// withModel opens a model for a while and tells its warnings.
func (e environment) withModel(ctx context.Context, from modelFlags, do func(*weights.Model) error) error {
	m, err := node.OpenModel(ctx, from.dir, slog.New(slog.DiscardHandler))
	if err == nil && from.lora != "" {
		m, err = weights.WithAdapters(m, from.lora)
	}
	if err != nil {
		return err
	}
	for _, warning := range m.Warnings {
		fmt.Fprintln(e.stderr, "warning: "+warning)
	}
	return errors.Join(do(m), m.Close())
}
