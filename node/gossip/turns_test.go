package gossip

import (
	"fmt"
	"testing"
	"time"

	"pnode/planner/plan"
)

// linksTo returns the links of a replica with so many others.
func linksTo(n int) (links []LinkRate) {
	for i := range n {
		links = append(links, LinkRate{Peer: plan.PeerID(fmt.Sprintf("peer-%02d", i)), BytesPerS: 1000, RTTNanos: 10})
	}
	return links
}

// TestLinksTakeTurns: a heartbeat has few links, however many there are, and whoever hears some of them in a row knows all. A link that changes
// comes with the next one. Links that are gone, and those of another generation, are forgotten.
func TestLinksTakeTurns(t *testing.T) {
	var turns linkTurns
	tracker, now := NewTracker(), time.Unix(1000, 0)
	hear := func(g plan.Generation, links []LinkRate) []LinkRate {
		now = now.Add(Every)
		sent := Heartbeat{Peer: "a", Generation: g, Links: links}
		sent.Links = turns.next(sent)
		tracker.Note(sent, now)
		b, _ := tracker.Last("a")
		return b.Links
	}
	hear(1, nil)
	links := linksTo(maxRates)
	for i := range maxRates / maxTold {
		if got, want := len(hear(1, links)), (i+1)*maxTold; got != want {
			t.Fatalf("%d links are known after %d heartbeats, want %d", got, i+1, want)
		}
	}
	links[7].BytesPerS /= 2
	known := map[plan.PeerID]int64{}
	for _, l := range hear(1, links) {
		known[l.Peer] = l.BytesPerS
	}
	if len(known) != maxRates || known["peer-07"] != 500 {
		t.Errorf("%d links are known, peer-07's with %d B/s, want %d and 500", len(known), known["peer-07"], maxRates)
	}
	for range keptTurns + 1 {
		hear(1, links[:maxTold+1])
	}
	if got := len(hear(1, links[:maxTold+1])); got != maxTold+1 {
		t.Errorf("%d links are known long after all but %d are gone", got, maxTold+1)
	}
	if got := len(hear(2, links)); got != maxRates {
		t.Errorf("%d links are known in a new generation, want all", got)
	}
	if got := len(hear(2, links[:maxTold-1])); got != maxTold-1 {
		t.Errorf("%d links are known where a heartbeat names all %d", got, maxTold-1)
	}
}

// TestFewLinksAreAllTold: what a stage of a pipeline has is in each heartbeat.
func TestFewLinksAreAllTold(t *testing.T) {
	var turns linkTurns
	for range 3 {
		if got := turns.next(Heartbeat{Links: linksTo(maxTold)}); len(got) != maxTold {
			t.Errorf("%d links are told of %d", len(got), maxTold)
		}
	}
}

// TestNoLinkWaitsForever: however many links change from one heartbeat to the next, each has its turn while it is remembered.
func TestNoLinkWaitsForever(t *testing.T) {
	for changing := range maxRates + 1 {
		var turns linkTurns
		links, since := linksTo(maxRates), map[plan.PeerID]int{}
		for range 100 {
			for i := range changing {
				links[i].BytesPerS = 3000 - links[i].BytesPerS // 1000 and 2000 in turns
			}
			for _, l := range links {
				since[l.Peer]++
			}
			for _, l := range turns.next(Heartbeat{Links: links}) {
				since[l.Peer] = 0
			}
			for peer, n := range since {
				if n > keptTurns {
					t.Fatalf("%d of %d links change: %s was not told for %d heartbeats", changing, len(links), peer, n)
				}
			}
		}
	}
}

// TestSlowLinksAreToldAtOnce: a heartbeat that says that something had become slower has all links, which the leader plans with at once.
func TestSlowLinksAreToldAtOnce(t *testing.T) {
	var turns linkTurns
	b := Heartbeat{Links: linksTo(maxRates), Step: 5}
	for step, want := range map[plan.Step]int{0: maxTold, 4: maxTold, 5: maxRates} {
		b.Slower = step
		if got := len(turns.next(b)); got != want {
			t.Errorf("slower by step %d of %d: %d links, want %d", step, b.Step, got, want)
		}
	}
}
