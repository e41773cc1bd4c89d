package api

import (
	"math"
	"testing"
)

func TestPrecisionText(t *testing.T) {
	loss := func(v float64) *float64 { return &v }
	for _, tt := range []struct {
		heldOut, f32 *float64
		want         string
	}{
		{loss(1.1634), loss(1.1613), "float32 throughout: 1.161, lower precision costs +0.0021"},
		{loss(2), loss(2.000061), "float32 throughout: 2.000, lower precision costs -0.000061"},
		{loss(3), loss(3), "float32 throughout: 3.000, lower precision costs +0"},
		{loss(128.5), loss(2), "float32 throughout: 2.000, lower precision costs +130"},
		{loss(math.NaN()), loss(2), ""},
		{loss(math.Inf(1)), loss(2), ""},
		{loss(3), nil, ""},
		{nil, loss(3), ""},
	} {
		if got := PrecisionText(tt.heldOut, tt.f32, 3); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}
