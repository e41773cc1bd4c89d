package journal

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"pnode/checkpoint/disk"
)

var (
	// ErrMissing: there is no journal in the folder.
	ErrMissing = errors.New("there is no journal")
	// ErrDamaged: neither file has a batch that one of them must have.
	ErrDamaged = errors.New("both files of the journal are damaged")
	// ErrVersion: a file is in a format that this program does not read.
	ErrVersion = errors.New("written in another format")
	// ErrGone: the files were removed or replaced while the journal was open.
	ErrGone = errors.New("its files were removed while they were in use")
	// ErrReadOnly: the journal was opened to read alone.
	ErrReadOnly = errors.New("opened to read alone")
	// ErrTooLarge: a batch is over its bound.
	ErrTooLarge = errors.New("batch too large")
)

// lost is the error for what neither file has.
func lost(causes ...error) error { return fmt.Errorf("%w: %w", ErrDamaged, errors.Join(causes...)) }

const (
	// slackBytes is how much longer than twice what counts a file may grow.
	slackBytes = 1 << 20
	// reserveBytes are taken ahead of the end of each file, for batches on a full disk; the last deleteBytes of them are for
	// batches that only delete, without which nobody could make room.
	reserveBytes = 4 << 20
	deleteBytes  = 1 << 20
	// partBytes is how much of the keys and values a rewriting puts into one record.
	partBytes = 1 << 20
)

// Options of a journal.
type Options struct {
	// Create begins an empty journal where there is none.
	Create bool
	// ReadOnly writes nothing: damage to one file is told and stays.
	ReadOnly bool
	// Disk changes the files.
	Disk disk.Disk
}

// place is where the value of a key is, in both files.
type place struct {
	key    string
	at     int64
	length int
	sum    uint32 // CRC-32C of the value
}

// Journal is a set of keys and values. Its methods may be called concurrently.
type Journal struct {
	dir      string
	disk     disk.Disk
	readOnly bool
	damage   error

	mu       sync.Mutex    // guards what follows
	places   []place       // by key
	live     int64         // bytes of keys and values
	files    [2]*disk.File // nil where there is none
	head     header
	next     uint64 // number of the next batch
	size     int64  // of each file
	most     int64  // size from which on the files are written anew
	reserved int64  // size up to which both files have room on the disk
	// stale: the files do not have what counts, and are written anew before anything is added.
	stale bool
	torn  bool // a file may hold part of a batch that failed
	gone  bool // the files were removed
}

// Open reads the journal in a folder and sets right what is damaged. The error wraps ErrMissing, ErrDamaged, ErrVersion or is
// the operating system's.
func Open(dir string, o Options) (*Journal, error) {
	j := &Journal{dir: dir, disk: o.Disk, readOnly: o.ReadOnly}
	first, second := readSource(dir, FirstFile), readSource(dir, SecondFile)
	for _, err := range []error{first.wrong, second.wrong} {
		if errors.Is(err, ErrVersion) {
			return nil, err
		}
	}
	if errors.Is(first.wrong, fs.ErrNotExist) && errors.Is(second.wrong, fs.ErrNotExist) {
		if !o.Create {
			return nil, fmt.Errorf("%w in %s", ErrMissing, dir)
		}
		return j, j.rewrite()
	}
	m, err := merge(first, second)
	if err != nil {
		return nil, err
	}
	if err := j.replay(m); err != nil {
		return nil, err
	}
	if err := j.open(); err != nil {
		return nil, err
	}
	if j.stale = m.differ; !j.stale || j.readOnly {
		return j, nil
	}
	if err := j.rewrite(); err != nil && !disk.NoSpace(err) { // then the next Write tries again
		return nil, errors.Join(err, j.closeFiles())
	}
	return j, nil
}

// replay takes in what the files hold.
func (j *Journal) replay(m merged) error {
	j.size = headerBytes
	for _, r := range m.records {
		ops, at, err := decodeBatch(r)
		if err != nil {
			return lost(err)
		}
		j.apply(j.size, ops, at)
		j.size += int64(len(r))
	}
	j.head, j.damage, j.most = m.head, m.damage, 2*j.live+slackBytes
	j.next = m.head.rewriting<<32 + uint64(len(m.records))
	return nil
}

// Damage returns what Open found damaged in one of the files and, unless it was to read alone, has set right; nil for nothing.
func (j *Journal) Damage() error { return j.damage }

// open opens the files that are there.
func (j *Journal) open() error {
	how := j.disk.Open
	if j.readOnly {
		how = j.disk.OpenToRead
	}
	for i, name := range []string{FirstFile, SecondFile} {
		f, err := how(filepath.Join(j.dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return errors.Join(err, j.closeFiles())
		}
		j.files[i] = f
	}
	j.reserved = 0
	return nil
}

func (j *Journal) closeFiles() (err error) {
	for i, f := range j.files {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
		j.files[i] = nil
	}
	return err
}

// Close closes the files.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.closeFiles()
}

// Get returns the value of key, and whether there is one. The error wraps ErrDamaged when neither file has it any more.
func (j *Journal) Get(key []byte) (value []byte, ok bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	i, ok := find(j.places, string(key))
	if !ok {
		return nil, false, nil
	}
	value, err = j.read(j.places[i])
	return value, err == nil, err
}

// read reads a value from the first file, or else from the second one.
func (j *Journal) read(p place) ([]byte, error) {
	value := make([]byte, p.length)
	var causes []error
	for _, f := range j.files {
		if f == nil {
			continue
		}
		err := f.ReadAt(value, p.at)
		if err == nil && crc32.Checksum(value, castagnoli) == p.sum {
			return value, nil
		}
		causes = append(causes, err)
	}
	return nil, lost(append(causes, fmt.Errorf("key %q", p.key))...)
}

func find(places []place, key string) (int, bool) {
	return slices.BinarySearchFunc(places, key, func(p place, key string) int { return strings.Compare(p.key, key) })
}

// Has reports whether there is a key.
func (j *Journal) Has(key []byte) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, ok := find(j.places, string(key))
	return ok
}

// Keys returns the keys that begin with prefix, in ascending order.
func (j *Journal) Keys(prefix string) (keys []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	i, _ := find(j.places, prefix)
	for ; i < len(j.places) && strings.HasPrefix(j.places[i].key, prefix); i++ {
		keys = append(keys, j.places[i].key)
	}
	return keys
}

// Bytes returns how many bytes all keys and values have.
func (j *Journal) Bytes() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.live
}

// Position returns a number that differs after every batch, and after each time that the files were written anew.
func (j *Journal) Position() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.next
}

// Write carries out a batch in order, all of it or nothing, and returns when it is durable in both files. After an error it may
// be there or not once the journal is opened again. The error wraps ErrReadOnly, ErrTooLarge, ErrGone or is the operating
// system's; the next Write may succeed.
func (j *Journal) Write(ops []Op) error {
	if j.readOnly {
		return ErrReadOnly
	}
	if len(ops) == 0 {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.gone = j.gone || !j.atPath(); j.gone {
		return fmt.Errorf("%w: %s", ErrGone, j.dir)
	}
	if j.stale {
		if err := j.rewrite(); err != nil {
			return err
		}
	}
	record, at := appendRecord(nil, j.next, ops)
	if len(record)-recordBytes > maxBatchBytes {
		return fmt.Errorf("%w: %d bytes, at most %d are accepted", ErrTooLarge, len(record)-recordBytes, maxBatchBytes)
	}
	room := !slices.ContainsFunc(ops, func(op Op) bool { return !op.Delete })
	before := j.size
	if err := j.add(record, room); err != nil {
		return err
	}
	if j.gone = !j.atPath(); j.gone {
		return fmt.Errorf("%w: %s", ErrGone, j.dir)
	}
	j.apply(before, ops, at)
	if j.size > j.most && j.rewrite() != nil { // the files grow on, or the next Write tries again
		j.most = j.size + slackBytes
	}
	return nil
}

// add writes a record to the end of both files, one after the other. makesRoom has it use what is kept for such batches.
func (j *Journal) add(record []byte, makesRoom bool) error {
	if j.torn { // the second file first, which never has what the first one lacks
		for _, f := range []*disk.File{j.files[1], j.files[0]} {
			if err := f.Cut(j.size); err != nil {
				return err
			}
		}
		j.torn, j.reserved = false, 0
	}
	end := j.size + int64(len(record))
	if end+reserveBytes/2 > j.reserved {
		err := errors.Join(j.files[0].Reserve(j.size, end+reserveBytes-j.size), j.files[1].Reserve(j.size, end+reserveBytes-j.size))
		if err == nil {
			j.reserved = end + reserveBytes
		} else if end+deleteBytes > j.reserved && !makesRoom {
			return err
		}
	}
	j.torn = true
	for _, f := range j.files {
		if err := f.WriteAt(record, j.size); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
	}
	j.next, j.size, j.torn = j.next+1, end, false
	return nil
}

// atPath reports whether the files that are open still have their names.
func (j *Journal) atPath() bool {
	return !slices.ContainsFunc(j.files[:], func(f *disk.File) bool { return f != nil && !f.AtPath() })
}

// Gone reports whether the files are no longer where they were opened.
func (j *Journal) Gone() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.gone || !j.atPath()
}

// apply has the batch of a record count, which is at an offset of both files.
func (j *Journal) apply(record int64, ops []Op, at []int) {
	for n, op := range ops {
		i, found := find(j.places, string(op.Key))
		if found {
			j.live -= int64(len(op.Key) + j.places[i].length)
			j.places = slices.Delete(j.places, i, i+1)
		}
		if !op.Delete {
			j.places = slices.Insert(j.places, i, place{string(op.Key), record + int64(at[n]), len(op.Value), crc32.Checksum(op.Value, castagnoli)})
			j.live += int64(len(op.Key) + len(op.Value))
		}
	}
}

// rewrite writes what counts into new files, which take the place of the old ones. Where it fails before they do, nothing has
// changed.
func (j *Journal) rewrite() error {
	if j.files == [2]*disk.File{} { // the last rewriting could not open them
		if err := j.open(); err != nil {
			return err
		}
	}
	anew := &Journal{head: header{rewriting: j.head.rewriting + 1}, size: headerBytes}
	anew.next = anew.head.rewriting << 32
	data := make([]byte, headerBytes, headerBytes+j.live+j.live/8)
	for part := range j.parts() {
		ops, err := j.batch(part)
		if err != nil {
			return err
		}
		var at []int
		data, at = appendRecord(data, anew.next, ops)
		anew.apply(anew.size, ops, at)
		anew.next, anew.size = anew.next+1, int64(len(data))
	}
	anew.head.bytes = uint64(len(data) - headerBytes)
	copy(data, anew.head.encode())
	paths := []string{filepath.Join(j.dir, FirstFile), filepath.Join(j.dir, SecondFile)}
	for _, path := range paths {
		if err := j.disk.WriteNew(path+".new", data); err != nil {
			for _, path := range paths {
				_ = os.Remove(path + ".new") // the next rewriting empties what is left
			}
			return err
		}
	}
	j.stale = true
	if err := j.closeFiles(); err != nil {
		return err
	}
	err := j.disk.Replace(paths[0]+".new", paths[0])
	if err == nil {
		err = j.disk.Rename(paths[1]+".new", paths[1])
	}
	if err != nil { // one file, or both, are as they were
		return errors.Join(err, j.open())
	}
	j.head, j.next, j.size, j.places, j.live = anew.head, anew.next, anew.size, anew.places, anew.live
	if err := errors.Join(j.disk.SyncFolder(j.dir), j.open()); err != nil {
		return err
	}
	j.stale, j.torn, j.most = false, false, 2*j.live+slackBytes
	return nil
}

// parts cuts the keys into such groups as one record takes.
func (j *Journal) parts() iter.Seq[[]place] {
	return func(yield func([]place) bool) {
		for rest := j.places; len(rest) > 0; {
			n, bytes := 0, 0
			for n < len(rest) && bytes < partBytes {
				bytes += len(rest[n].key) + rest[n].length
				n++
			}
			if !yield(rest[:n]) {
				return
			}
			rest = rest[n:]
		}
	}
}

// batch reads keys with their values.
func (j *Journal) batch(places []place) ([]Op, error) {
	ops := make([]Op, len(places))
	for i, p := range places {
		value, err := j.read(p)
		if err != nil {
			return nil, err
		}
		ops[i] = Op{Key: []byte(p.key), Value: value}
	}
	return ops, nil
}

// All visits all keys and values in batches of about 1 MiB, until visit returns an error. Nothing may be written meanwhile.
func (j *Journal) All(visit func([]Op) error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for part := range j.parts() {
		ops, err := j.batch(part)
		if err == nil {
			err = visit(ops)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
