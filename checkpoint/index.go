package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"pnode/checkpoint/disk"
	"pnode/checkpoint/journal"
	"pnode/planner/plan"
)

const (
	// MaxKeyBytes and MaxValueBytes bound one entry of a bucket.
	MaxKeyBytes   = 1 << 10
	MaxValueBytes = 8 << 20
	// MaxBatchBytes and MaxBatchOps are a batch that always fits in one transaction.
	MaxBatchBytes = 1 << 20
	MaxBatchOps   = 4096
	// maxBucketName bounds what each key of a batch carries besides.
	maxBucketName = 16
)

// The first byte of an index key says what it is.
const (
	manifestKeys = 'M' // + step, big-endian; the value is empty: the manifest is a file
	pinKeys      = 'P' // + name
	bucketKeys   = 'B' // + name, 0, key
)

// Op is one entry of an atomic batch: Value is put under Key, or Key is deleted.
type Op = journal.Op

// treeFolder is Badger's folder within the index's.
const treeFolder = "badger"

// index holds pins, buckets, and which manifests must be there. The journal makes each batch durable; the tree answers.
// What the tree cannot do, because it is damaged or because the disk is too full for Badger, which maps its files into memory,
// the journal does more slowly, until the tree has been made again.
type index struct {
	folder  string
	disk    disk.Disk
	space   *space
	log     *slog.Logger
	journal *journal.Journal
	broken  error // why there is no journal, in a store that is open to read alone

	writes sync.Mutex // held while a batch goes to the journal and then to the tree
	mu     sync.Mutex // guards tree
	tree   *tree      // nil: there is none to ask
}

// ask returns the tree to ask.
func (x *index) ask() *tree {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.tree
}

// use has reads go to another tree. The one before is left to whoever still reads it, and to the end of the process: Badger's
// end would fault what they read, or write where there is no room.
func (x *index) use(t *tree) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tree = t
}

// open opens the journal, and the tree unless the index is open to read alone.
func (x *index) open(o journal.Options) (err error) {
	o.Disk = x.disk
	x.journal, err = journal.Open(x.folder, o)
	switch {
	case errors.Is(err, journal.ErrDamaged):
		err = fmt.Errorf("%w: index: %w; %s", ErrCorrupt, err, remedy+readable)
	case errors.Is(err, journal.ErrMissing):
		err = fmt.Errorf("%w: index/%s and index/%s are missing; %s", ErrNoStore, journal.FirstFile, journal.SecondFile, remedy+readable)
	case errors.Is(err, journal.ErrVersion):
		err = fmt.Errorf("%w: index: %w", ErrVersion, err)
	case err != nil:
		err = x.space.explain(fmt.Errorf("index: %w", err), 0)
	}
	if o.ReadOnly && (errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNoStore)) {
		x.broken, err = err, nil
	}
	if err != nil || o.ReadOnly {
		return err
	}
	if damage := x.journal.Damage(); damage != nil {
		x.log.Warn("the index was damaged and is whole again: one of its journal's two files was written anew from the other", "cause", damage)
	}
	x.openTree()
	return nil
}

// remedy ends the error of a store that has lost what it must not forget, the votes of its node among it.
const remedy = "restore the folder from a copy, or enter the run anew with `pnode join INVITE --dir OTHER-FOLDER`: " +
	"the others replace this node's vote by themselves, and an owner's node that runs makes the invite (`pnode invite`)"

// readable is true of what only the index lacks: manifests are kept beside the chunks, too.
const readable = ". The checkpoints in it can still be read with --dir"

// openTree opens the tree as it was closed, or makes it again.
func (x *index) openTree() {
	wrong := checkTreeSeal(x.folder, x.journal.Position())
	if disk.NoFiles(wrong) {
		x.log.Warn("the index works from its journal alone until it can be opened", "cause", wrong)
		return
	}
	if wrong != nil && !errors.Is(wrong, errUnsealed) {
		x.log.Warn("the index was damaged: it is made again from its journal", "cause", wrong)
	}
	if dir := filepath.Join(x.folder, treeFolder); wrong == nil && folderBytes(dir) < treeSlackBytes+2*x.journal.Bytes() {
		done, err := x.space.take(flushBytes, forTree)
		if err == nil {
			defer done()
			err = x.unseal()
		}
		var t *tree
		if err == nil {
			t, err = openTree(dir, x.log)
		}
		if wrong = err; err == nil {
			x.use(t)
			return
		}
	}
	x.makeTree(wrong)
}

// treeSlackBytes is how much longer than twice what counts Badger's files may be when it is opened. It is made again then: that is
// simpler than its own ways to give room back.
const treeSlackBytes = 16 << 20

// folderBytes returns how many bytes the files in a folder have.
func folderBytes(dir string) (sum int64) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			sum += info.Size()
		}
	}
	return sum
}

// unseal says that Badger's files may change from now on.
func (x *index) unseal() error {
	err := x.disk.Remove(filepath.Join(x.folder, sealFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = x.disk.SyncFolder(x.folder)
	}
	return err
}

// makeTree makes the tree again from the journal. Without room or rights for it the journal answers alone.
func (x *index) makeTree(cause error) {
	done, err := x.space.take(flushBytes, forTree)
	if err == nil {
		defer done()
		err = x.unseal()
	}
	dir := filepath.Join(x.folder, treeFolder)
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err == nil {
		err = x.disk.MakeFolder(dir)
	}
	var made *tree
	if err == nil {
		made, err = openTree(dir, x.log)
	}
	if err == nil {
		err = x.journal.All(made.fill)
		if err != nil {
			err = errors.Join(err, made.close())
		}
	}
	if err != nil && cause != nil {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	if err != nil {
		x.log.Warn("the index works from its journal alone until it can be made again", "cause", err)
		return
	}
	x.use(made)
}

// apply writes a batch, all of it or nothing, and returns when it is durable.
func (x *index) apply(ops []Op) error {
	if x.broken != nil {
		return ErrReadOnly
	}
	x.writes.Lock()
	defer x.writes.Unlock()
	err := x.journal.Write(ops)
	switch {
	case errors.Is(err, journal.ErrReadOnly):
		return ErrReadOnly
	case errors.Is(err, journal.ErrTooLarge):
		return fmt.Errorf("%w: %w; %d operations and %d bytes always fit", ErrTooLarge, err, MaxBatchOps, MaxBatchBytes)
	case errors.Is(err, journal.ErrGone):
		return fmt.Errorf("%w: %w", ErrGone, err)
	case err != nil:
		return x.space.explain(err, opBytes(ops))
	}
	t := x.ask()
	if t == nil {
		if done, err := x.space.take(flushBytes, forTree); err == nil { // there is room again
			done()
			x.makeTree(nil) // it has ops
		}
		return nil
	}
	done, err := x.space.takeBeside(t.bytes(), opBytes(ops), forTree) // and room for a compaction
	if err == nil {
		err = t.write(ops)
		done()
	}
	if err != nil {
		x.use(nil)
		x.log.Warn("the index works from its journal alone until it can be made again", "cause", err)
	}
	return nil
}

// repair makes the tree again unless it agrees with the journal about a key: while a batch is on its way it does not.
func (x *index) repair(key []byte) {
	x.writes.Lock()
	defer x.writes.Unlock()
	t := x.ask()
	if t == nil {
		return
	}
	_, err := t.get(key)
	if err == nil || errors.Is(err, ErrNotFound) && !x.journal.Has(key) {
		return
	}
	x.use(nil)
	x.log.Warn("the index was damaged: it is made again from its journal", "cause", err)
	x.makeTree(err)
}

// get returns a copy of the value, or ErrNotFound.
func (x *index) get(key []byte) ([]byte, error) {
	if x.broken != nil {
		return nil, x.broken
	}
	if t := x.ask(); t != nil {
		value, err := t.get(key)
		switch {
		case err == nil:
			return value, nil
		case errors.Is(err, ErrNotFound) && !x.journal.Has(key):
			return nil, ErrNotFound
		}
		x.repair(key)
	}
	value, there, err := x.journal.Get(key)
	if err != nil {
		return nil, fmt.Errorf("%w: index: %w; %s", ErrCorrupt, err, remedy+readable)
	}
	if !there {
		return nil, ErrNotFound
	}
	return value, nil
}

// walk visits the keys that begin with prefix in order, from the given key on (nil: all of them), until visit returns false.
// visit owns key and value, and may use the index.
func (x *index) walk(prefix, from []byte, reverse bool, visit func(key, value []byte) bool) error {
	if x.broken != nil {
		return x.broken
	}
	var last []byte // visited
	if t := x.ask(); t != nil {
		err := t.walk(prefix, from, reverse, func(key, value []byte) bool { last = key; return visit(slices.Clone(key), value) })
		if err == nil {
			return nil
		}
		x.use(nil) // the next write makes it again
		x.log.Warn("the index is damaged: it is made again from its journal", "cause", err)
	}
	return x.walkJournal(prefix, from, last, reverse, visit)
}

// walkJournal is walk over the journal, after a key that was visited.
func (x *index) walkJournal(prefix, from, last []byte, reverse bool, visit func(key, value []byte) bool) error {
	keys := x.journal.Keys(string(prefix))
	if reverse {
		slices.Reverse(keys)
	}
	before := func(key string, bound []byte) bool {
		return bound != nil && (!reverse && key < string(bound) || reverse && key > string(bound))
	}
	for _, key := range keys {
		if before(key, from) || before(key, last) || last != nil && key == string(last) {
			continue
		}
		value, there, err := x.journal.Get([]byte(key))
		if err != nil {
			return fmt.Errorf("%w: index: %w; %s", ErrCorrupt, err, remedy+readable)
		}
		if there && !visit([]byte(key), value) { // else it was deleted meanwhile
			break
		}
	}
	return nil
}

// close closes the tree and seals its files, unless it has to be made again at the next start: on a disk that is too full for
// its last tables, or when its folder is gone.
func (x *index) close() error {
	if x.journal == nil {
		return nil
	}
	if t := x.ask(); t != nil && !x.journal.Gone() {
		done, err := x.space.take(flushBytes+t.bytes(), forTree)
		if err == nil {
			err = t.close()
			done()
		}
		if err == nil {
			err = writeTreeSeal(x.folder, x.journal.Position(), x.disk)
		}
		if err != nil {
			x.log.Warn("the index is made again at the next start", "cause", err)
		}
	}
	x.use(nil)
	return x.journal.Close()
}

func opBytes(ops []Op) int64 {
	var n int64
	for _, op := range ops {
		n += int64(len(op.Key) + len(op.Value))
	}
	return n
}

// noted returns the steps whose manifests must be there, in ascending order.
func (x *index) noted() (steps []plan.Step, err error) {
	if x.broken != nil {
		return nil, nil
	}
	err = x.walk([]byte{manifestKeys}, nil, false, func(key, _ []byte) bool {
		if len(key) == manifestKeyBytes {
			steps = append(steps, plan.Step(binary.BigEndian.Uint64(key[1:])))
		}
		return true
	})
	return steps, err
}

const manifestKeyBytes = 9

func manifestKey(step plan.Step) []byte {
	return binary.BigEndian.AppendUint64([]byte{manifestKeys}, uint64(step))
}

// eachPin calls fn for the pins, sorted by name: named lists of chunks that stay.
func (x *index) eachPin(fn func(name string, hashes []plan.Hash)) error {
	var damaged error
	err := x.walk([]byte{pinKeys}, nil, false, func(key, value []byte) bool {
		name := string(key[1:])
		hashes, err := decodePin(value)
		if err != nil {
			damaged = fmt.Errorf("pin %s: %w", name, err)
			return false
		}
		fn(name, hashes)
		return true
	})
	return errors.Join(err, damaged)
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
