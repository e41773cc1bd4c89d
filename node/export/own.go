package export

import (
	"encoding/json"
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

// ownIn reads what earlier starts noted in a run's folder.
func ownIn(dir string) *own {
	if dir == "" {
		return &own{}
	}
	o := &own{file: filepath.Join(dir, OwnFile)}
	var r record
	if st, err := os.Stat(o.file); err == nil && st.Size() <= maxOwnBytes {
		if text, err := os.ReadFile(o.file); err == nil && json.Unmarshal(text, &r) == nil {
			o.marks = r.Marks
		}
	}
	return o
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
