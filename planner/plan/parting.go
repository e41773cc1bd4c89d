package plan

// MaxPartings bounds Partings: later ones are not noted.
const MaxPartings = 64

// Parting is where a recovery parted a run's log from what lost members may have: they may still make generations after this one, which
// have the numbers of those that the recovered run makes.
type Parting struct {
	Recovery   string     `json:"recovery"`   // its ID
	Generation Generation `json:"generation"` // newest then
}

// Partings are the recoveries that a log has gone through, oldest first. They say which lineage the log is of.
type Partings []Parting

// Since returns the newest generation that a log with these partings shares with another one; ok is false where they are of one lineage.
func (p Partings) Since(other Partings) (shared Generation, ok bool) {
	n := 0
	for n < min(len(p), len(other)) && p[n].Recovery == other[n].Recovery {
		n++
	}
	for _, rest := range []Partings{p[n:], other[n:]} {
		if len(rest) > 0 && (!ok || rest[0].Generation < shared) {
			shared, ok = rest[0].Generation, true
		}
	}
	return shared, ok
}

// Of returns the recovery that began the lineage in which a generation was made, by its ID; "" is the one that the run was founded with.
// Logs of two lineages may both have a generation: it is the same one where Of says the same.
func (p Partings) Of(g Generation) (recovery string) {
	for _, r := range p {
		if r.Generation < g {
			recovery = r.Recovery
		}
	}
	return recovery
}
