package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"pnode/planner/plan"
)

// catalog is the index of a store: its manifests and pins, and the only way to write into the
// index.
type catalog struct {
	*index
	space *space
}

// apply writes a batch, all of it or nothing, and keeps the reserve free. It also keeps room for a
// compaction, which may write every table again before it removes the old ones. A batch that only
// deletes may go deeper into the reserve, since it makes room.
func (c catalog) apply(ops []Op) error {
	p, spare := forDeletes, int64(0)
	for _, op := range ops {
		if !op.Delete {
			p, spare = forIndex, c.tableBytes()
		}
	}
	bytes := opBytes(ops)
	done, err := c.space.takeBeside(spare, bytes, p)
	if err != nil {
		return err
	}
	defer done()
	return c.space.explain(c.write(ops), bytes)
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

// eachManifest calls fn for the manifests, newest step first, each with the error of its own
// record, until fn returns false.
func (c catalog) eachManifest(fn func(step plan.Step, m Manifest, err error) bool) error {
	return c.walk([]byte{manifestKeys}, nil, true, func(key []byte, value func() ([]byte, error)) (bool, error) {
		if len(key) != 9 {
			return false, fmt.Errorf("%w: manifest key %q", ErrCorrupt, key)
		}
		step := plan.Step(binary.BigEndian.Uint64(key[1:]))
		encoded, err := value()
		var m Manifest
		if err == nil {
			m, err = decodeAt(step, encoded)
		}
		return fn(step, m, err), nil
	})
}

func decodeAt(step plan.Step, encoded []byte) (Manifest, error) {
	m, err := decodeManifest(encoded)
	if err == nil && m.Step != step {
		return Manifest{}, fmt.Errorf("%w: it says step %d", ErrCorrupt, m.Step)
	}
	return m, err
}

func manifestKey(step plan.Step) []byte {
	return binary.BigEndian.AppendUint64([]byte{manifestKeys}, uint64(step))
}

// eachPin calls fn for the pins, sorted by name: named lists of chunks that stay.
func (c catalog) eachPin(fn func(name string, hashes []plan.Hash)) error {
	return c.walk([]byte{pinKeys}, nil, false, func(key []byte, value func() ([]byte, error)) (bool, error) {
		name := string(key[1:])
		var hashes []plan.Hash
		b, err := value()
		if err == nil {
			hashes, err = decodePin(b)
		}
		if err != nil {
			return false, fmt.Errorf("pin %s: %w", name, err)
		}
		fn(name, hashes)
		return true, nil
	})
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

func pinKey(name string) []byte { return append([]byte{pinKeys}, name...) }

func encodePin(hashes []plan.Hash) (b []byte) {
	for _, h := range hashes {
		b = append(b, h[:]...)
	}
	return b
}

func decodePin(b []byte) (hashes []plan.Hash, err error) {
	if len(b)%len(plan.Hash{}) != 0 {
		return nil, fmt.Errorf("%w: pin of %d bytes", ErrCorrupt, len(b))
	}
	for h := range slices.Chunk(b, len(plan.Hash{})) {
		hashes = append(hashes, plan.Hash(h))
	}
	return hashes, nil
}
