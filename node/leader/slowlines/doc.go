// Package slowlines knows which lines between members are slower than their profiles say, by what this node heard of steps itself.
//
// Lines follows windows of steps. A File keeps what is known in the node's folder, so that a restart does not have plans go back to slow
// lines until three windows have shown them again. Nobody else is asked: who told others of slow lines could slander any.
//
// It starts no goroutine, reads no clock, and is called by node/leader alone, on one goroutine.
package slowlines
