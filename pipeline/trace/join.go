package trace

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
)

// Join reads the files of nodes that ran together, merges them and writes one. A node
// that never came to write is left out.
func Join(path string, files ...string) error {
	var traces []Trace
	for _, file := range files {
		t, err := readFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		traces = append(traces, t)
	}
	return Merge(traces...).write(path)
}

func readFile(path string) (Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return Trace{}, err
	}
	defer f.Close()
	return Read(f)
}

// write makes a file of the trace, of at most MaxSpans.
func (t Trace) write(path string) error {
	r, err := Create(path)
	if err != nil {
		return err
	}
	for _, worker := range slices.Sorted(maps.Keys(t.Names)) {
		r.Name(worker, t.Names[worker], t.Peers[worker])
	}
	for _, s := range t.Spans {
		r.put(s)
	}
	for _, c := range t.Copies {
		r.putCopy(c)
	}
	return r.Close()
}
