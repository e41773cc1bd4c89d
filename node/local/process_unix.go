//go:build unix

package local

import "syscall"

// ownGroup keeps a terminal's Ctrl-C from reaching the child.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
