package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"pnode/planner/plan"
)

// catalog finds what refers to chunks: manifests, each in a file of its own, and the index.
type catalog struct {
	*index
	dir string // the store's
}

const manifestKind = "manifest"

// unsealManifest reads a manifest's file back. The error wraps ErrCorrupt or ErrVersion.
func unsealManifest(step plan.Step, content []byte) (Manifest, error) {
	encoded, err := unsealed(manifestKind, content)
	if err != nil {
		return Manifest{}, err
	}
	m, err := decodeManifest(encoded)
	if err == nil && m.Step != step {
		return Manifest{}, fmt.Errorf("%w: it says step %d", ErrCorrupt, m.Step)
	}
	return m, err
}

func (c catalog) manifestPath(step plan.Step) string {
	return filepath.Join(c.dir, "manifests", fmt.Sprintf("step-%020d", uint64(step)))
}

// manifestStep returns the step in the name of a manifest's file; false for another file.
func manifestStep(name string) (plan.Step, bool) {
	if len(name) != len("step-")+20 || name[:5] != "step-" {
		return 0, false
	}
	step, err := strconv.ParseUint(name[5:], 10, 64)
	return plan.Step(step), err == nil
}

// putManifest makes a manifest durable: first its file, unless that has these bytes, then the note in the index that it must be there.
func (c catalog) putManifest(m Manifest, encoded []byte) error {
	if c.broken != nil {
		return ErrReadOnly
	}
	content := sealed(manifestKind, encoded)
	if kept, err := readAtMost(c.manifestPath(m.Step), len(content)); err == nil && bytes.Equal(kept, content) {
		return c.note(m.Step)
	}
	done, err := c.space.take(int64(len(content)), forManifests)
	if err != nil {
		return err
	}
	defer done()
	tmp := filepath.Join(c.dir, "tmp", filepath.Base(c.manifestPath(m.Step)))
	if err = c.disk.WriteNew(tmp, content); err == nil {
		err = c.disk.Rename(tmp, c.manifestPath(m.Step))
	}
	if err != nil {
		return c.space.explain(err, int64(len(content)))
	}
	return c.note(m.Step)
}

// note makes the files of some manifests durable, whoever wrote them, and has the index say that they must be there.
func (c catalog) note(steps ...plan.Step) error {
	if len(steps) == 0 {
		return nil
	}
	known, err := c.noted()
	if err == nil {
		err = c.space.explain(c.disk.SyncFolder(filepath.Join(c.dir, "manifests")), 0)
	}
	if err != nil {
		return err
	}
	var ops []Op
	for _, step := range steps {
		if !slices.Contains(known, step) {
			ops = append(ops, Op{Key: manifestKey(step)})
		}
	}
	return c.apply(ops)
}

// dropManifests forgets manifests. A crash may leave the files of some, which count again then.
func (c catalog) dropManifests(steps []plan.Step) error {
	var ops []Op
	for _, step := range steps {
		ops = append(ops, Op{Key: manifestKey(step), Delete: true})
	}
	for batch := range slices.Chunk(ops, MaxBatchOps) {
		if err := c.apply(batch); err != nil {
			return err
		}
	}
	for _, step := range steps {
		if err := ignoreMissing(c.disk.Remove(c.manifestPath(step))); err != nil {
			return err
		}
	}
	return nil
}

// filed returns the steps of which there are files.
func (c catalog) filed() (steps []plan.Step, err error) {
	entries, err := os.ReadDir(filepath.Join(c.dir, "manifests"))
	for _, e := range entries {
		if step, ok := manifestStep(e.Name()); ok {
			steps = append(steps, step)
		}
	}
	return steps, ignoreMissing(err)
}

// steps returns the steps whose manifests are there or must be, newest first.
func (c catalog) steps() ([]plan.Step, error) {
	steps, err := c.filed()
	if err != nil {
		return nil, err
	}
	noted, err := c.noted()
	steps = append(steps, noted...)
	slices.Sort(steps)
	steps = slices.Compact(steps)
	slices.Reverse(steps)
	return steps, err
}

// manifest reads the manifest of a step. The error wraps ErrNotFound where there is none, and ErrCorrupt where its file is
// damaged or, though it must be there, missing.
func (c catalog) manifest(step plan.Step) (Manifest, error) {
	content, err := readAtMost(c.manifestPath(step), maxManifestBytes+maxSealLine)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := c.get(manifestKey(step)); err != nil { // ErrNotFound, mostly
			return Manifest{}, err
		}
		return Manifest{}, fmt.Errorf("%w: its file %s is missing", ErrCorrupt, c.manifestPath(step))
	}
	if err != nil {
		return Manifest{}, err
	}
	m, err := unsealManifest(step, content)
	if err != nil {
		return m, fmt.Errorf("%s: %w", c.manifestPath(step), err)
	}
	return m, nil
}

// readAtMost reads a file of at most limit bytes; a longer one is read to one byte more.
func readAtMost(path string, limit int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	return data, errors.Join(err, f.Close())
}

// manifests lists the readable manifests, newest step first, with an error for the damaged ones.
func (c catalog) manifests() ([]Manifest, error) {
	var all []Manifest
	var damaged error
	err := c.eachManifest(func(step plan.Step, m Manifest, err error) bool {
		if err != nil {
			damaged = errors.Join(damaged, fmt.Errorf("manifest of step %d: %w", step, err))
			return true
		}
		all = append(all, m)
		return true
	})
	if err != nil {
		return nil, err
	}
	return all, damaged
}

// eachManifest calls fn for the manifests, newest step first, each with its own error, until fn returns false.
func (c catalog) eachManifest(fn func(step plan.Step, m Manifest, err error) bool) error {
	steps, err := c.steps()
	if err != nil {
		return err
	}
	for _, step := range steps {
		m, err := c.manifest(step)
		if errors.Is(err, ErrNotFound) { // dropped meanwhile
			continue
		}
		if !fn(step, m, err) {
			break
		}
	}
	return nil
}

// Newest returns the newest manifest in a store that can be read, also while a process has the store open. It reads files alone and
// knows nothing of the index. The error wraps ErrNotFound where there is none.
func Newest(dir string) (Manifest, error) {
	c := catalog{dir: dir}
	steps, err := c.filed()
	if err != nil {
		return Manifest{}, fmt.Errorf("checkpoint: newest manifest: %w", err)
	}
	slices.Sort(steps)
	for _, step := range slices.Backward(steps) {
		content, err := readAtMost(c.manifestPath(step), maxManifestBytes+maxSealLine)
		if err != nil {
			continue // dropped meanwhile
		}
		if m, err := unsealManifest(step, content); err == nil {
			return m, nil
		}
	}
	return Manifest{}, fmt.Errorf("checkpoint: newest manifest in %s: %w", dir, ErrNotFound)
}

// references returns the chunks of all manifests and pins.
func (c catalog) references() (map[plan.Hash]bool, error) {
	live := map[plan.Hash]bool{}
	add := func(_ string, hashes []plan.Hash) {
		for _, h := range hashes {
			live[h] = true
		}
	}
	manifests, err := c.manifests()
	if err != nil {
		return nil, err
	}
	for _, m := range manifests {
		add("", m.Hashes())
	}
	return live, c.eachPin(add)
}
