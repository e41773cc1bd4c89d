package bench

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

//go:embed openblas.py
var openblasScript string

// openblasTask is the argument of openblas.py: it lists the libraries that there are, or uses one.
type openblasTask struct {
	List    bool   `json:"list,omitempty"`
	Library string `json:"library,omitempty"`
}

// library is an OpenBLAS that a Python can load, or that it cannot for the reason in Error.
type library struct {
	Path   string `json:"path"`
	Name   string `json:"name,omitempty"` // OpenBLAS and its version
	Kernel string `json:"kernel,omitempty"`
	Error  string `json:"error,omitempty"`
}

// startOpenBLAS starts the library at a path, by default the newest one that the Python knows of: the
// system's, or one that came with numpy or scipy. It returns its path, and says which others there are.
func startOpenBLAS(ctx context.Context, python, path string) (blas *peer, from string, others []string, err error) {
	if path == "" {
		var found []library
		if found, err = listOpenBLAS(ctx, python); err != nil {
			return nil, "", nil, err
		}
		at := newest(found)
		if at < 0 {
			return nil, "", notTaken(found, at), errors.New("the loader and the Python's packages have no OpenBLAS")
		}
		path, others = found[at].Path, notTaken(found, at)
	}
	blas, err = startPeer(ctx, nil, openblasTask{Library: path}, python, "-c", openblasScript)
	return blas, path, others, err
}

func listOpenBLAS(ctx context.Context, python string) ([]library, error) {
	p, err := startPeer(ctx, nil, openblasTask{List: true}, python, "-c", openblasScript)
	if err != nil {
		return nil, err
	}
	return p.hello.Found, p.close()
}

// newest returns the index of the first library of the highest version, -1 where none can be used.
func newest(found []library) int {
	at := -1
	for i, l := range found {
		if l.Error == "" && (at < 0 || slices.Compare(version(l.Name), version(found[at].Name)) > 0) {
			at = i
		}
	}
	return at
}

// version returns the numbers of a name such as "OpenBLAS 0.3.21.dev"; the last one puts what comes
// before a release below it.
func version(name string) (numbers []int) {
	_, text, _ := strings.Cut(name, " ")
	for part := range strings.SplitSeq(text, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			const before = -1
			return append(numbers, before)
		}
		numbers = append(numbers, n)
	}
	return append(numbers, 0)
}

// notTaken says why the libraries but the one at an index are not measured.
func notTaken(found []library, at int) (texts []string) {
	for i, l := range found {
		if i != at {
			texts = append(texts, fmt.Sprintf("%s: %s", l.Path, cmp.Or(l.Error, l.Name)))
		}
	}
	return texts
}
