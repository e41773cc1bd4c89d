package listening

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"sync"
	"time"

	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
	"pnode/swarm/twofold"
)

const (
	// silenceFile says for how long voters were listened for and not heard.
	silenceFile     = "silence"
	maxSilenceBytes = 1 << 14
	// mostListened bounds what counts of earlier starts: a recovery wants at least two minutes of this one.
	mostListened = consensus.RecoverAfter - 2*time.Minute
	// listenEvery is the time between two looks. A process that was stopped has listened for twice that at most.
	listenEvery = time.Second
	// keepListened is how much a start may forget.
	keepListened = 10 * time.Second
)

// Listening counts for how long this node has listened for each voter without hearing it, over its starts: so `pnode recover`
// need not begin from zero after one. The time while no process runs does not count, and clocks do not matter. Its methods may
// be called concurrently.
type Listening struct {
	dir     string
	started time.Time
	// ago returns how long ago this process heard a peer; ok is false where it never did.
	ago    func(p plan.PeerID, now time.Time) (ago time.Duration, ok bool)
	before map[plan.PeerID]time.Duration // of earlier starts
	log    *slog.Logger

	mu      sync.Mutex // guards what follows
	counted map[plan.PeerID]time.Duration
	kept    map[plan.PeerID]time.Duration // on the disk
	looked  time.Time
}

// New returns what a node goes on counting from. What cannot be read counts from zero.
func New(dir string, started time.Time, ago func(plan.PeerID, time.Time) (time.Duration, bool), log *slog.Logger) *Listening {
	before, err := twofold.Read(dir, silenceFile, maxSilenceBytes, decodeSilence)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Info("listening for voters begins anew", "cause", err)
	}
	return &Listening{dir: dir, started: started, ago: ago, before: before, log: log, counted: maps.Clone(before), kept: before, looked: started}
}

// decodeSilence reads seconds by peer.
func decodeSilence(data []byte) (map[plan.PeerID]time.Duration, error) {
	var seconds map[plan.PeerID]int
	if err := strict.Decode(data, &seconds); err != nil {
		return nil, fmt.Errorf("listening: %s: %w", silenceFile, err)
	}
	silent := map[plan.PeerID]time.Duration{}
	for p, s := range seconds {
		if s < 0 || s > int(mostListened.Seconds()) {
			return nil, fmt.Errorf("listening: %s: %d s, at most %d are counted", silenceFile, s, int(mostListened.Seconds()))
		}
		silent[p] = time.Duration(s) * time.Second
	}
	return silent, nil
}

// Silent returns how long a peer was listened for without being heard.
func (l *Listening) Silent(p plan.PeerID) time.Duration { return l.silent(p, time.Now()) }

func (l *Listening) silent(p plan.PeerID, now time.Time) time.Duration {
	if ago, ok := l.ago(p, now); ok {
		return ago
	}
	return now.Sub(l.started) + l.before[p]
}

// Run counts, and keeps the counts, until ctx ends.
func (l *Listening) Run(ctx context.Context, voters func() []plan.PeerID) {
	tick := time.NewTicker(listenEvery)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := l.look(voters(), time.Now())
		if err != nil && !failing {
			l.log.Warn("a restart has to listen for voters anew", "cause", err)
		}
		failing = err != nil
	}
}

// look counts the time since the look before for each voter that was not heard in it, and forgets those that were.
func (l *Listening) look(voters []plan.PeerID, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	passed := min(now.Sub(l.looked), 2*listenEvery)
	l.looked = now
	counted := map[plan.PeerID]time.Duration{}
	for _, p := range voters {
		if ago, ok := l.ago(p, now); !ok || ago > 2*listenEvery {
			counted[p] = min(l.counted[p]+passed, mostListened)
		}
	}
	l.counted = counted
	if !l.stale() {
		return nil
	}
	seconds, kept := map[plan.PeerID]int{}, map[plan.PeerID]time.Duration{}
	for p, d := range counted {
		if d >= keepListened {
			seconds[p], kept[p] = int(d.Seconds()), d
		}
	}
	l.kept = kept
	b, err := json.Marshal(seconds)
	if err != nil {
		return err
	}
	return twofold.Write(l.dir, silenceFile, b)
}

// stale reports whether the disk has a peer that was heard since, or lacks keepListened of one; the caller holds mu.
func (l *Listening) stale() bool {
	for p := range l.kept {
		if l.counted[p] < l.kept[p] {
			return true
		}
	}
	for p, d := range l.counted {
		if d-l.kept[p] >= keepListened || d == mostListened && l.kept[p] < d {
			return true
		}
	}
	return false
}
