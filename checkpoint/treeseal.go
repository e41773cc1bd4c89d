package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"lukechampine.com/blake3"

	"pnode/checkpoint/disk"
	"pnode/planner/plan"
)

// treeSeal says what Badger's files were when it was closed in order. Files that differ are never given to Badger, which reads
// them in goroutines of its own: a panic there ends the process.
type treeSeal struct {
	// Journal is the position of the journal that the files hold.
	Journal uint64               `json:"journal"`
	Files   map[string]plan.Hash `json:"files"`
}

const (
	sealFile     = "badger.seal"
	sealKind     = "index"
	maxSealBytes = 1 << 20
)

// errUnsealed: Badger was not closed in order, or there is none.
var errUnsealed = errors.New("the index was not closed in order")

// look hashes the files in Badger's folder.
func look(dir string) (map[string]plan.Hash, error) {
	files := map[string]plan.Hash{}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if err != nil {
			break
		}
		var f *os.File
		if f, err = os.Open(filepath.Join(dir, e.Name())); err != nil {
			break
		}
		sum := blake3.New(len(plan.Hash{}), nil)
		_, err = f.WriteTo(sum)
		_ = f.Close() // only read
		files[e.Name()] = plan.Hash(sum.Sum(nil))
	}
	return files, err
}

// writeTreeSeal seals Badger's files, which are closed.
func writeTreeSeal(index string, journal uint64, d disk.Disk) error {
	files, err := look(filepath.Join(index, treeFolder))
	if err != nil {
		return err
	}
	text, err := json.Marshal(treeSeal{Journal: journal, Files: files})
	if err != nil {
		return err
	}
	path := filepath.Join(index, sealFile)
	if err := d.WriteNew(path+".new", sealed(sealKind, text)); err != nil {
		return err
	}
	return d.Replace(path+".new", path)
}

// checkTreeSeal returns errUnsealed, or what differs from the seal.
func checkTreeSeal(index string, journal uint64) error {
	content, err := readAtMost(filepath.Join(index, sealFile), maxSealBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return errUnsealed
	}
	var s treeSeal
	if err == nil {
		var text []byte
		if text, err = unsealed(sealKind, content); err == nil {
			err = json.Unmarshal(text, &s)
		}
	}
	if err != nil {
		return fmt.Errorf("index/%s: %w", sealFile, err)
	}
	files, err := look(filepath.Join(index, treeFolder))
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(s.Files)) {
		if got, there := files[name]; !there {
			return fmt.Errorf("index/%s/%s is missing", treeFolder, name)
		} else if got != s.Files[name] {
			return fmt.Errorf("index/%s/%s is not as it was written", treeFolder, name)
		}
		delete(files, name)
	}
	for name := range files {
		return fmt.Errorf("index/%s/%s was not there when the index was closed", treeFolder, name)
	}
	if s.Journal != journal {
		return fmt.Errorf("index/%s is of another time than the journal", treeFolder)
	}
	return nil
}
