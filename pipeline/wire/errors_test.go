package wire

import "testing"

func TestClip(t *testing.T) {
	for _, tt := range []struct {
		text string
		most int
		want string
	}{
		{"short", 5, "short"}, {"longer", 5, "longe"}, {"groß", 4, "gro"}, {"groß", 5, "groß"}, {"日本", 5, "日"}, {"日本", 2, ""}, {"", 0, ""},
	} {
		if got := Clip(tt.text, tt.most); got != tt.want {
			t.Errorf("%q in %d bytes: %q, want %q", tt.text, tt.most, got, tt.want)
		}
	}
}
