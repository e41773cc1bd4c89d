package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"pnode/checkpoint"
	"pnode/node/config"
	"pnode/node/ingest"
	"pnode/node/ledger"
	"pnode/node/recompute"
	"pnode/planner/plan"
)

// errInitGone says why a run that began with weights is not trained again.
var errInitGone = errors.New("node: the weights that the run began with (--init) are in none of the folders: nodes keep them until the first checkpoint, so it cannot be trained again")

// Recomputed says how a run that was trained again compares with what its nodes have.
type Recomputed struct {
	Step plan.Step `json:"step"`
	// Layers of the model were found in a store, of Compared states in all.
	Layers   int `json:"layers"`
	Compared int `json:"compared"`
	// Problems say what differs.
	Problems []string `json:"problems"`
	// Unlike say why nodes may have other last digits than this processor computes, though honest. With any of them Problems prove nothing.
	Unlike []string `json:"unlike,omitempty"`
}

// Err returns an error where something differs, or a layer was not found.
func (r Recomputed) Err() error {
	if len(r.Problems) == 0 {
		return nil
	}
	if len(r.Unlike) > 0 {
		return errors.New("node: the run is not proven: trained again it differs, which other instructions may explain")
	}
	return fmt.Errorf("node: trained again the run differs: %s", plan.Count(len(r.Problems), "problem"))
}

// Print writes the comparison for people.
func (r Recomputed) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "trained again to step %d: ", r.Step)
	if len(r.Problems) == 0 {
		fmt.Fprintf(&b, "%s of the model in the folders, compared %s, all the same to the bit\n", plan.Count(r.Layers, "layer"), plan.Count(r.Compared, "time"))
	} else {
		fmt.Fprintf(&b, "%s differ or are missing\n", plan.Count(len(r.Problems), "thing"))
	}
	verdict := "wrong"
	if len(r.Unlike) > 0 {
		verdict = "differs"
	}
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "%s: %s\n", verdict, p)
	}
	if len(r.Problems) > 0 && len(r.Unlike) > 0 {
		for _, u := range r.Unlike {
			fmt.Fprintf(&b, "note: %s\n", u)
		}
		b.WriteString("note: this proves nothing against anyone, since other instructions give other last digits, and in bf16 other losses: name the folders of all nodes, and train again on a processor that has theirs\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// RecomputeOptions say how a run is trained again.
type RecomputeOptions struct {
	// Dirs are the folders of the run's nodes.
	Dirs []string
	// To is the step to train to; 0 is the newest one of which a folder has a checkpoint.
	To plan.Step
	// OnStep hears of each step how many of all are done. It may be called by any goroutine.
	OnStep func(done, of int)
}

// Recompute trains a run again by what the ledgers in the folders of its nodes say of its log, in this process, and compares the model with those in the
// folders' stores. The nodes must be stopped.
func Recompute(ctx context.Context, o RecomputeOptions) (out Recomputed, err error) {
	var dirs []string
	for _, named := range o.Dirs {
		each := config.NodeDirs(named)
		if len(each) == 0 || config.Belongs(named) {
			each = []string{named}
		}
		dirs = append(dirs, each...)
	}
	run, err := LoadRun(dirs[0])
	if err != nil {
		return out, err
	}
	var stores []*checkpoint.Store
	defer func() {
		for _, s := range stores {
			err = errors.Join(err, s.Close())
		}
	}()
	var contents []ledger.Contents
	for _, dir := range dirs {
		store, err := OpenStore(dir, slog.New(slog.DiscardHandler))
		if err != nil {
			return out, err
		}
		stores = append(stores, store)
		c, err := readContents(dir)
		if err != nil {
			return out, err
		}
		contents = append(contents, c)
		if kept, err := checkpoint.Newest(storeDir(dir)); err == nil {
			out.Step = max(out.Step, kept.Step)
		}
	}
	if o.To != 0 {
		out.Step = o.To
	}
	history, err := recompute.FromLedgers(run, contents)
	if err != nil {
		return out, err
	}
	data, err := ingest.OpenStored(storedChunks(stores), run)
	if err != nil {
		return out, err
	}
	c := recompute.Config{History: history, Data: data, OnStep: o.OnStep, Log: slog.New(slog.DiscardHandler)}
	if run.Init != nil {
		c.Initial = func(layer int, dst io.Writer) error {
			for _, h := range run.Init.Layers[layer].Chunks {
				chunk, err := storedChunks(stores).Chunk(ctx, h)
				if errors.Is(err, checkpoint.ErrNotFound) {
					return fmt.Errorf("%w: %w", errInitGone, err)
				}
				if err == nil {
					_, err = dst.Write(chunk)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}
	}
	result, err := recompute.Run(ctx, c, out.Step)
	if err != nil {
		return out, err
	}
	out.Problems, out.Unlike = result.Differ, result.Unlike
	err = out.compare(ctx, run, result, stores, dirs)
	return out, err
}

// compare compares the layers that training again has led to with those in the stores of folders.
func (r *Recomputed) compare(ctx context.Context, run plan.RunSpec, result recompute.Result, stores []*checkpoint.Store, dirs []string) error {
	found := map[int]bool{}
	for i, s := range stores {
		m, err := s.Manifest(r.Step)
		if err != nil {
			continue // another node's
		}
		for _, l := range m.Layers {
			if slices.ContainsFunc(l.Chunks, func(h plan.Hash) bool { return !s.HasChunk(h) }) {
				continue
			}
			var kept bytes.Buffer
			if err := s.ReadLayer(ctx, l.Chunks, &kept); err != nil {
				return err
			}
			found[l.Layer] = true
			if r.Compared++; !bytes.Equal(kept.Bytes(), result.Layers[l.Layer]) {
				r.Problems = append(r.Problems, fmt.Sprintf("layer %d of step %d in %s is another one than training again gives", l.Layer, r.Step, dirs[i]))
			}
		}
	}
	if r.Layers = len(found); r.Layers < run.Model.Layers() {
		r.Problems = append(r.Problems, fmt.Sprintf("%d of the %d layers of step %d are in none of the folders", run.Model.Layers()-r.Layers, run.Model.Layers(), r.Step))
	}
	return nil
}

// storedChunks reads chunks from whichever store has them. It implements dataset.ChunkSource.
type storedChunks []*checkpoint.Store

// Chunk returns a chunk.
func (s storedChunks) Chunk(_ context.Context, h plan.Hash) (chunk []byte, err error) {
	for _, store := range s {
		if chunk, err = store.Chunk(h); err == nil {
			return chunk, nil
		}
	}
	return nil, err
}
