package devices

// driversPart of a card's memory is left to its driver: a 16th.
const driversPart = 16

// MemoryFor returns how much a program may take of a device's memory: of a card's own all that others leave
// but a part that its driver needs, of the host's so many bytes.
func (f Finding) MemoryFor(hostBytes int64) int64 {
	free := hostBytes
	if !f.Shared {
		free = f.MemoryBytes
		if f.FreeBytes > 0 {
			free = min(free, f.FreeBytes)
		}
		free -= f.MemoryBytes / driversPart
	}
	return max(free, 0)
}
