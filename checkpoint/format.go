package checkpoint

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"

	"lukechampine.com/blake3"

	"pnode/checkpoint/disk"
)

// Formats that this program reads and writes. A number grows with every change that an older program
// would misread; the doc of the package has the policy.
const (
	storeFormat    = 2 // of the directory: index keys, chunk names, manifests' files; 1 kept its index in Badger
	manifestFormat = 2 // of a manifest's bytes, and of the layers' state that it names; 1 has no states of replicas and no stream
	localFormat    = 2 // of a manifest with such; others stay in format 1
)

// formatFile is the file of a store that says its format.
const formatFile = "format"

// format is the content of formatFile.
type format struct {
	Format int    `json:"format"`
	Pnode  string `json:"pnode"` // the version of the program that wrote it
	// Check is the beginning of the BLAKE3 of both; a store of format 1 has none.
	Check string `json:"check,omitempty"`
}

func (f format) check() string {
	sum := blake3.Sum256(fmt.Appendf(nil, "%d %s", f.Format, f.Pnode))
	return hex.EncodeToString(sum[:8])
}

// newer is the error for something in a format above the one that this program reads. by is the version
// of pnode that wrote it; empty: unknown.
func newer(what string, got, reads int, by string) error {
	fetch := "fetch the version of pnode that wrote it"
	if by != "" && by != "(devel)" { // a build without a version
		fetch = fmt.Sprintf("fetch pnode %s, which wrote it, or a later one", by)
	}
	return fmt.Errorf("%w: %s has format %d, this pnode reads up to %d; %s", ErrVersion, what, got, reads, fetch)
}

// checkFormat refuses a store in another format. missing reports that no file says the format, or that it is damaged: the
// index has a format of its own.
func checkFormat(dir string) (missing bool, err error) {
	if _, err := os.Stat(filepath.Join(dir, "index", "MANIFEST")); err == nil {
		return false, fmt.Errorf("%w: the store has format 1, this pnode reads %d; go on with the pnode that wrote it", ErrVersion, storeFormat)
	}
	text, err := readAtMost(filepath.Join(dir, formatFile), maxFormatBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	var f format
	if err := json.Unmarshal(text, &f); err != nil || f.Check != f.check() {
		return true, nil
	}
	if f.Format > storeFormat {
		return false, newer("the store", f.Format, storeFormat, f.Pnode)
	}
	return !bytes.Equal(text, f.encode()), nil // names of fields in other letters are read too
}

// encode returns the content of formatFile.
func (f format) encode() []byte {
	text, err := json.Marshal(f)
	if err != nil {
		panic("checkpoint: a store's format does not marshal: " + err.Error())
	}
	return append(text, '\n')
}

const maxFormatBytes = 1 << 10

// writeFormat notes the format of a store, durably; the store's tmp folder is there.
func writeFormat(dir string, d disk.Disk) error {
	f := format{Format: storeFormat}
	if info, ok := debug.ReadBuildInfo(); ok {
		f.Pnode = info.Main.Version
	}
	f.Check = f.check()
	tmp := filepath.Join(dir, "tmp", formatFile)
	if err := d.WriteNew(tmp, f.encode()); err != nil {
		return err
	}
	return d.Replace(tmp, filepath.Join(dir, formatFile))
}
