// Package plain makes errors readable for people: the log has each package's name in front of what it says, a terminal, a page and another
// node's status have not.
//
// Two nouns: Text, an error's text without these names, which node/monitor and cmd/pnode show and node/checkpointer gossips; and Moment, a
// time of day with its date where that is another day. The package imports nothing of the project.
package plain
