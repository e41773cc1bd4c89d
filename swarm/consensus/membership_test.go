package consensus

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pnode/planner/plan"
)

// world holds what a leader sees and what its actions change.
type world struct {
	Servers
	silent  map[plan.PeerID]time.Duration
	unready []plan.PeerID
}

func (w *world) decide() Action {
	w.Silent = func(p plan.PeerID) time.Duration { return w.silent[p] }
	w.Ready = func(p plan.PeerID) bool { return !slices.Contains(w.unready, p) }
	return Membership(w.Servers)
}

// carryOut does what raft would do.
func (w *world) carryOut(a Action) {
	i := slices.IndexFunc(w.Servers.Servers, func(s Server) bool { return s.Peer == a.Peer })
	switch a.Kind {
	case Promote:
		w.Vacated = false
		if i < 0 {
			w.Servers.Servers = append(w.Servers.Servers, Server{Peer: a.Peer, Voter: true})
		} else {
			w.Servers.Servers[i].Voter = true
		}
	case Demote:
		w.Servers.Servers[i].Voter, w.Vacated = false, w.silent[a.Peer] > 0
	case Remove:
		w.Servers.Servers = slices.Delete(w.Servers.Servers, i, i+1)
	case Transfer:
		w.Self = a.Peer
	}
}

// parseWorld reads a line: voters=a,b others=c servers=d joining=d draining= gone= silent=b:61s
// unready=c self=a owners=a newcomers=d sudden=e blamed=d faulty=c voted=b rule=owners stopped=saved. Everybody is active, unless said, and older the earlier it
// is named.
func parseWorld(t *testing.T, line string) *world {
	_, p := fields(line)
	w := &world{silent: map[plan.PeerID]time.Duration{}}
	w.Self, w.Rule, w.Owners = plan.PeerID(p["self"]), plan.VoterRule(p["rule"]), peersOf(p["owners"])
	newcomers, sudden := peersOf(p["newcomers"]), peersOf(p["sudden"])
	w.Known = func(p plan.PeerID) time.Duration {
		switch {
		case slices.Contains(sudden, p):
			return StandingLeast - 1
		case slices.Contains(newcomers, p):
			return StandingAfter - 1
		}
		return StandingAfter
	}
	for _, key := range []string{"voters", "servers", "others"} {
		for _, v := range list(p[key]) {
			peer := plan.PeerID(v)
			if key != "others" {
				w.Servers.Servers = append(w.Servers.Servers, Server{Peer: peer, Voter: key == "voters"})
			}
			m := Member{Peer: peer, State: Active, Since: uint64(len(w.Members) + 1)}
			if slices.Contains(list(p["blamed"]), v) {
				m.Faults = 1
			}
			if slices.Contains(list(p["faulty"]), v) {
				m.Faults = FaultsOfNoStanding
			}
			m.Voted = slices.Contains(list(p["voted"]), v)
			if slices.Contains(list(p["stood"]), v) {
				m.Stood = StandingCheckpoints
			}
			for _, s := range []MemberState{Joining, Draining, Gone} {
				if slices.Contains(list(p[string(s)]), v) {
					m.State = s
				}
			}
			w.Members = append(w.Members, m)
		}
	}
	slices.SortFunc(w.Members, func(a, b Member) int { return strings.Compare(string(a.Peer), string(b.Peer)) })
	w.AllGo = AllGo(State{
		StopWanted: p["stopped"] != "", Members: w.Members, Plan: plan.Plan{Generation: 1}, Blames: []Blame{{Diverged: p["stopped"] == "diverged"}},
		Checkpoint: Checkpoint{Step: 1, Generation: 1, Last: p["stopped"] == "saved"},
	})
	for _, v := range list(p["silent"]) {
		peer, d, _ := strings.Cut(v, ":")
		silent, err := time.ParseDuration(d)
		if err != nil {
			t.Fatal(err)
		}
		w.silent[plan.PeerID(peer)] = silent
	}
	for _, v := range list(p["unready"]) {
		w.unready = append(w.unready, plan.PeerID(v))
	}
	return w
}

// TestMembership replays testdata/membership.txt: what a leader sees in, all changes it
// makes out.
func TestMembership(t *testing.T) {
	scenario(t, "membership.txt", func(t *testing.T) func(string) string {
		return func(line string) string {
			w := parseWorld(t, line)
			var done []string
			for range 20 {
				a := w.decide()
				if a.Kind == Rest {
					return strings.Join(append(done, "rest"), ", ")
				}
				done = append(done, fmt.Sprintf("%s %s (%s)", a.Kind, a.Peer, a.Reason))
				w.carryOut(a)
			}
			return strings.Join(done, ", ") + " and so on without end"
		}
	})
}

// TestMembershipInvariants plays random histories: after each change the answering voters
// are a majority, and when all nodes answer it comes to rest with the right voters.
func TestMembershipInvariants(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := parseWorld(t, "self=a voters=a")
		w.Rule = plan.VoterRules()[seed%3]
		w.Owners = peersOf([]string{"", "a", "b,c", "c,d,e,f"}[r.IntN(4)])
		newcomers := peersOf([]string{"", "b", "g,h,i", "a,b,c,d,e,f,g,h,i"}[r.IntN(4)])
		w.Known = func(p plan.PeerID) time.Duration {
			if slices.Contains(newcomers, p) {
				return 0
			}
			return StandingAfter
		}
		for event := range uint64(40) {
			w.happen(r, event+2)
			w.toRest(t, seed)
		}
		clear(w.silent)
		w.unready = nil
		w.toRest(t, seed)
		w.wantStanding(t, seed)
		if w.Rule != plan.VotersAny {
			continue
		}
		active, voters := 0, 0
		for _, m := range w.Members {
			if m.State == Active {
				active++
			}
		}
		for _, s := range w.Servers.Servers {
			if s.Voter {
				voters++
			}
		}
		if want := Voters(active); active > 0 && voters != want {
			t.Fatalf("seed %d: %d voters of %d active nodes, want %d: %v %v", seed, voters, active, want, w.Servers.Servers, w.Members)
		}
	}
}

// wantStanding wants no node without a vote that should have the one of another, when all answer.
func (w *world) wantStanding(t *testing.T, seed uint64) {
	t.Helper()
	voters, worst, best := 0, ownersNode, newcomer
	for _, s := range w.nodes() {
		m, _ := w.member(s.Peer)
		switch {
		case s.Voter && m.State == Active:
			worst = max(worst, w.standing(s.Peer))
			voters++
		case s.Voter: // nobody could take the vote
			voters++
		case m.State == Active && w.eligible(s.Peer):
			best = min(best, w.standing(s.Peer))
		}
	}
	if voters == 0 || best < worst {
		t.Fatalf("seed %d: %d voters, one of standing %d where another is of %d: %v %v owners %v", seed, voters, worst, best, w.Servers.Servers, w.Members, w.Owners)
	}
}

// happen lets a node join, move on in its life, fall silent or answer again. The leader
// keeps a majority, because without one there is nothing to decide.
func (w *world) happen(r *rand.Rand, epoch uint64) {
	peer := plan.PeerID(rune('a' + r.IntN(9)))
	m, known := State{Members: w.Members}.Member(peer)
	before, wasSilent := w.silent[peer]
	switch event := r.IntN(6); {
	case event == 0 && (!known || m.State == Gone):
		m = Member{Peer: peer, State: Active, Since: epoch}
	case event == 1 && m.State == Active:
		m.State, m.Since = Draining, epoch
	case event == 2 && m.State == Draining && !w.votes(peer):
		m.State, m.Since = Gone, epoch
	case event == 3 && peer != w.Self:
		w.silent[peer] = 5 * time.Second
	case event == 4 && wasSilent:
		w.silent[peer] = 2 * DeadAfter
	case event == 5:
		delete(w.silent, peer)
	}
	if m.Peer != "" {
		w.Members = State{Members: w.Members}.withMember(m).Members
	}
	if !w.majority() {
		delete(w.silent, peer)
		if wasSilent {
			w.silent[peer] = before
		}
	}
}

func (w *world) votes(p plan.PeerID) bool {
	return slices.Contains(w.Servers.Servers, Server{Peer: p, Voter: true})
}

// majority reports whether a majority of the voters answers, though some fail.
func (w *world) majority(fail ...plan.PeerID) bool {
	voters, answering := 0, 0
	for _, s := range w.Servers.Servers {
		if s.Voter {
			voters++
			if w.silent[s.Peer] == 0 && !slices.Contains(fail, s.Peer) {
				answering++
			}
		}
	}
	return safe(answering, voters)
}

func (w *world) toRest(t *testing.T, seed uint64) {
	t.Helper()
	for range 50 {
		a := w.decide()
		if a.Kind == Rest {
			return
		}
		if a.Peer == w.Self && a.Kind != Transfer {
			t.Fatalf("seed %d: %v changes the leader itself", seed, a)
		}
		alone := !slices.ContainsFunc(w.Servers.Servers, func(s Server) bool { return s.Voter && s.Peer != w.Self })
		w.carryOut(a)
		if a.Kind == Promote && !alone && !w.majority(a.Peer) {
			t.Fatalf("seed %d: %v would leave no majority if it failed: %v silent %v", seed, a, w.Servers.Servers, w.silent)
		}
		if !w.majority() {
			t.Fatalf("seed %d: %v leaves no majority: %v silent %v", seed, a, w.Servers.Servers, w.silent)
		}
	}
	t.Fatalf("seed %d: does not come to rest: %v", seed, w.Servers.Servers)
}
