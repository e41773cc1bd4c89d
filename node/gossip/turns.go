package gossip

import (
	"slices"
	"time"

	"pnode/planner/plan"
)

// maxTold bounds the links of one heartbeat as it is sent. A stage of a pipeline has fewer. Replicas have links with all others, which hardly change:
// they take turns, or what each member receives would grow with the square of the members.
const maxTold = 4

// keptTurns is for how many heartbeats a link is remembered whose turn has not come again. All have had theirs after maxRates/maxTold, but for those
// that wait for changed ones.
const keptTurns = 3 * maxRates / maxTold

// linkTurns chooses the links of each heartbeat of this node.
type linkTurns struct {
	generation plan.Generation
	turn       int
	told       map[plan.PeerID]toldLink
}

type toldLink struct {
	turn int
	rate LinkRate
}

// lead is how many turns a link that has changed goes before others: few enough that the others' turns come however many change.
const lead = maxRates / maxTold

// next returns the links of a heartbeat. The first one of a generation has all of them, and so has one by whose step something had become slower: it is
// planned with at once. Others have at most maxTold: those that are new, then those whose turn was the longest ago, of which changed ones count as
// older.
func (t *linkTurns) next(b Heartbeat) []LinkRate {
	links, most := b.Links, maxTold
	if b.Generation != t.generation || b.Slower != 0 && b.Slower == b.Newest() {
		t.generation, most = b.Generation, len(links)
	}
	t.turn++
	last := func(l LinkRate) int {
		told, ok := t.told[l.Peer]
		switch {
		case !ok:
			return -lead
		case l.changed(told.rate):
			return told.turn - lead
		}
		return told.turn
	}
	chosen := links
	if len(links) > most {
		chosen = slices.SortedStableFunc(slices.Values(links), func(a, b LinkRate) int { return last(a) - last(b) })[:most]
	}
	now := map[plan.PeerID]toldLink{} // of the links that there still are
	for _, l := range links {
		if told, ok := t.told[l.Peer]; ok {
			now[l.Peer] = told
		}
	}
	for _, l := range chosen {
		now[l.Peer] = toldLink{t.turn, l}
	}
	t.told = now
	return chosen
}

// changed reports whether a link is another one than before, to whoever plans with it.
func (l LinkRate) changed(before LinkRate) bool {
	return l.Transport != before.Transport || apart(l.BytesPerS, before.BytesPerS) || apart(l.RTTNanos, before.RTTNanos)
}

// apart reports whether two figures differ by more than a quarter of the larger one.
func apart(a, b int64) bool { return max(a, b)-min(a, b) > max(a, b)/4 }

// heardLink is a link that a peer told of, and when.
type heardLink struct {
	LinkRate
	at time.Time
}

// remembered returns the links that a peer has told of by its newest heartbeat and those before it of the same generation, at most maxRates. One
// with fewer than maxTold, or more, names all that there are.
func remembered(old heard, b Heartbeat, now time.Time, pace time.Duration) (all []heardLink) {
	for _, l := range b.Links {
		all = append(all, heardLink{l, now})
	}
	if len(b.Links) != maxTold || old.beat.Generation != b.Generation || old.beat.Lineage != b.Lineage {
		return all
	}
	for _, l := range old.links {
		again := slices.ContainsFunc(b.Links, func(newer LinkRate) bool { return newer.Peer == l.Peer })
		if !again && len(all) < maxRates && now.Sub(l.at) <= keptTurns*max(pace, Every) {
			all = append(all, l)
		}
	}
	return all
}
