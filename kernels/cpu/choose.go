package cpu

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"pnode/kernels/conform"
)

// candidate is a variant that this processor can run; check says once whether it computes
// right.
type candidate struct {
	*variant
	check func() error
}

// candidates are the variants that this processor can run, the best one first.
var candidates = sync.OnceValue(func() (list []candidate) {
	for _, v := range append(processorVariants(), generic()) {
		list = append(list, newCandidate(v))
	}
	return list
})

func newCandidate(v *variant) candidate {
	return candidate{variant: v, check: sync.OnceValue(v.selfTest)}
}

// selfTest runs everything that a variant has, then operations as a whole against the
// reference. It takes about a tenth of a second.
func (v *variant) selfTest() (err error) {
	if err := v.verify(); err != nil {
		return err
	}
	dev := startDevice(v, 1)
	defer func() { err = errors.Join(err, dev.Close()) }()
	return conform.SelfTest(dev)
}

func (v *variant) kind() string { return runtime.GOARCH + "/" + v.name }

// ofKind gives the candidate of a kind. The error wraps ErrKind.
func ofKind(list []candidate, kind string) (*variant, error) {
	var kinds []string
	for _, c := range list {
		if c.kind() == kind {
			if wrong := c.check(); wrong != nil {
				return nil, fmt.Errorf("%w %q does, which fails its self-test: %w", ErrKind, kind, wrong)
			}
			return c.variant, nil
		}
		kinds = append(kinds, c.kind())
	}
	return nil, fmt.Errorf("%w %q does, but as %s", ErrKind, kind, strings.Join(kinds, ", "))
}

// choose gives the best candidate that computes right, or the one called `forced`, and what
// is wrong with better ones, a sentence each.
func choose(list []candidate, forced string) (v *variant, dropped []string, err error) {
	var names []string
	for _, c := range list {
		names = append(names, c.name)
		if forced != "" && c.name != forced {
			continue
		}
		wrong := c.check()
		if wrong == nil {
			return c.variant, dropped, nil
		}
		dropped = append(dropped, fmt.Sprintf("%s fails its self-test: %v", c.name, wrong))
	}
	switch {
	case len(dropped) == 0:
		return nil, nil, fmt.Errorf("cpu: %s=%s: this %s processor runs %s", VariantEnv, forced, runtime.GOARCH, strings.Join(names, ", "))
	case forced != "":
		return nil, dropped, fmt.Errorf("cpu: %s=%s: %s", VariantEnv, forced, dropped[0])
	default:
		return nil, dropped, fmt.Errorf("cpu: no kernels compute right here: %s", strings.Join(dropped, "; "))
	}
}
