package native

import "testing"

func TestCodesAreTexts(t *testing.T) {
	type code int32
	known := Codes[code]{3: {Name: "LOST"}, -4: {Name: "OLD", Remedy: "update it"}}
	for code, want := range map[code]string{3: "LOST (3)", -4: "OLD (-4): update it", 9: "error (9)"} {
		if got := known.Text(code); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
