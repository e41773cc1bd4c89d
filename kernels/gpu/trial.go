package gpu

import (
	"errors"
	"fmt"

	"pnode/kernels"
	"pnode/kernels/conform"
)

// Lacks names what a device does without because it was wrong there, with what was wrong. The zero value
// lacks nothing.
type Lacks struct {
	// FastBF16 and FastF16 are of the fast way that products of a half are made where there is one: by
	// a library, or by matrix units. The device's other kernels are used for that half.
	FastBF16, FastF16 error
	// F16 is of all that reads or writes F16.
	F16 error
}

// Fast says why products of a half are not made the fast way, nil where they may be.
func (l *Lacks) Fast(half kernels.DType) error {
	if half == kernels.F16 {
		return l.FastF16
	}
	return l.FastBF16
}

// Set says why, or nil.
func (l *Lacks) Set(half kernels.DType, why error) {
	if half == kernels.F16 {
		l.FastF16 = why
	} else {
		l.FastBF16 = why
	}
}

// add makes what was wrong in a half part of what is lacking, and reports whether the device may be of
// use without that.
func (l *Lacks) add(half kernels.DType, wrong error, fast bool) bool {
	switch {
	case fast && l.Fast(half) == nil:
		l.Set(half, wrong)
	case half == kernels.F16:
		l.F16 = wrong
	default:
		return false
	}
	return true
}

// Products says how products are made of the halves that there is a fast way for: that way, or the
// slow one, and why. It ends with what there is to say about F16.
func (l *Lacks) Products(fast, slow string, halves ...kernels.DType) string {
	text, lacking := fast, 0
	for _, half := range halves {
		if why := l.Fast(half); why != nil {
			lacking++
			if half != kernels.F16 || l.F16 == nil {
				text += fmt.Sprintf("; %s in %v (%v)", slow, half, why)
			}
		}
	}
	if len(halves) > 0 && lacking == len(halves) {
		text = fmt.Sprintf("%s (%s: %v)", slow, fast, l.Fast(halves[0]))
	}
	if l.F16 == nil {
		return text
	}
	if text != "" {
		text += "; "
	}
	return text + fmt.Sprintf("no f16 (%v)", l.F16)
}

// Candidate is a device at its trial.
type Candidate interface {
	kernels.Device
	// Fast reports whether the device makes products of a half a way that it could do without.
	Fast(half kernels.DType) bool
	// WithoutF16 has it refuse F16.
	WithoutF16()
}

// Try opens a device that lacks something or nothing, and runs it against the reference: all but F16
// first, then F16. What is wrong where products are made the fast way costs that way, for one half
// alone; what is wrong in F16 all the same costs F16; the rest costs the device. After each failure it
// is opened anew, as a kernel that fails may take all that the driver holds with it; one that cannot
// be closed any more is given up.
func Try[D Candidate](lacks Lacks, open func(Lacks) (D, error)) (D, Lacks, error) {
	var none D
	for {
		dev, err := open(lacks)
		if err != nil {
			return none, lacks, errors.Join(err, lacks.FastBF16, lacks.FastF16, lacks.F16)
		}
		half, wrong := kernels.BF16, conform.SelfTest(dev)
		if wrong == nil && lacks.F16 == nil {
			half, wrong = kernels.F16, conform.SelfTestF16(dev)
		}
		if wrong == nil {
			if lacks.F16 != nil {
				dev.WithoutF16()
			}
			return dev, lacks, nil
		}
		of := lacks.add(half, wrong, dev.Fast(half))
		if err := dev.Close(); err != nil || !of {
			return none, lacks, errors.Join(wrong, err)
		}
	}
}
