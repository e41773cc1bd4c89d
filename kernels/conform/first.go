package conform

import (
	"errors"
	"testing"
)

// First is the first device of a driver, or skips the test on a machine without: list fails with
// missing, or is empty.
func First[D any](t testing.TB, list func() ([]D, error), missing error) D {
	t.Helper()
	devices, err := list()
	switch {
	case errors.Is(err, missing):
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	case len(devices) == 0:
		t.Skip("the driver has no devices here")
	}
	return devices[0]
}
