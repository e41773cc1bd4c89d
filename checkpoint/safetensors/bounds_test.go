package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// prefixAlone is a file of which nothing but the header's length may be read.
type prefixAlone struct {
	t      *testing.T
	length uint64
}

func (p prefixAlone) ReadAt(b []byte, off int64) (int, error) {
	if off != 0 || len(b) > prefixBytes {
		p.t.Errorf("%d bytes at %d are read for a header of %d", len(b), off, p.length)
	}
	return copy(b, binary.LittleEndian.AppendUint64(nil, p.length)), nil
}

func TestLongHeaderIsNotRead(t *testing.T) {
	for _, length := range []uint64{MaxHeaderBytes + 1, 100_000_000, 1 << 40, 1<<64 - 1} {
		if _, err := Read(prefixAlone{t, length}, 1<<50); !errors.Is(err, ErrFormat) {
			t.Errorf("a header of %d bytes: %v", length, err)
		}
	}
}

// many is a header of n tensors without elements.
func many(n int) string {
	var b strings.Builder
	b.WriteString("{")
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}`, i)
	}
	return b.String() + "}"
}

// hostile are headers made to cost time or memory, and what the error must name.
func hostile() map[string]struct{ header, names string } {
	metadata := strings.Repeat(`"k":"",`, 2) + `"z":""`
	var entries strings.Builder
	for i := range MaxTensors + 1 {
		fmt.Fprintf(&entries, `"%d":"",`, i)
	}
	long := strings.Repeat("n", 1<<20)
	return map[string]struct{ header, names string }{
		"a tensor too many":         {many(MaxTensors + 1), "131072 tensors"},
		"an entry too many":         {`{"__metadata__":{` + entries.String() + `"z":""}}`, "131072 entries"},
		"metadata twice":            {`{"__metadata__":{` + metadata + `}}`, "twice"},
		"a shape of a million":      {`{"a":{"dtype":"F32","shape":[` + strings.Repeat("1,", 1<<20) + `1],"data_offsets":[0,4]}}`, "64 numbers"},
		"offsets by the million":    {`{"a":{"dtype":"F32","shape":[1],"data_offsets":[` + strings.Repeat("1,", 1<<20) + `1]}}`, "64 numbers"},
		"a name of a mebibyte":      {`{"` + long + `":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, "1048576 bytes"},
		"a type of a mebibyte":      {`{"a":{"dtype":"` + long + `","shape":[0],"data_offsets":[0,0]}}`, "element type"},
		"a key of a mebibyte":       {`{"a":{"` + long + `":1}}`, "unknown"},
		"a number of a mebibyte":    {`{"a":{"dtype":"F32","shape":[` + strings.Repeat("9", 1<<20) + `],"data_offsets":[0,4]}}`, "unsigned"},
		"text of a mebibyte":        {`{"a":{"dtype":"F32","shape":["` + long + `"],"data_offsets":[0,4]}}`, "unsigned"},
		"a million arrays, nested":  {`{"a":{"dtype":"F32","shape":` + strings.Repeat("[", 1<<20), "unsigned"},
		"a million objects, nested": {strings.Repeat(`{"a":`, 1<<20), "unknown"},
	}
}

// TestHostileHeaders: each is refused with an error that is short, whatever it quotes.
func TestHostileHeaders(t *testing.T) {
	for name, c := range hostile() {
		b := file(c.header, 0)
		_, err := Read(bytes.NewReader(b), int64(len(b)))
		if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), c.names) || len(err.Error()) > 300 {
			t.Errorf("%s: want a short error that names %q: %.400v", name, c.names, err)
		}
	}
	most := file(many(MaxTensors), 0)
	if f, err := Read(bytes.NewReader(most), int64(len(most))); err != nil || len(f.byName) != MaxTensors {
		t.Errorf("as many tensors as are accepted: %v", err)
	}
}

// TestHostileSets: many files may not make up for what one may not do.
func TestHostileSets(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var index strings.Builder
	index.WriteString(`{"weight_map":{`)
	for i := range 3 { // sound files, whose headers are mostly blanks
		header := fmt.Sprintf(`{"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}`, i)
		header += strings.Repeat(" ", MaxHeaderBytes*3/4-len(header))
		write(fmt.Sprintf("%d.safetensors", i), file(header, 0))
		fmt.Fprintf(&index, `"%d":"%d.safetensors",`, i, i)
	}
	write("model.safetensors.index.json", []byte(strings.TrimSuffix(index.String(), ",")+"}}"))
	if _, err := OpenSet(dir, "model"); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "headers up to that of 2.safetensors") {
		t.Errorf("three headers that are too long together: %v", err)
	}
	index.Reset()
	index.WriteString(`{"weight_map":{`)
	for i := range maxSetTensors + 1 {
		fmt.Fprintf(&index, `"%d":"0.safetensors",`, i)
	}
	write("model.safetensors.index.json", []byte(strings.TrimSuffix(index.String(), ",")+"}}"))
	if _, err := OpenSet(dir, "model"); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "entries") {
		t.Errorf("an index of too many tensors: %v", err)
	}
}

// BenchmarkWorstHeader reads headers at the bounds: each takes well under a second.
func BenchmarkWorstHeader(b *testing.B) {
	metadata := strings.TrimSuffix(strings.Repeat(`x`, MaxHeaderBytes-30), ",")
	for name, header := range map[string]string{
		"tensors":  many(MaxTensors),
		"blanks":   "{" + strings.Repeat(" ", MaxHeaderBytes-2) + "}",
		"metadata": `{"__metadata__":{"a":"` + metadata + `"}}`,
		"escapes":  `{"__metadata__":{"a":"` + strings.Repeat(`\u0041`, MaxHeaderBytes/6-10) + `"}}`,
	} {
		text := file(header, 0)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if _, err := Read(bytes.NewReader(text), int64(len(text))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
