package main

import "fmt"

// leastFiles is how many files a node should be able to open: 25 of its own, a connection to each other member by which it
// notices that the member ends, and 16 to send and 16 to receive data with each neighbour that it reaches over TCP.
const leastFiles = 256

// fewFiles says what a node cannot do that may open so few files, and what helps; empty where there are enough.
func fewFiles(limit uint64) string {
	if limit >= leastFiles {
		return ""
	}
	return fmt.Sprintf("this process may open %d files at once, and a node should be able to open %d: connections may fail. "+
		"Raise the hard limit: `ulimit -Hn`, LimitNOFILE= of systemd, --ulimit nofile= of a container", limit, leastFiles)
}

// tellFiles warns who starts a node that may open few files.
func (e environment) tellFiles() {
	if limit, ok := openFiles(); ok {
		if text := fewFiles(limit); text != "" {
			fmt.Fprintf(e.stderr, "pnode: %s\n", text)
		}
	}
}
