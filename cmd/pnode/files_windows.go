package main

// openFiles returns how many files this process may open at once; Windows has no such limit.
func openFiles() (limit uint64, ok bool) { return 0, false }

// ignoreBackgroundReads does nothing: Windows stops nobody who reads a terminal.
func ignoreBackgroundReads() {}
