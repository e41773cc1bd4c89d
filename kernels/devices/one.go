package devices

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// OpenOne opens the one device for work that is not spread: the fastest of those that Open would
// take and that works, so the processor where there is no GPU. The errors are those of Open.
func OpenOne(ctx context.Context, o Options) (_ *Set, err error) {
	o, s := o.resolve(), &Set{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	report, err := o.probed(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(report.Devices, func(a, b Finding) int { return cmp.Compare(b.Rates.MatMulFLOPS, a.Rates.MatMulFLOPS) })
	for i := 0; i < len(report.Devices) && len(s.Devices) == 0; i++ { // until one works
		s.openFound(Report{Devices: report.Devices[i : i+1]}, o)
	}
	if len(s.Devices) == 0 && (len(o.Names) == 0 || slices.Contains(o.Names, CPU)) {
		return s, s.openCPU(o)
	}
	if len(s.Devices) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNone, strings.Join(s.Dropped, "; "))
	}
	return s, nil
}
