package metrics

import (
	"sync"

	"pnode/node/api"
)

// counts holds what only grows, as events have told it. Its methods may be called concurrently.
type counts struct {
	mu            sync.Mutex // guards what follows
	events        map[api.Kind]float64
	interruptions map[api.Rung]float64
	parts         map[api.Rung]map[string]float64 // seconds
	redone        float64
	steps         float64
}

// parts returns where the time of an interruption went, in the order of the parts, and what each is called.
func parts(i api.Interruption) (names []string, seconds []float64) {
	return []string{"detect", "agree", "replay", "save", "plan", "load", "step"},
		[]float64{i.DetectS, i.AgreeS, i.ReplayS, i.SaveS, i.PlanS, i.LoadS, i.StepS}
}

// add takes in an event.
func (c *counts) add(e api.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.events == nil {
		c.events, c.interruptions, c.parts = map[api.Kind]float64{}, map[api.Rung]float64{}, map[api.Rung]map[string]float64{}
	}
	if e.Kind == api.KindStep {
		c.steps++
	}
	if counted(e.Kind) {
		c.events[e.Kind]++
	}
	i := e.Interruption
	if i == nil {
		return
	}
	c.interruptions[i.Rung]++
	c.redone += float64(i.Redone)
	if c.parts[i.Rung] == nil {
		c.parts[i.Rung] = map[string]float64{}
	}
	names, seconds := parts(*i)
	for k, name := range names {
		c.parts[i.Rung][name] += max(seconds[k], 0)
	}
}

// write emits the counters. All series are there from the start: a rate needs the 0 before the first event.
func (c *counts) write(out *series, tokensPerStep float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out.add("committed_steps_total", c.steps)
	out.add("committed_tokens_total", c.steps*tokensPerStep)
	for _, k := range eventKinds {
		out.add("events_total", c.events[k], string(k))
	}
	names, _ := parts(api.Interruption{})
	for _, r := range rungs {
		out.add("interruptions_total", c.interruptions[r], string(r))
		for _, name := range names {
			out.add("interruption_seconds_total", c.parts[r][name], string(r), name)
		}
	}
	out.add("redone_steps_total", c.redone)
}
