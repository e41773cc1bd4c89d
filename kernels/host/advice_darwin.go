package host

// adviseHugePages does nothing: the system has no such advice.
func adviseHugePages([]byte) {}
