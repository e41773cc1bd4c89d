package layout

import (
	"cmp"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/elastic"
	"pnode/planner/plan"
)

// Widen takes the most exact codecs of a range that do not lengthen the passes, as elastic.Widen
// does for a period.
func (s *Site) Widen(l *Layout, widest, narrowest plan.Codec) error {
	most := l.End + l.End*elastic.ExposedPercent/100
	l.Exposed = map[Boundary]schedule.Nanos{}
	for _, at := range s.fastestFirst(l) {
		if err := s.widenBoundary(l, at, [2]plan.Codec{widest, narrowest}, most); err != nil {
			return err
		}
	}
	return s.Time(l)
}

// widenBoundary gives a boundary the most exact codec, from one to another, with which the layout
// ends in time.
func (s *Site) widenBoundary(l *Layout, at Boundary, codecs [2]plan.Codec, most schedule.Nanos) error {
	codec := &l.Codecs[at.Replica][at.Stage]
	for *codec = codecs[0]; *codec < codecs[1]; *codec++ {
		if err := s.Time(l); err != nil {
			return err
		}
		if l.End <= most {
			return nil
		}
		l.Exposed[at] = l.End
	}
	return nil
}

// fastestFirst are the boundaries by what a message takes.
func (s *Site) fastestFirst(l *Layout) (order []Boundary) {
	transfers := map[Boundary]schedule.Nanos{}
	for r, costs := range s.Timing(l).Replicas {
		for b, boundary := range costs.Boundaries {
			at := Boundary{r, b}
			order, transfers[at] = append(order, at), max(boundary.Activation.Transfer, boundary.Gradient.Transfer)
		}
	}
	slices.SortStableFunc(order, func(a, b Boundary) int { return cmp.Compare(transfers[a], transfers[b]) })
	return order
}
