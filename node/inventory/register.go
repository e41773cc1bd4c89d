package inventory

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// MaxFolders bounds the folders that a register remembers.
	MaxFolders = 256
	// maxEntryBytes bounds what is read of one file.
	maxEntryBytes = 8 << 10
	suffix        = ".json"
)

// Register remembers folders of nodes in files below Dir.
type Register struct{ Dir string }

// Entry holds what a register knows of a folder.
type Entry struct {
	// Folder is an absolute path.
	Folder string `json:"folder"`
	// Started is when a node was last started there.
	Started time.Time `json:"started"`
}

// Note remembers that a node starts in a folder now, and forgets the oldest folders beyond MaxFolders and files that are none of a register.
func (r Register) Note(folder string, now time.Time) error {
	if !filepath.IsAbs(folder) {
		return fmt.Errorf("inventory: note %s: want an absolute path", folder)
	}
	b, err := json.Marshal(Entry{folder, now.UTC()})
	if err == nil {
		err = os.MkdirAll(r.Dir, 0o700)
	}
	if err == nil {
		err = r.put(nameOf(folder), append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("inventory: note %s: %w", folder, err)
	}
	return r.trim()
}

// put writes a file in one step.
func (r Register) put(name string, content []byte) error {
	f, err := os.CreateTemp(r.Dir, "*.tmp") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(r.Dir, name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// nameOf returns the name of a folder's file: of the same length whatever the folder is called.
func nameOf(folder string) string {
	sum := sha256.Sum256([]byte(folder))
	return hex.EncodeToString(sum[:16]) + suffix
}

// Entries returns what is remembered, the newest start first. Files that cannot be read are left out.
func (r Register) Entries() []Entry {
	files, _ := os.ReadDir(r.Dir) // none is there before the first start
	var all []Entry
	for _, f := range files {
		if e, ok := r.read(f.Name()); ok {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b Entry) int {
		if c := b.Started.Compare(a.Started); c != 0 {
			return c
		}
		return strings.Compare(a.Folder, b.Folder)
	})
	return all[:min(len(all), MaxFolders)]
}

// Damage returns why the register cannot be read, nil where it can or there is none yet. Then folders that only it knows are not found.
func (r Register) Damage() error {
	_, err := os.ReadDir(r.Dir)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("inventory: nodes in folders of their own are not listed: %w; make that folder readable, or move what is there away", err)
}

func (r Register) read(name string) (e Entry, ok bool) {
	if !strings.HasSuffix(name, suffix) {
		return e, false
	}
	f, err := os.Open(filepath.Join(r.Dir, name))
	if err != nil {
		return e, false
	}
	defer f.Close()
	err = json.NewDecoder(io.LimitReader(f, maxEntryBytes)).Decode(&e)
	return e, err == nil && filepath.IsAbs(e.Folder) && nameOf(e.Folder) == name
}

// tmpAge is how old a file of an interrupted start is at least.
const tmpAge = time.Hour

// trim removes files of no entry, and those of the oldest entries that are too many.
func (r Register) trim() error {
	kept := map[string]bool{}
	for _, e := range r.Entries() {
		kept[nameOf(e.Folder)] = true
	}
	files, err := os.ReadDir(r.Dir)
	for _, f := range files {
		info, gone := f.Info()
		fresh := gone == nil && time.Since(info.ModTime()) < tmpAge
		if kept[f.Name()] || gone != nil || fresh && strings.HasSuffix(f.Name(), ".tmp") || f.IsDir() {
			continue
		}
		if e := os.Remove(filepath.Join(r.Dir, f.Name())); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}
