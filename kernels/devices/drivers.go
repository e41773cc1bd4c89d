//go:build !static

package devices

// drivers are the backends in the order in which their devices are preferred.
func drivers() []backend { return []backend{nvidia, openCL} }
