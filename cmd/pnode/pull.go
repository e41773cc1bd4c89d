package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"pnode/checkpoint/hub"
	"pnode/checkpoint/huggingface"
	"pnode/node/config"
	"pnode/node/plain"
	"pnode/node/progress"
)

func (e environment) pullCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "pull hf:ORG/NAME[@REVISION] [--dir FOLDER]",
		Short: "Download a model from the Hugging Face hub",
		Long: `Download what training needs of a model: config.json, the tokenizer, and its weights as safetensors,
in one file or several. Weights as pickles are not downloaded: they are programs. A model whose
config.json this program cannot compute ends it before its weights are fetched.

The model comes into a folder for its commit in the user's cache ($XDG_CACHE_HOME/pnode/models,
~/.cache/pnode/models), or into --dir. Files are checked by the hub's checksums. After Ctrl-C, a cut
or a crash the same command continues. Wherever commands take a model's folder, as in "pnode train
--init", "pnode generate --dir" or "--lora", hf:ORG/NAME downloads by itself.

HF_TOKEN in the environment is shown to the hub, and to no other host: private models and those
with terms to accept need it. HF_ENDPOINT is the address of a mirror. HTTPS_PROXY is heeded.`,
		Example: `  pnode pull hf:openai-community/gpt2
  pnode pull hf:meta-llama/Llama-3.2-1B --dir ~/llama
  HF_ENDPOINT=https://mirror.example pnode pull hf:Qwen/Qwen2.5-0.5B@main
  pnode train --init hf:openai-community/gpt2 --lora-rank 8 --data notes/`,
		Args: usageArgs(cobra.MatchAll(one("the model, as hf:ORG/NAME"), named)),
		RunE: func(c *cobra.Command, args []string) error {
			p, err := e.pull(c.Context(), args[0], dir)
			if err != nil {
				return err
			}
			came := "it was here"
			if p.Bytes > 0 {
				came = fmt.Sprintf("%.1f MB came", float64(p.Bytes)/1e6)
			}
			fmt.Fprintf(e.stdout, "%s: commit %s, %s; train it with\n  pnode train --init %s --data PATH\n", p.Dir, p.Commit, came, plain.Quote(p.Dir))
			return nil
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "`FOLDER` to create (default one in the user's cache)")
	return c
}

// pull downloads a model, and shows how it comes.
func (e environment) pull(ctx context.Context, name, dir string) (hub.Pulled, error) {
	defer ownFiles()() // a token may have been needed for the model
	ref, err := hub.Parse(name)
	if err != nil {
		return hub.Pulled{}, err
	}
	cache, err := config.CacheDir()
	if err != nil && dir == "" {
		return hub.Pulled{}, fmt.Errorf("%w; name a folder with --dir", err)
	}
	client, err := hub.NewClient(os.Getenv)
	if err != nil {
		return hub.Pulled{}, err
	}
	p, err := client.Pull(ctx, ref, hub.Options{
		Dir: dir, Cache: cache, Config: huggingface.CheckConfig, Progress: progress.Pulling(e.stderr, isTerminal(e.stderr), time.Now),
		Retrying: progress.Retrying(e.stderr, isTerminal(e.stderr)),
	})
	if errors.Is(err, context.Canceled) {
		return p, errors.New("interrupted before all of the model was here; the same command continues")
	}
	return p, err
}

// haveModels replaces names of models on the hub by the folders that they are downloaded into. Other names stay.
func (e environment) haveModels(ctx context.Context, names ...*string) error {
	return eachOfHub(names, func(ref hub.Ref) (string, error) {
		p, err := e.pull(ctx, ref.String(), "")
		return p.Dir, err
	})
}

// findModels is haveModels for commands that download nothing.
func findModels(names ...*string) error {
	return eachOfHub(names, func(ref hub.Ref) (string, error) {
		cache, err := config.CacheDir()
		if err != nil {
			return "", err
		}
		if dir, ok := hub.Newest(ref, cache); ok {
			return dir, nil
		}
		return "", fmt.Errorf("%w: %v is not on this machine yet: pnode pull %v", hub.ErrNotFound, ref, ref)
	})
}

// eachOfHub replaces names of models on the hub by their folders.
func eachOfHub(names []*string, folder func(hub.Ref) (string, error)) error {
	for _, name := range names {
		if !hub.IsRef(*name) {
			continue
		}
		ref, err := hub.Parse(*name)
		if err != nil {
			return err
		}
		if *name, err = folder(ref); err != nil {
			return err
		}
	}
	return nil
}
