package main

import "fmt"

// leastFiles is how many files a node should be able to open: 25 of its own, a connection to each other member by which it
// notices that the member ends, and 16 to send and 16 to receive data with each neighbour that it reaches over TCP.
const leastFiles = 256

// fewestFiles is below how many a node does not start: with fewer it loses connections and cannot read its own files.
const fewestFiles = 64

// fewFiles returns what to tell whoever starts a node that may open so few files, empty where there are enough, and an error
// where the node would not get far.
func fewFiles(limit uint64) (warning string, err error) {
	const others = "LimitNOFILE= of systemd or --ulimit nofile= of a container"
	switch {
	case limit < fewestFiles:
		return "", fmt.Errorf("this process may open %d files at once, and a node needs %d at least: raise the limit with `ulimit -n 1024`, %s, and start it again", limit, fewestFiles, others)
	case limit < leastFiles:
		return fmt.Sprintf("this process may open %d files at once, and a node should be able to open %d: connections may fail. "+
			"Raise the hard limit: `ulimit -Hn`, %s", limit, leastFiles, others), nil
	}
	return "", nil
}

// checkFiles warns who starts a node that may open few files, and returns an error where they are too few.
func (e environment) checkFiles() error {
	limit, ok := openFiles()
	if !ok {
		return nil
	}
	text, err := fewFiles(limit)
	if text != "" {
		fmt.Fprintf(e.stderr, "pnode: %s\n", text)
	}
	return err
}
