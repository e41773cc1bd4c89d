//go:build unix

package chaos

import "syscall"

// pauses says that processes can be stopped for a while.
const pauses = true

// ownGroup keeps a terminal's Ctrl-C from reaching the process.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func (p *process) pause() error  { return p.cmd.Process.Signal(syscall.SIGSTOP) }
func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
func (p *process) leave() error  { return p.cmd.Process.Signal(syscall.SIGTERM) }
