package blame

import (
	"fmt"
	"slices"

	"pnode/planner/plan"
)

// Parted rules where both ends of a link that was given up have lived all the time. Either may lie, and either being left out helps. It
// is the accused, unless the other one was an end of more such links: who lies pays for the second lie. Owners' nodes stay. A member that
// has not begun with the plan sends no data, and no link is dead for that.
func (t Trial) Parted() (Ruling, bool) {
	said := slices.DeleteFunc(slices.Clone(t.Accusations), func(a accusation) bool {
		return a.Kind != plan.LostLink || !t.Lively[a.By] || !t.Lively[a.Accused] || t.Absent[a.By] || t.Absent[a.Accused]
	})
	if len(said) == 0 {
		return Ruling{}, false
	}
	a := t.unreached(said)
	if t.ends(a.By) > t.ends(a.Accused) && !(t.owns(a.By) && !t.owns(a.Accused)) {
		a.Accused, a.By = a.By, a.Accused
	}
	a.Detail = PartedFrom(t.Name(a.By))
	r := leaveOut(a)
	r.Parted = true
	return r, true
}

// ends counts the rulings of before on dead links of which a member was an end.
func (t Trial) ends(p plan.PeerID) (n int) {
	for _, b := range t.Past {
		if b.Kind == plan.LostLink && b.Until != 0 && (b.Peer == p || b.Accuser == p) {
			n++
		}
	}
	return n
}

// PartedFrom says for people why a member is left out that lives.
func PartedFrom(name string) string {
	return fmt.Sprintf("no data comes through between it and %s, and both live", name)
}
