package main

import (
	"fmt"
	"io"
	"os"

	"pnode/node/dataset"
	"pnode/node/dataset/files"
)

// maxScoredBytes bounds a file, whose tokens are held in memory.
const maxScoredBytes = 1 << 30

// checkText refuses what cannot be text; a pipe can.
func checkText(path string) error {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return files.Explain(err)
	case st.IsDir():
		return fmt.Errorf("%w: %s is a folder; name the files in it", files.ErrNotRegular, path)
	case st.Mode().IsRegular() && st.Size() == 0:
		return fmt.Errorf("%w: %s is empty; leave it out", dataset.ErrNoText, path)
	case !st.Mode().IsRegular():
		return nil // what a pipe holds can be read once
	}
	f, err := os.Open(path)
	if err != nil {
		return files.Explain(err)
	}
	return f.Close()
}

func readText(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	text, err := io.ReadAll(io.LimitReader(f, maxScoredBytes+1))
	if len(text) > maxScoredBytes {
		return nil, fmt.Errorf("%s is over %d bytes: cut it into files", path, maxScoredBytes)
	}
	return text, err
}
