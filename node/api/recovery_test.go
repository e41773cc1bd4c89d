package api

import "testing"

func TestRecoveryText(t *testing.T) {
	for want, r := range map[string]Recovery{
		"a goes on with the run: this node joins it again":                                   {By: "a", Follows: true},
		"a goes on with the run, without b, c: incarnation 2, from the checkpoint of step 4": {By: "a", Without: []string{"b", "c"}, Incarnation: 2, Step: 4, Newest: 4},
		"a goes on with the run, without b: incarnation 2, from the newest state of which the living have all parts: that of step 32, and the checkpoint of step 4 at the oldest": {By: "a", Without: []string{"b"}, Incarnation: 2, Step: 4, Newest: 32},
		"a goes on with the run, without b: incarnation 2, from the newest state of which the living have all parts, as soon as there is one: no checkpoint is whole with them":   {By: "a", Without: []string{"b"}, Incarnation: 2, Lost: true, Newest: 8},
	} {
		if got := r.Text(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
