package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
)

// Formats that this program reads and writes. A number grows with every change that an older program
// would misread; the doc of the package has the policy.
const (
	storeFormat    = 1 // of the directory: index keys, chunk names, records
	manifestFormat = 1 // of a manifest's bytes, and of the layers' state that it names
)

// formatFile is the file of a store that says its format; a store without it has format 1.
const formatFile = "format"

// format is the content of formatFile.
type format struct {
	Format int    `json:"format"`
	Pnode  string `json:"pnode"` // the version of the program that wrote it
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

// checkFormat refuses a store in a newer format; missing reports whether the store says none.
func checkFormat(dir string) (missing bool, err error) {
	text, err := os.ReadFile(filepath.Join(dir, formatFile))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	var f format
	if err := json.Unmarshal(text, &f); err != nil || f.Format < 1 {
		return false, fmt.Errorf("%w: the file %s holds %q; remove it if the store is of this pnode", ErrCorrupt, formatFile, text)
	}
	if f.Format > storeFormat {
		return false, newer("the store", f.Format, storeFormat, f.Pnode)
	}
	return false, nil
}

// writeFormat notes the format of a store, durably; the store's tmp folder is there.
func writeFormat(dir string) error {
	f := format{Format: storeFormat}
	if info, ok := debug.ReadBuildInfo(); ok {
		f.Pnode = info.Main.Version
	}
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	tmp, err := writeTemporary(filepath.Join(dir, "tmp"), append(text, '\n'))
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(dir, formatFile)); err != nil {
		return err
	}
	return syncDir(dir)
}
