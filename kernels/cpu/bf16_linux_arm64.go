package cpu

import "golang.org/x/sys/unix"

// multipliesBF16 reports whether the processor has FEAT_BF16, as the kernel says in the auxiliary vector of a
// process (Linux, Documentation/arch/arm64/elf_hwcaps.rst). golang.org/x/sys/cpu does not read this bit.
func multipliesBF16() bool {
	const (
		hwcap2 = 26
		bf16   = 1 << 14
	)
	entries, err := unix.Auxv()
	if err != nil {
		return false
	}
	for _, entry := range entries {
		if entry[0] == hwcap2 {
			return entry[1]&bf16 != 0
		}
	}
	return false
}
