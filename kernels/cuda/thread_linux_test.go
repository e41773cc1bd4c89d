package cuda

import "syscall"

// threadID is the system's number of the calling thread.
func threadID() int { return syscall.Gettid() }
