package export

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

const (
	// OwnFile keeps in a run's folder which files hold its numbers.
	OwnFile     = "exports.json"
	maxOwnBytes = 64 << 10
	// mostMarks bounds the files that are remembered, newest last.
	mostMarks = 64
)

// own knows which files hold numbers of this run, over all its starts. It goes by what is in them, not by where they are: a file may be moved, and
// another run's may then take its place.
type own struct {
	file  string // empty without a folder
	mu    sync.Mutex
	marks []string // guarded by mu
}

// record is the content of OwnFile.
type record struct {
	Marks []string `json:"marks"`
}

// ownIn reads what earlier starts noted in a run's folder. Where that cannot be read, no file is known to be the run's, and each would be refused: the
// error says so instead.
func ownIn(dir string) (*own, error) {
	if dir == "" {
		return &own{}, nil
	}
	o := &own{file: filepath.Join(dir, OwnFile)}
	text, err := readOwn(o.file)
	if errors.Is(err, fs.ErrNotExist) {
		return o, nil
	}
	var r record
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return nil, fmt.Errorf("%s does not say which files of --csv and --tensorboard are this run's: %w: let this user read it, or remove it and name other files", o.file, bare(err))
	}
	o.marks = r.Marks
	return o, nil
}

// readOwn reads at most maxOwnBytes of a file.
func readOwn(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxOwnBytes+1))
	if err == nil && len(text) > maxOwnBytes {
		err = fmt.Errorf("it is larger than %d bytes", maxOwnBytes)
	}
	return text, err
}

// has reports whether a file with this mark is the run's.
func (o *own) has(mark string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Contains(o.marks, mark)
}

// add notes a file by its mark, as the newest.
func (o *own) add(mark string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	marks := slices.DeleteFunc(slices.Clone(o.marks), func(m string) bool { return m == mark })
	marks = append(marks, mark)
	marks = marks[max(0, len(marks)-mostMarks):]
	if o.file != "" {
		text, err := json.Marshal(record{marks})
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.file+".tmp", append(text, '\n'), 0o600); err != nil {
			return err
		}
		if err := os.Rename(o.file+".tmp", o.file); err != nil {
			return err
		}
	}
	o.marks = marks
	return nil
}
