// Command pnode starts, joins and watches training runs.
//
// One file holds one command: flags to a configuration, one call, print. What is common to
// them is in environment.go (streams, output, folders), interrupt.go (signals) and exit.go
// (errors to exit codes). Nothing is decided here.
package main
