package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"pnode/checkpoint/disk"
)

// The names of the two files in a journal's folder. The first is written first.
const (
	FirstFile  = "journal"
	SecondFile = "journal.copy"
)

// maxFileBytes bounds a file that is read.
const maxFileBytes = 1 << 30

// source is one of the two files, as it was read.
type source struct {
	name  string
	data  []byte // nil: no header to go by
	head  header
	wrong error // what is damaged; nil: nothing
}

func readSource(dir, name string) source {
	s := source{name: name}
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		s.wrong = err
		return s
	}
	defer func() { _ = f.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err == nil && len(data) > maxFileBytes {
		err = fmt.Errorf("it has more than %d bytes", maxFileBytes)
	}
	if err == nil {
		s.head, err = decodeHeader(data)
	}
	if err == nil {
		s.data = data
	}
	s.wrong = err
	return s
}

// blame notes the first thing that is wrong with a file.
func (s *source) blame(format string, args ...any) {
	if s.wrong == nil {
		s.wrong = fmt.Errorf(format, args...)
	}
}

// merged holds what two files have together.
type merged struct {
	records [][]byte
	size    int64 // of the header and the records
	head    header
	damage  error // names the file that has to be written anew; nil: none is damaged
	differ  bool  // the files have to be written anew: they are damaged or of different length
}

// merge takes each record from whichever file has it whole. The error wraps ErrDamaged where neither has. Where no more files can be
// opened it is the operating system's: nothing is known of the file.
func merge(first, second source) (m merged, err error) {
	a, b := &first, &second
	switch {
	case disk.NoFiles(a.wrong) || disk.NoFiles(b.wrong):
		return m, errors.Join(a.wrong, b.wrong)
	case a.data == nil && b.data == nil:
		return m, lost(a.describe(0), b.describe(0))
	case a.data != nil && b.data != nil && a.head != b.head:
		prefer(a, b)
		m.differ = true
	}
	m.head = a.head
	if a.data == nil {
		m.head = b.head
	}
	at := headerBytes
	for number := m.head.rewriting << 32; ; number++ {
		ra, rb := cutRecord(a.from(at), number), cutRecord(b.from(at), number)
		switch {
		case ra != nil && rb != nil && !bytes.Equal(ra, rb):
			return m, lost(fmt.Errorf("%s and %s differ at byte %d", a.name, b.name, at))
		case ra != nil && rb == nil && b.data != nil && at+len(ra) < max(len(a.data), len(b.data)+1):
			b.blame("it is damaged at byte %d", at) // but not by a crash after the last batch was in the first file
		case ra == nil && rb != nil && a.data != nil:
			a.blame("it is damaged at byte %d", at)
		case ra == nil && rb == nil:
			return m.finish(a, b, at)
		}
		if ra == nil {
			ra = rb
		}
		m.records = append(m.records, ra)
		at += len(ra)
	}
}

// from returns the bytes of a file from an offset on.
func (s *source) from(at int) []byte { return s.data[min(at, len(s.data)):] }

// prefer sets aside one of two files of different rewritings. After a crash while they took their names the first one is newer
// and nothing was added to it: then either has all, and the second one is no damage. Else the older one was put back from a copy.
func prefer(first, second *source) {
	older, newer := second, first
	if first.head.rewriting < second.head.rewriting {
		older, newer = first, second
	}
	crashed := newer == first && newer.head.rewriting == older.head.rewriting+1 && uint64(len(newer.data)) == headerBytes+newer.head.bytes
	switch {
	case !crashed:
		older.blame("it is older than %s", newer.name)
	case !newer.whole():
		newer.blame("it is damaged")
		older = newer
	}
	older.data = nil
}

// whole reports whether a file is nothing but records.
func (s *source) whole() bool {
	at := headerBytes
	for number := s.head.rewriting << 32; at < len(s.data); number++ {
		r := cutRecord(s.data[at:], number)
		if r == nil {
			return false
		}
		at += len(r)
	}
	return true
}

// finish decides whether the records end at an offset, or are damaged there in all files that are left.
func (m merged) finish(a, b *source, at int) (merged, error) {
	m.size = int64(at)
	restA, restB := len(a.from(at)), len(b.from(at))
	switch {
	case a.data == nil && restB > 0, b.data == nil && restA > 0:
		return m, lost(a.describe(at), b.describe(at))
	case restB > 0: // the second file is written after the first one is whole
		return m, lost(a.describe(at), b.describe(at))
	case uint64(at) < headerBytes+m.head.bytes:
		return m, lost(fmt.Errorf("they end at byte %d of %d", at, headerBytes+m.head.bytes))
	case restA > 0 && continues(a.from(at), m.head.rewriting<<32+uint64(len(m.records))):
		return m, lost(a.describe(at), b.describe(at))
	}
	for _, s := range []*source{a, b} {
		if s.wrong != nil {
			m.damage = errors.Join(m.damage, s.describe(at))
		}
	}
	m.differ = m.differ || m.damage != nil || len(a.data) != at || len(b.data) != at
	return m, nil
}

// describe says what is wrong with a file, of which the last whole record ends at an offset.
func (s *source) describe(at int) error {
	if s.wrong == nil && len(s.data) > at {
		s.blame("it is damaged at byte %d", at)
	}
	if s.wrong == nil {
		return fmt.Errorf("%s ends at byte %d", s.name, at)
	}
	if errors.Is(s.wrong, os.ErrNotExist) {
		return fmt.Errorf("%s is missing", s.name)
	}
	return fmt.Errorf("%s: %w", s.name, s.wrong)
}

// continues reports whether a record with a number after this one is somewhere in b: what precedes it is damage, and not the
// end that a crash left.
func continues(b []byte, number uint64) bool {
	for i := range b {
		if len(b)-i < recordBytes {
			break
		}
		if n := le.Uint64(b[i+4:]); n > number && n-number <= uint64(len(b)) && cutRecord(b[i:], n) != nil {
			return true
		}
	}
	return false
}
