package gossip

import (
	"cmp"
	"slices"
	"sync"

	"pnode/pipeline"
	"pnode/planner/plan"
)

const (
	// slowPercent is how long something takes that is slower, in percent of what it usually does. Longer than each of at least surelyUsual
	// usual steps, it is slower from leastPercent on: three of 15 alike are the three longest once in 455 times.
	slowPercent, leastPercent = 150, 120
	// slowSteps steps in a row must be slower.
	slowSteps = 3
	// usualSteps are the newest whose median is usual; with fewer than leastUsual nothing is.
	usualSteps, surelyUsual, leastUsual = 15, 12, 4
	// costlyPercent of a step is what a link must cost more to count: rates of fast links are noise.
	costlyPercent = 10
)

// trend follows a time that is measured in every step. The zero value has seen nothing.
type trend struct{ usual, slow []int64 }

// note takes the newest time in, and reports whether it and those before it are slower than usual. Then these are usual
// from now on.
func (t *trend) note(nanos int64) (slower bool) {
	percent := int64(slowPercent)
	if len(t.usual) >= surelyUsual && nanos > slices.Max(t.usual) {
		percent = leastPercent
	}
	if len(t.usual) < leastUsual || nanos*100 < t.median()*percent {
		t.usual, t.slow = append(t.usual, nanos), nil
		t.usual = t.usual[max(0, len(t.usual)-usualSteps):]
		return false
	}
	if t.slow = append(t.slow, nanos); len(t.slow) < slowSteps {
		return false
	}
	t.usual, t.slow = t.slow, nil
	return true
}

// median returns the usual time, 0 where nothing is usual.
func (t *trend) median() int64 { return lowerMedian(slices.Clone(t.usual)) }

// SlowDowns notices when stages and links of this node become slower than they used to be: in slowSteps steps in a row by more than their own
// times go up and down. Its methods may be called concurrently.
type SlowDowns struct {
	news chan struct{}

	mu         sync.Mutex // guards the rest
	generation plan.Generation
	newest     plan.Step // by which something had become slower; 0 is none
	stages     map[plan.StageID]*stageTrend
	links      map[plan.PeerID]*trend
}

// stageTrend follows a stage, with its newest steps.
type stageTrend struct {
	trend
	steps []pipeline.StageTimes
}

// NewSlowDowns returns what has seen nothing.
func NewSlowDowns() *SlowDowns { return &SlowDowns{news: make(chan struct{}, 1)} }

// News receives a value when something has become slower. It has one reader.
func (d *SlowDowns) News() <-chan struct{} { return d.news }

// Work says what a step did: so many micro-batches, whose messages have so many bytes.
type Work struct {
	Micros, MessageBytes int
}

// Note takes in a worker's step of a generation, and the rates of this node's links after it.
func (d *SlowDowns) Note(g plan.Generation, r pipeline.StepResult, links []LinkRate, w Work) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.generation != g {
		d.generation, d.newest, d.stages, d.links = g, 0, map[plan.StageID]*stageTrend{}, map[plan.PeerID]*trend{}
	}
	slower := false
	for i, t := range r.Stages {
		if i >= len(r.Added) || len(r.Added[i]) == 0 {
			continue
		}
		s := d.stages[t.StageID]
		if s == nil {
			s = &stageTrend{}
			d.stages[t.StageID] = s
		}
		s.steps = append(s.steps, t)
		s.steps = s.steps[max(0, len(s.steps)-slowSteps):]
		slower = s.note((t.Forward+t.Backward).Nanoseconds()/int64(len(r.Added[i]))) || slower
	}
	for _, l := range links {
		t := d.links[l.Peer]
		if t == nil {
			t = &trend{}
			d.links[l.Peer] = t
		}
		message := l.RTTNanos / 2
		if l.BytesPerS > 0 { // else nothing has had to wait for the line yet
			message += int64(float64(w.MessageBytes) / float64(l.BytesPerS) * 1e9)
		}
		costly := (message-t.median())*int64(w.Micros)*100 >= r.Total.Nanoseconds()*costlyPercent
		slower = t.note(message) && costly || slower
	}
	if slower {
		d.newest = r.Step
		stir(d.news)
	}
}

// Fill puts into a heartbeat by which step something here had become slower. Where that is the heartbeat's step, its
// stages get the median of the slow ones.
func (d *SlowDowns) Fill(b *Heartbeat) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b.Generation != d.generation || d.newest == 0 || d.newest > b.Newest() {
		return
	}
	if b.Slower = d.newest; b.Slower != b.Newest() {
		return
	}
	for i, s := range b.Stages {
		if t := d.stages[plan.StageID{Replica: s.Replica, Stage: s.Stage}]; t != nil {
			b.Stages[i] = TimesOf(middle(t.steps))
		}
	}
}

// middle returns the stage times of the median step.
func middle(steps []pipeline.StageTimes) pipeline.StageTimes {
	sorted := slices.SortedFunc(slices.Values(steps), func(a, b pipeline.StageTimes) int {
		return cmp.Compare(a.Forward+a.Backward, b.Forward+b.Backward)
	})
	return sorted[(len(sorted)-1)/2]
}
