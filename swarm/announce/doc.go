// Package announce reads the addresses that a node tells others: those that its user gave (--announce), and those that
// providers of rented containers put into the environment.
//
// It opens no connection, knows nothing of libp2p and imports nothing of the project. It is called by swarm, node and
// node/config.
package announce
