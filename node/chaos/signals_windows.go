package chaos

import (
	"fmt"
	"syscall"
)

// pauses says that processes cannot be stopped for a while.
const pauses = false

// ownGroup keeps a console's Ctrl-C from reaching the process.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

func (p *process) pause() error  { return fmt.Errorf("%w: Windows cannot pause a process", ErrOptions) }
func (p *process) resume() error { return nil }

// leave closes the standard input, at whose end a supervised node leaves.
func (p *process) leave() error { return p.stdin.Close() }
