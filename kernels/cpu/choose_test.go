package cpu

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// spoiled is a candidate called `name` that computes something wrong.
func spoiled(name string, spoil func(v *variant)) candidate {
	v := generic()
	v.name = name
	spoil(v)
	return newCandidate(v)
}

// wrongLoop is noticed by a loop's own check, wrongTogether by whole operations only.
var (
	wrongLoop = spoiled("avx512", func(v *variant) {
		v.gelu = func(out, x []float32) { geluGeneric(out[:len(out)-1], x[:len(x)-1]) }
	})
	wrongTogether = spoiled("avx2", func(v *variant) {
		v.product.multiply = func(t *tile) {
			multiplyGeneric(t)
			if t.Count > 2 {
				*t.C++
			}
		}
	})
)

func TestWrongKernelsFallBack(t *testing.T) {
	v, dropped, err := choose([]candidate{wrongLoop, wrongTogether, newCandidate(generic())}, "")
	if err != nil || v.name != "generic" {
		t.Fatalf("chose %v, error %v", v, err)
	}
	if len(dropped) != 2 {
		t.Fatalf("dropped %q", dropped)
	}
	for i, parts := range [][]string{{"avx512 fails its self-test", "gelu is wrong"}, {"avx2 fails its self-test", "matmul M=65"}} {
		for _, part := range parts {
			if !strings.Contains(dropped[i], part) || strings.Contains(dropped[i], "\n") {
				t.Errorf("dropped %q, want %q in a line", dropped[i], part)
			}
		}
	}
}

func TestForcedKernelsDoNotFallBack(t *testing.T) {
	list := []candidate{wrongLoop, newCandidate(generic())}
	if _, _, err := choose(list, "avx512"); err == nil || !strings.Contains(err.Error(), "PNODE_CPU=avx512: avx512 fails its self-test: gelu is wrong") {
		t.Errorf("error is %v", err)
	}
	if v, dropped, err := choose(list, "generic"); err != nil || v.name != "generic" || len(dropped) > 0 {
		t.Errorf("chose %v, dropped %q, error %v", v, dropped, err)
	}
	if _, _, err := choose([]candidate{wrongLoop, wrongTogether}, ""); err == nil || !strings.Contains(err.Error(), "no kernels compute right") {
		t.Errorf("error is %v", err)
	}
}

// TestBetterKernelsAreTriedFirst counts how often what is not needed is checked.
func TestBetterKernelsAreTriedFirst(t *testing.T) {
	var checked []string
	named := func(name string, verdict error) candidate {
		return candidate{&variant{name: name}, func() error { checked = append(checked, name); return verdict }}
	}
	v, _, err := choose([]candidate{named("a", errors.New("broken")), named("b", nil), named("c", nil)}, "")
	if err != nil || v.name != "b" || !slices.Equal(checked, []string{"a", "b"}) {
		t.Errorf("chose %v after checks of %v, error %v", v, checked, err)
	}
}
