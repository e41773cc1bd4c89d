package plan

import "testing"

func TestPartings(t *testing.T) {
	first, second, rival := Parting{"a", 3}, Parting{"b", 7}, Parting{"c", 5}
	for name, c := range map[string]struct {
		one, other Partings
		shared     Generation
		parted     bool
	}{
		"neither was recovered":          {nil, nil, 0, false},
		"one lineage":                    {Partings{first, second}, Partings{first, second}, 0, false},
		"one was recovered":              {nil, Partings{first}, 3, true},
		"one was recovered twice":        {nil, Partings{first, second}, 3, true},
		"one was recovered once more":    {Partings{first}, Partings{first, second}, 7, true},
		"both were recovered, of one":    {Partings{first, second}, Partings{first, rival}, 5, true},
		"both were recovered, from none": {Partings{second}, Partings{first}, 3, true},
	} {
		for range 2 {
			if got, parted := c.one.Since(c.other); got != c.shared || parted != c.parted {
				t.Errorf("%s: generation %d, %v; want %d, %v", name, got, parted, c.shared, c.parted)
			}
			c.one, c.other = c.other, c.one
		}
	}
}

func TestPartingsOf(t *testing.T) {
	p := Partings{{"a", 3}, {"b", 3}, {"c", 7}}
	for g, want := range map[Generation]string{0: "", 1: "", 3: "", 4: "b", 7: "b", 8: "c"} {
		if got := p.Of(g); got != want {
			t.Errorf("generation %d was made in the lineage of %q, want %q", g, got, want)
		}
	}
}
