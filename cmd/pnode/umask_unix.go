//go:build unix

package main

import "syscall"

// ownFiles has every file that this process makes be its user's alone, whatever the umask was: libraries make
// files as it says, and one that takes this user's rights away would keep a node from its own folder.
func ownFiles() (restore func()) {
	before := syscall.Umask(0o077)
	return func() { syscall.Umask(before) }
}
