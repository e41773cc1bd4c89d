package local

import "syscall"

// ownGroup keeps a console's Ctrl-C from reaching the child.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
