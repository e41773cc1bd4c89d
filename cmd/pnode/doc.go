// Command pnode starts, joins and watches training runs.
//
// One file holds one command: flags to settings, one call, print. Commands share environment.go
// (streams, output, folders), interrupt.go (signals), sentence.go (errors as text) and exit.go (errors
// to exit codes). Nothing is decided here. It is the only package that reads flags; nothing imports it.
package main
