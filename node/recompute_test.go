package node

import (
	"strings"
	"testing"
)

// TestOtherInstructionsProveNothing: what differs is called wrong only where nodes computed with the instructions of this processor.
func TestOtherInstructionsProveNothing(t *testing.T) {
	for _, c := range []struct {
		Recomputed
		lines []string
		err   string
	}{
		{Recomputed{Layers: 2, Compared: 4, Unlike: []string{"other"}}, []string{"trained again to step 0: 2 layers of the model in the folders, compared 4 times, all the same to the bit"}, ""},
		{Recomputed{Problems: []string{"this"}}, []string{"trained again to step 0: 1 thing differ or are missing", "wrong: this"}, "node: trained again the run differs: 1 problem"},
		{Recomputed{Problems: []string{"this"}, Unlike: []string{"other"}}, []string{"trained again to step 0: 1 thing differ or are missing", "differs: this", "note: other", "note: this proves nothing against anyone"}, "node: the run is not proven"},
	} {
		var b strings.Builder
		if err := c.Print(&b); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(b.String()), "\n")
		if len(lines) != len(c.lines) {
			t.Fatalf("%q", lines)
		}
		for i, want := range c.lines {
			if !strings.HasPrefix(lines[i], want) {
				t.Errorf("line %d is %q, want %q", i, lines[i], want)
			}
		}
		if err := c.Err(); (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("error is %v, want %q", err, c.err)
		}
	}
}
