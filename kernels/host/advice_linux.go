package host

import "syscall"

const hugePageBytes = 2 << 20

// adviseHugePages asks for 2 MiB pages. A kernel without them says no, which is fine.
func adviseHugePages(mem []byte) {
	if len(mem) >= hugePageBytes {
		_ = syscall.Madvise(mem, syscall.MADV_HUGEPAGE)
	}
}
