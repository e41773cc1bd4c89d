package checkpoint

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"

	"pnode/planner/plan"
)

// more multiplies how many crashes and flipped bits are tried: go test ./checkpoint -more 50.
var more = flag.Int("more", 1, "try so many times as many crashes and flipped bits")

// facts holds what a store has acknowledged.
type facts struct {
	manifests map[plan.Step]plan.Hash // and the only chunk of each
	chunks    map[plan.Hash][]byte
	pins      []string
	values    map[string][]byte // of bucket "log"
}

func (f *facts) copy() *facts {
	c := &facts{manifests: map[plan.Step]plan.Hash{}, chunks: map[plan.Hash][]byte{}, pins: slices.Clone(f.pins), values: map[string][]byte{}}
	for k, v := range f.manifests {
		c.manifests[k] = v
	}
	for k, v := range f.chunks {
		c.chunks[k] = v
	}
	for k, v := range f.values {
		c.values[k] = v
	}
	return c
}

// check returns what of the facts a store lacks. What was not acknowledged may be there too.
func (f *facts) check(s *Store) error {
	var lacks []error
	for step, h := range f.manifests {
		if m, err := s.Manifest(step); err != nil || m.Layers[0].Chunks[0] != h {
			lacks = append(lacks, fmt.Errorf("manifest %d: %w", step, err))
		}
	}
	for h, want := range f.chunks {
		if got, err := s.Chunk(h); err != nil || !bytes.Equal(got, want) {
			lacks = append(lacks, fmt.Errorf("chunk %s: %w", h, err))
		}
	}
	pins, err := s.Pins()
	for _, name := range f.pins {
		if !slices.Contains(pins, name) {
			lacks = append(lacks, fmt.Errorf("pin %s: %w", name, err))
		}
	}
	for key, want := range f.values {
		if got, _, err := s.Bucket("log").Get([]byte(key)); err != nil || !bytes.Equal(got, want) {
			lacks = append(lacks, fmt.Errorf("%s has %d bytes, want %d: %w", key, len(got), len(want), err))
		}
	}
	return errors.Join(lacks...)
}

// live uses a store in every way, over a restart, and has each acknowledgement noted as soon as it is one.
func live(t *testing.T, dir string, o Options, note func(func(*facts))) {
	t.Helper()
	s := openStore(t, dir, o)
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	save := func(step plan.Step) {
		data := noise(uint64(step), 1000)
		h := put(t, s, data)
		must(s.Pin("data", []plan.Hash{h}))
		note(func(f *facts) { f.chunks[h] = data; f.pins = []string{"data"} })
		must(s.Commit(oneChunk(step, h, len(data))))
		note(func(f *facts) { f.manifests[step] = h })
	}
	value := func(key string, bytes int) {
		v := noise(uint64(len(key)), bytes)
		must(s.Bucket("log").Write([]Op{{Key: []byte(key), Value: v}}))
		note(func(f *facts) { f.values[key] = v })
	}
	save(1)
	value("vote", 20)
	save(2)
	for range 4 {
		value("snapshot", 400<<10) // the fourth has the journal written anew
	}
	note(func(f *facts) { delete(f.chunks, f.manifests[1]); delete(f.manifests, 1) }) // from here on they may be gone
	must(s.Retain(1))
	sweep(t, s)
	must(s.Close())
	s = openStore(t, dir, o)
	value("after", 20)
	save(3)
	must(s.Close())
}
