package progress

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"pnode/checkpoint"
)

// ErrDamaged: a store does not hold what it should, or not as it was written.
var ErrDamaged = errors.New("checkpoints are damaged: a running node fetches what it lacks from the others; a run of one node needs a node that holds a copy")

// Checkpoints writes a table of manifests.
func Checkpoints(w io.Writer, manifests []checkpoint.Manifest) error {
	if len(manifests) == 0 {
		_, err := fmt.Fprintln(w, "no checkpoints")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	p := printer{w: t}
	p.f("STEP\tGENERATION\tLAYERS\tSIZE\n")
	for _, m := range manifests {
		var bytes int64
		for _, l := range m.Layers {
			bytes += l.SizeBytes
		}
		p.f("%d\t%d\t%d\t%s\n", m.Step, m.Generation, len(m.Layers), size(bytes))
	}
	return errors.Join(p.err, t.Flush())
}

// Verified writes what a verification found; the error wraps ErrDamaged when that is
// not all well.
func Verified(w io.Writer, r checkpoint.Report) error {
	p := printer{w: w}
	p.f("%d chunks, %s, match their checksums\n", r.Chunks, size(r.Bytes))
	for _, m := range r.Manifests {
		verdict := "complete"
		switch {
		case !m.OK:
			verdict = "DAMAGED"
		case m.Here < m.Layers:
			verdict = "complete as far as this node holds it"
		}
		p.f("step %d, generation %d: %d of %d layers here, %s\n", m.Step, m.Generation, m.Here, m.Layers, verdict)
	}
	for _, h := range r.Missing {
		p.f("missing: %s\n", h)
	}
	for _, h := range r.Corrupt {
		p.f("corrupt, moved aside: %s\n", h)
	}
	if r.Damaged != nil {
		p.f("index: %v\n", r.Damaged)
	}
	if p.err != nil {
		return fmt.Errorf("progress: write report: %w", p.err)
	}
	if !r.OK() {
		return ErrDamaged
	}
	return nil
}
