// Package plain makes errors readable for people: the log has each package's name in front of what it says, a terminal, a page and another
// node's status have not.
//
// One noun: Text, an error's text without these names. Package node/monitor and cmd/pnode show it, node/checkpointer gossips it. The
// package imports nothing of the project.
package plain
