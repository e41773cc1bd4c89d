package progress

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"pnode/checkpoint"
	"pnode/node/api"
	"pnode/planner/plan"
)

// ErrDamaged: a store does not hold what it should, or not as it was written.
var ErrDamaged = errors.New("checkpoints are damaged: while the run goes on a node fetches what it lacks from those that hold a copy; where there is none only a backup has it")

// ErrIndexDamaged: what a store's node needs to go on is not whole, whatever its checkpoints are.
var ErrIndexDamaged = errors.New("the index of the checkpoints is damaged")

// Listed returns what is damaged of a store that was listed, nil for nothing. No byte of a chunk was compared.
func Listed(list api.CheckpointList) error {
	switch {
	case list.Damaged != "" && list.Index != "":
		return fmt.Errorf("%w: %s; %s", ErrDamaged, list.Damaged, list.Index)
	case list.Damaged != "":
		return fmt.Errorf("%w: %s", ErrDamaged, list.Damaged)
	case list.Index != "":
		return fmt.Errorf("%w: %s", ErrIndexDamaged, list.Index)
	}
	return nil
}

// mostHolders is how many nodes a line names; more are counted.
const mostHolders = 4

// Checkpoints writes a table; now dates their age where it is known.
func Checkpoints(w io.Writer, list []api.StoredCheckpoint, now time.Time) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "no checkpoints")
		return err
	}
	return table(w, func(p printer) {
		p.f("STEP\tGENERATION\tLAYERS\tSIZE\tAGE\tHERE\tHELD BY\n")
		for _, c := range list {
			age := "-"
			if !c.Time.IsZero() {
				age = plan.Duration(now.Sub(c.Time).Round(time.Second))
			}
			heldBy := plan.Count(len(c.Holders), "node")
			if len(c.HolderNames) > 0 && len(c.HolderNames) <= mostHolders {
				heldBy = clean(strings.Join(c.HolderNames, ", "))
			}
			if len(c.Holders) > 1 {
				heldBy += fmt.Sprintf("; each layer by at least %d", c.Copies)
			}
			here := "whole"
			if c.Here < c.Layers {
				here = fmt.Sprintf("%d of %s", c.Here, plan.Count(c.Layers, "layer"))
			}
			p.f("%d\t%d\t%d\t%s\t%s\t%s\t%s\n", c.Step, c.Generation, c.Layers, size(c.SizeBytes), age, here, heldBy)
		}
	})
}

// Verified writes what a verification found; the error wraps ErrDamaged or ErrIndexDamaged when that is
// not all well.
func Verified(w io.Writer, r checkpoint.Report) error {
	err := table(w, func(p printer) {
		p.f("%s, %s: checksums OK\n", plan.Count(r.Chunks, "chunk"), size(r.Bytes))
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
		for _, u := range r.Unfinished {
			p.f("unfinished copy%s: %d of %s here; the node brings the rest, or gives it up, when it runs\n", ofStep(u.Step), u.Here, plan.Count(u.Chunks, "chunk"))
		}
		for _, h := range r.Missing {
			p.f("missing: %s\n", r.Path(h))
		}
		for _, h := range r.Corrupt {
			p.f("corrupt: %s\n", r.Path(h))
		}
		if r.Unnamed > 0 {
			why := ": an interrupted save leaves them, and the node removes them when it runs"
			if r.Damaged != nil || r.Index != nil {
				why = " that can be read"
			}
			p.f("%s, %s, of no checkpoint%s\n", plan.Count(r.Unnamed, "chunk"), size(r.UnnamedBytes), why)
		}
		if r.Index != nil && !r.Whole() {
			p.f("damaged: %s\n", oneLine(r.Index))
		}
		if r.Damaged != nil {
			p.f("damaged: %s\n", oneLine(r.Damaged))
		}
	})
	switch {
	case err != nil:
	case !r.Whole():
		err = ErrDamaged
	case r.Index != nil:
		err = fmt.Errorf("%w, the checkpoints are whole: %s", ErrIndexDamaged, oneLine(r.Index))
	}
	return err
}

// ofStep names a step that is known.
func ofStep(step plan.Step) string {
	if step == 0 {
		return ""
	}
	return fmt.Sprintf(" of step %d", step)
}

// ErrFilesDamaged: files beside a node's checkpoints are not as they were written.
var ErrFilesDamaged = errors.New("files of the folder beside its checkpoints are damaged")

// VerifiedFiles writes which other files of a node's folder were compared with their checksums, and a sentence of each that is not
// as it was written; the error wraps ErrFilesDamaged then.
func VerifiedFiles(w io.Writer, compared, damaged []string) error {
	var b strings.Builder
	if len(damaged) == 0 {
		fmt.Fprintf(&b, "%s: checksums OK\n", strings.Join(compared, ", "))
	} else {
		fmt.Fprintf(&b, "compared: %s\n", strings.Join(compared, ", "))
	}
	for _, text := range damaged {
		fmt.Fprintf(&b, "damaged: %s\n", clean(text))
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("progress: write: %w", err)
	}
	if len(damaged) > 0 {
		return ErrFilesDamaged
	}
	return nil
}

// oneLine returns an error's text, which may join several, as one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
