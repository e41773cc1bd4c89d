package consensus

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"pnode/planner/plan"
	"pnode/swarm/version"
)

// wantFailure wants a node to tell once that its store failed, to refuse proposals for it,
// and to close at once.
func (c *cluster) wantFailure(p plan.PeerID) {
	c.t.Helper()
	failed := c.nodes[p].Failed()
	select {
	case err := <-failed:
		if !errors.Is(err, ErrStore) {
			c.t.Errorf("%s tells %v", p, err)
		}
		c.t.Log(err)
	case <-time.After(time.Minute):
		c.t.Errorf("%s does not tell that its store failed", p)
	}
	within(c.t, "Propose", 3*time.Second, func() {
		if err := c.nodes[p].Propose(c.t.Context(), WantStop{}); !errors.Is(err, ErrClosed) || !errors.Is(err, ErrStore) {
			c.t.Errorf("a proposal to %s gives %v", p, err)
		}
	})
	if _, _, self := c.nodes[p].Leader(); self {
		c.t.Errorf("%s still leads", p)
	}
	within(c.t, "Close", 2*time.Second, func() { c.crash(p) })
	select {
	case err := <-failed:
		c.t.Errorf("%s tells again: %v", p, err)
	default:
	}
}

// Whoever's store fails ends alone; the other two go on.
func TestStoreFails(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.leader(), testRun())
		victim := c.leader().self
		c.kv[victim].breakDown()
		f := c.follower()
		m, _ := f.State().Member(f.self)
		c.must(f, Update{Peer: f.self, ProcessEpoch: m.ProcessEpoch})
		c.wantFailure(victim)
	})
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		victim := c.follower().self
		c.kv[victim].breakDown()
		c.must(c.leader(), testRun())
		c.wantFailure(victim)
		c.everywhere("the run", func(s State) bool { return s.Run != nil })
	})
}

// A term that cannot be saved is where raft itself would panic: in an election, in the
// answer to another's, and in a new leader's first heartbeat.
func TestStoreFailsInAnElection(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		victims := []plan.PeerID{}
		for _, p := range c.peers {
			if c.nodes[p] != c.leader() {
				c.kv[p].breakDown()
				victims = append(victims, p)
			}
		}
		c.crash(c.leader().self)
		stands := plan.PeerID("") // the first that does; nobody is left then to vote for the other
		c.until("that one stands for election", func() bool {
			for _, p := range victims {
				if c.nodes[p].over() != nil {
					stands = p
				}
			}
			return stands != ""
		})
		c.wantFailure(stands)
	})
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		l, victim := c.leader(), c.follower().self
		other := c.peers[slices.IndexFunc(c.peers, func(p plan.PeerID) bool { return p != l.self && p != victim })]
		c.kv[victim].breakDown()
		if err := l.engine.Load().raft.LeadershipTransferToServer(raft.ServerID(other), raft.ServerAddress(other)).Error(); err != nil {
			t.Fatal(err)
		}
		c.wantFailure(victim) // it is asked for its vote
		c.until("another leader", func() bool { return c.leader() == c.nodes[other] })
	})
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		victim := c.follower().self
		c.kv[victim].breakDown()
		c.net.partition(victim)
		old := c.leader().self
		c.crash(old)
		c.start(old) // so that there is a majority without the victim, in a newer term
		c.until("a leader", func() bool { return c.leader() != nil })
		c.net.partition()
		c.wantFailure(victim)
		l := c.leader()
		c.must(l, runOf(l.self))
	})
}

// A lone node ends with its store too, in the middle of what it was asked.
func TestStoreFailsAlone(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *cluster) {
		c.kv["a"].breakDown()
		if err := c.leader().Propose(t.Context(), testRun()); !errors.Is(err, ErrStore) {
			t.Errorf("a proposal that cannot be stored gives %v", err)
		}
		c.wantFailure("a")
	})
}

// A store that fails from the start, or after any number of writes, is an error of Start or
// told by Failed, and never the end of the process.
func TestStartWithABrokenStore(t *testing.T) {
	for writes := range 8 {
		synctest.Test(t, func(t *testing.T) {
			wire := newMemoryNet(0).join("a")
			defer wire.crash()
			n, err := Start(t.Context(), Config{
				Transport: wire, KV: &failingKV{newMemoryKV(), writes}, Signer: keyOf("a"), Bootstrap: true,
				Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
			})
			if err != nil && writes < 3 && errors.Is(err, ErrStore) {
				return
			}
			if err != nil {
				t.Fatalf("start with %d writes left: %v", writes, err)
			}
			for err == nil { // a founder writes on when it is asked to
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				err = n.Propose(ctx, testRun())
				cancel()
			}
			if told := <-n.Failed(); !errors.Is(told, ErrStore) || !errors.Is(err, ErrStore) {
				t.Errorf("after %d writes: %v, %v", writes, err, told)
			}
			n.Close()
		})
	}
}

// Raft stores its term when it starts again, too.
func TestStartWithoutRoomForTheTerm(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *cluster) {
		c.must(c.leader(), testRun())
		c.crash("a")
		c.kv["a"].broken = true
		if _, err := Start(t.Context(), Config{Transport: c.net.join("a"), KV: c.kv["a"], Signer: keyOf("a")}); !errors.Is(err, ErrStore) {
			t.Errorf("start: %v", err)
		}
		c.kv["a"].broken = false
		c.start("a")
		c.until("leading again", func() bool { return c.leader() != nil })
	})
}

// A log that cannot be read ends the node which needs it, whether it follows or leads, and is
// an error of its start. Raft itself would panic.
func TestLogCannotBeRead(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		victim := c.follower().self
		c.kv[victim].damage(true)
		c.must(c.leader(), testRun())
		c.wantFailure(victim)
		c.everywhere("the run", func(s State) bool { return s.Run != nil })
	})
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		behind := c.follower().self
		c.net.partition(behind)
		c.must(c.leader(), testRun())
		victim := c.leader().self
		c.kv[victim].damage(true)
		c.net.partition() // now it has to send what it cannot read
		c.wantFailure(victim)
		c.everywhere("the run", func(s State) bool { return s.Run != nil })
	})
	inBubble(t, 1, func(t *testing.T, c *cluster) {
		c.must(c.leader(), testRun())
		c.crash("a")
		c.kv["a"].damage(true)
		if _, err := Start(t.Context(), Config{Transport: c.net.join("a"), KV: c.kv["a"], Signer: keyOf("a")}); err == nil {
			t.Error("a node starts without its log")
		}
		c.kv["a"].damage(false)
		c.start("a")
		c.until("leading again", func() bool { return c.leader() != nil })
	})
}

// Nothing follows from an entry that could not be read: those after it do not reach the state.
func TestStateStopsAtAnUnreadableEntry(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		f := c.follower()
		before, last := f.State(), f.engine.Load().raft.LastIndex()
		c.kv[f.self].puncture(last + 1)
		c.must(c.leader(), testRun())
		c.must(c.leader(), WantPause{Count: 1})
		c.wantFailure(f.self)
		if after := f.State(); after.Run != nil || after.PauseWanted != before.PauseWanted {
			t.Errorf("the state went on to %+v", after)
		}
		c.kv[f.self].puncture(0)
		if got := edges(t, logStore{c.kv[f.self]}); got[1] < last+1 {
			t.Errorf("log %v, want the entry that cannot be read, %d", got, last+1)
		}
	})
}

// A store that has failed once carries out no later write, even when it could again.
func TestNoWriteAfterAFailure(t *testing.T) {
	_, kv := filled(t, 3, 5)
	reported := make(chan error, 2)
	p := newParking(kv, func(err error) { reported <- err }, func(time.Duration) {})
	ended := make(chan error, 2)
	kv.breakDown()
	go func() { ended <- p.StoreLog(&raft.Log{Index: 6}) }()
	first := <-reported
	kv.broken = false
	go func() { ended <- p.Set([]byte("LastVoteCand"), []byte("x")) }()
	select {
	case err := <-ended:
		t.Fatalf("a caller was not parked: %v", err)
	default:
	}
	close(p.isolated)
	for range 2 {
		if err := <-ended; !errors.Is(err, first) {
			t.Errorf("a parked caller gets %v, want %v", err, first)
		}
	}
	if err := p.SetUint64([]byte("CurrentTerm"), 7); err != nil {
		t.Errorf("raft would panic over %v", err)
	}
	if term, _ := p.GetUint64([]byte("CurrentTerm")); term != 0 || edges(t, p.logStore) != [2]uint64{3, 5} || len(reported) != 0 {
		t.Errorf("written after the failure: term %d, log %v; reported again: %d", term, edges(t, p.logStore), len(reported))
	}
}

// A vote is one write: its term is never stored without whom it is for.
func TestAVoteIsOneWrite(t *testing.T) {
	kv := newMemoryKV()
	p := newParking(kv, func(err error) { t.Errorf("reported %v", err) }, func(time.Duration) {})
	for term, name := range map[uint64]string{3: "a", 4: "b"} {
		before := kv.writes
		if err := p.SetUint64([]byte("LastVoteTerm"), term); err != nil {
			t.Fatal(err)
		}
		if kv.writes != before {
			t.Error("the term of a vote is stored without whom it is for")
		}
		if err := p.Set([]byte("LastVoteCand"), []byte(name)); err != nil {
			t.Fatal(err)
		}
		stored, _ := p.GetUint64([]byte("LastVoteTerm"))
		to, _ := p.Get([]byte("LastVoteCand"))
		if kv.writes != before+1 || stored != term || string(to) != name {
			t.Errorf("%d writes for the vote of term %d for %q, want that of %d for %q", kv.writes-before, stored, to, term, name)
		}
	}
}

// Beyond its ends the log has no entry; inside, an entry that is missing is a failure.
func TestReadsBeyondTheLogAndInside(t *testing.T) {
	_, kv := filled(t, 3, 5)
	reported := make(chan error, 1)
	p := newParking(kv, func(err error) { reported <- err }, func(time.Duration) {})
	for _, index := range []uint64{1, 2, 6, 100} {
		if err := p.GetLog(index, new(raft.Log)); err != raft.ErrLogNotFound {
			t.Errorf("entry %d: %v", index, err)
		}
	}
	if err := writeInParts(kv, []Change{{Key: logKey(4), Delete: true}}); err != nil {
		t.Fatal(err)
	}
	close(p.isolated)
	var l raft.Log
	if err := p.GetLog(4, &l); err != nil || l.Index != 4 || l.Type != raft.LogNoop {
		t.Errorf("the released reader gets %+v, %v", l, err)
	}
	if err := <-reported; !errors.Is(err, ErrCorrupt) {
		t.Errorf("reported %v", err)
	}
}

// lateKV misses one log entry when it is read for the first time.
type lateKV struct {
	*memoryKV
	late uint64
}

func (k *lateKV) Get(key []byte) ([]byte, bool, error) {
	if index, ok := logIndex(key); ok && index == k.late {
		k.late = 0
		return nil, false, nil
	}
	return k.memoryKV.Get(key)
}

// The end of the log may be replaced while it is read: an entry that has come meanwhile is no failure.
func TestEntryComesWhileItIsRead(t *testing.T) {
	_, kv := filled(t, 3, 5)
	p := newParking(&lateKV{kv, 5}, func(err error) { t.Errorf("reported %v", err) }, func(time.Duration) {})
	close(p.isolated)
	var l raft.Log
	if err := p.GetLog(5, &l); err != nil || l.Index != 5 || l.Type == raft.LogNoop {
		t.Errorf("got %+v, %v", l, err)
	}
}

// replacedKV has another log from the first search for an end of the log on.
type replacedKV struct {
	*memoryKV
	next []*raft.Log
}

func (k *replacedKV) Scan(from []byte, reverse bool, visit func(key, value []byte) bool) error {
	err := k.memoryKV.Scan(from, reverse, visit)
	if next := k.next; next != nil {
		k.next = nil
		return errors.Join(err, logStore{k}.StoreLogs(next))
	}
	return err
}

// TestLogIsReplacedWhileItIsRead: a snapshot has taken the place of the log, and entries after it come while one from before is looked for.
func TestLogIsReplacedWhileItIsRead(t *testing.T) {
	p := newParking(&replacedKV{newMemoryKV(), []*raft.Log{{Index: 21, Term: 1}, {Index: 22, Term: 1}}}, func(err error) { t.Errorf("reported %v", err) }, func(time.Duration) {})
	close(p.isolated) // who is parked returns
	var l raft.Log
	if err := p.GetLog(5, &l); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("entry 5: %v", err)
	}
}

// At a start the log has to go on where the snapshot ends.
func TestLogContinuesASnapshot(t *testing.T) {
	for name, c := range map[string]struct {
		parts   [][2]uint64
		covered uint64
		want    [2]uint64
		missing string
	}{
		"nothing":              {nil, 0, [2]uint64{}, ""},
		"from the beginning":   {[][2]uint64{{1, 4}}, 0, [2]uint64{1, 4}, ""},
		"trailing a snapshot":  {[][2]uint64{{3, 9}}, 5, [2]uint64{3, 9}, ""},
		"next to a snapshot":   {[][2]uint64{{6, 9}}, 5, [2]uint64{6, 9}, ""},
		"a gap it fills":       {[][2]uint64{{1, 2}, {6, 9}}, 5, [2]uint64{6, 9}, ""},
		"two gaps it fills":    {[][2]uint64{{1, 1}, {3, 3}, {5, 9}}, 5, [2]uint64{5, 9}, ""},
		"older than it":        {[][2]uint64{{1, 3}}, 5, [2]uint64{}, ""},
		"beginning too late":   {[][2]uint64{{7, 9}}, 5, [2]uint64{7, 9}, "entries 6 to 6"},
		"a gap after it":       {[][2]uint64{{3, 6}, {9, 9}}, 5, [2]uint64{3, 9}, "entries 7 to 8"},
		"a gap it half fills":  {[][2]uint64{{1, 2}, {9, 9}}, 5, [2]uint64{1, 9}, "entries 6 to 8"},
		"no snapshot, not all": {[][2]uint64{{2, 3}}, 0, [2]uint64{2, 3}, "entries 1 to 1"},
	} {
		s := logStore{newMemoryKV()}
		for _, part := range c.parts {
			for i := part[0]; i <= part[1]; i++ {
				if err := s.StoreLogs([]*raft.Log{{Index: i}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		err := s.continues(c.covered)
		if (err == nil) != (c.missing == "") || err != nil && (!errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.missing)) {
			t.Errorf("%s: %v, want %q", name, err, c.missing)
		}
		if got := edges(t, s); got != c.want {
			t.Errorf("%s: log %v, want %v", name, got, c.want)
		}
	}
}

// A node ends over an entry that a newer release wrote, and says which it needs: it must not go on without what the
// entry changed. The last one of a run of older nodes has no majority to learn of the entry from.
func TestEntryOfANewerRelease(t *testing.T) {
	for _, name := range []string{"version", "kind", "version of the body"} {
		inBubble(t, 3, func(t *testing.T, c *cluster) {
			b := c.leader().signed(t, WantStop{})
			switch body := len(b) - len("{}"); name {
			case "version":
				b[0]++
			case "kind":
				b[body-1] = 200
			default:
				b[body-2]++
			}
			c.leader().engine.Load().raft.Apply(b, time.Second)
			failed := 0
			for _, p := range c.peers {
				n := c.nodes[p]
				select {
				case err := <-n.Failed():
					failed++
					if !errors.Is(err, version.Err) || !strings.Contains(err.Error(), "fetch the writer's release") {
						t.Errorf("%s: %s tells %v", name, p, err)
					}
					if err := n.Propose(t.Context(), testRun()); !errors.Is(err, ErrClosed) {
						t.Errorf("%s: %s goes on: %v", name, p, err)
					}
				case <-time.After(time.Minute):
				}
			}
			if failed < 2 {
				t.Errorf("%s: %d of 3 nodes ended", name, failed)
			}
		})
	}
}

// So does a start from a snapshot of a newer release.
func TestSnapshotOfANewerRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := newMemoryKV()
		state, err := EncodeState(State{})
		if err != nil {
			t.Fatal(err)
		}
		state[0]++
		store(t, &snapshotStore{kv: kv}, 5, state)
		_, err = Start(t.Context(), Config{
			Transport: newMemoryNet(0).join("a"), KV: kv, Signer: keyOf("a"), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		if !errors.Is(err, version.Err) || !strings.Contains(err.Error(), "a snapshot of the state has unknown version 2") {
			t.Errorf("start: %v", err)
		}
	})
}

// A node that is behind ends over the snapshot of a newer leader: raft would ask for it again and again.
func TestSnapshotOfANewerLeader(t *testing.T) {
	state, err := EncodeState(State{})
	if err != nil {
		t.Fatal(err)
	}
	state[0]++
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		f := c.follower()
		if err := f.machine.Restore(io.NopCloser(bytes.NewReader(state))); !errors.Is(err, version.Err) {
			t.Errorf("restored: %v", err)
		}
		c.wantFailure(f.self)
		c.must(c.leader(), testRun())
	})
}
