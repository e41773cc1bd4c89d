package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// errStrict says that a report has rows that Strict refuses.
var errStrict = errors.New("not as it has to be")

// lacking is why a figure is open on a machine that has no such thing, which is no fault of this
// program's: PyTorch, cuBLASLt, a clock of the device's.
type lacking struct{ error }

func (l lacking) Unwrap() error { return l.error }

// Strict is an error where this program's figure of a row is open, but for want of something that the
// machine lacks, or where losses are not what they have to be. How fast anything is does not matter.
func (r DeviceReport) Strict() error {
	var bad []string
	for _, d := range r.Devices {
		for _, row := range d.Rows {
			if why := row.bad(); why != "" {
				bad = append(bad, fmt.Sprintf("%s: %s: %s", d.Name, row.What, why))
			}
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return fmt.Errorf("bench devices: %w: %s", errStrict, strings.Join(bad, "; "))
}

// bad is why a row is refused, empty for none.
func (r DeviceRow) bad() string {
	switch {
	case !r.measured() && !r.Lacking:
		return "open: " + r.Open
	case slices.Contains([]string{rowRepeat, rowLosses}, r.Row) && r.Met != nil && !*r.Met:
		return fmt.Sprintf("%s %s, the target is %s", figure(r.Value), r.Unit, r.Target)
	}
	return ""
}
