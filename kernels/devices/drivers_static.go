//go:build static

package devices

// drivers: opening one takes the loader of the system's C library, which a static program does
// without.
func drivers() []backend { return nil }

// Cards returns no cards, for the same reason.
func Cards() []Card { return nil }
