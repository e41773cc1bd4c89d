package source

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"pnode/node/dataset/files"
)

// ErrEmpty: there is no file with anything in it.
var ErrEmpty = errors.New("nothing but empty files")

// File is one file of the input.
type File struct {
	Path      string
	SizeBytes int64
	// Modified is the time of its last change in nanoseconds: to see that it is the same.
	Modified int64
	// Named reports that the user gave this path, not one that leads to it.
	Named bool
}

// Find lists the files under paths, in the order of files.Find, and counts what is not regular below folders. The error names the path.
func Find(paths []string) (found []File, irregular int, err error) {
	irregular, err = files.Find(paths, func(f files.Found) error {
		st, err := os.Stat(f.Path)
		if err != nil {
			return files.Explain(err)
		}
		if st.Size() > 0 {
			found = append(found, File{Path: f.Path, SizeBytes: st.Size(), Modified: st.ModTime().UnixNano(), Named: f.Named})
		}
		return nil
	})
	if err != nil {
		return nil, irregular, fmt.Errorf("source: %w", err)
	}
	if len(found) == 0 && irregular > 0 { // the caches of downloads are made of links
		return nil, irregular, fmt.Errorf("source: %w under %q but %d links and the like, which are not followed below folders; name them by a pattern such as %s/*",
			files.ErrNone, strings.Join(paths, " "), irregular, strings.TrimSuffix(paths[0], "/"))
	}
	if len(found) == 0 {
		return nil, irregular, fmt.Errorf("source: %w: %w under %q; name files with text, or folders", files.ErrNone, ErrEmpty, strings.Join(paths, " "))
	}
	return found, irregular, nil
}

// LacksColumn reports that all files under the paths can be read and none has the column: no more than text is in them.
func LacksColumn(paths []string, o Options) bool {
	found, _, err := Find(paths)
	if err != nil {
		return false // it comes again where they are read
	}
	for _, f := range found {
		r, err := Open(f, o)
		if err != nil {
			return false
		}
		format := r.Format()
		r.Close()
		if format != Text && format != Other {
			return false
		}
	}
	return true
}
