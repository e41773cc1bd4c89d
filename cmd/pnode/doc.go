// Command pnode starts, joins and watches training runs.
//
// One file holds one command: flags to settings, one call, print. Commands share environment.go
// (streams, output, folders), interrupt.go (signals) and exit.go (errors as text and as exit
// codes). Nothing is decided here. It is the only package that reads flags; nothing imports it.
package main
