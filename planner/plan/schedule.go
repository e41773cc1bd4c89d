package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pnode/pipeline/schedule"
)

// ReplicaGroup is a row of workers that run one group of a schedule's replicas: one replica, or the
// two directions of a bidirectional pipeline. A worker holds one stage of each, or several
// where the schedule interleaves chunks.
type ReplicaGroup struct {
	Workers []WorkerID
	// Layers counts by worker the layers of each replica that it holds.
	Layers []int
	First  Micro
	Micros int
	// Sums has the groups that the replicas take whole.
	Sums Sums
	// Warmups holds by worker the warm-ups of 1f1b and gpipe.
	Warmups []int
	// Holders has by replica and stage the number of the worker, as the schedule has them; nil where that is not known yet.
	Holders [][]int
}

// Pipelines returns the group's replicas under a schedule, the first of them with the given number.
// The error says which number of stages, layers or micro-batches does not fit, and wraps
// schedule.ErrBadShape, ErrBadSpec or ErrInvalid.
func (g ReplicaGroup) Pipelines(spec schedule.Spec, first Replica) ([]Pipeline, error) {
	n := spec.Replicas()
	of := schedule.Group{First: first, Stages: len(g.Workers) * spec.Chunks(), Warmups: g.Warmups}
	for i := range n {
		from, micros := g.Part(i, n)
		of.Shares = append(of.Shares, schedule.Share{First: from, Micros: micros})
	}
	holders, err := g.holders(spec, of)
	if err != nil {
		return nil, err
	}
	parts, err := g.Parts(spec.Chunks())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", spec, err)
	}
	pipes := make([]Pipeline, len(of.Shares))
	for i, share := range of.Shares {
		pipes[i] = Pipeline{FirstMicro: share.First, Micros: share.Micros, Warmups: g.Warmups, Stages: g.Stages(holders[i], parts)}
	}
	return pipes, nil
}

// Part returns part i of n of the group's micro-batches: about as many sum groups for each, or micro-batches where
// those are no whole sum groups.
func (g ReplicaGroup) Part(i, n int) (first Micro, micros int) {
	from, to := g.First+Micro(g.Micros*i/n), g.First+Micro(g.Micros*(i+1)/n)
	if g.Sums.Groups > 0 {
		if share, ok := g.Sums.Share(g.First, g.Micros); ok {
			from, to = g.Sums.First(share.First+ceilDiv(share.Len()*i, n)), g.Sums.First(share.First+ceilDiv(share.Len()*(i+1), n))
		}
	}
	return from, int(to - from)
}

// holders returns by replica and stage the number of the worker, as the schedule's actions say.
func (g ReplicaGroup) holders(spec schedule.Spec, of schedule.Group) ([][]int, error) {
	holders := make([][]int, len(of.Shares))
	if g.Holders != nil {
		return g.Holders, nil
	}
	if spec.Kind == ScheduleName { // stage s on worker s: a plan of very many is made often
		for s := range g.Workers {
			holders[0] = append(holders[0], s)
		}
		return holders, nil
	}
	of.First = 0 // a group alone: its holders do not depend on the numbers of its replicas
	s, err := spec.Build(of)
	if err != nil {
		return nil, err
	}
	if err := schedule.Validate(schedule.WithCommunication(s), schedule.Limits{}); err != nil {
		return nil, fmt.Errorf("%s: %w", spec, err)
	}
	if len(s.Workers) != len(g.Workers) {
		return nil, fmt.Errorf("%w: %s needs %s for %s, there are %d", schedule.ErrBadShape, spec, Count(len(s.Workers), "device"), Count(of.Stages, "stage"), len(g.Workers))
	}
	for i := range holders {
		for st := range of.Stages {
			holders[i] = append(holders[i], s.Holder(Replica(i), Stage(st)))
		}
	}
	return holders, nil
}

// Parts returns by worker the layers of each of its chunks, as even as can be.
func (g ReplicaGroup) Parts(chunks int) ([][]int, error) {
	parts := make([][]int, len(g.Workers))
	for i, n := range g.Layers {
		if n < chunks {
			return nil, fmt.Errorf("%w: a device has %s for %d chunks, each needs at least one; take fewer devices (stages), fewer chunks or a deeper model",
				schedule.ErrBadShape, Count(n, "layer"), chunks)
		}
		for c := range chunks {
			parts[i] = append(parts[i], n*(c+1)/chunks-n*c/chunks)
		}
	}
	return parts, nil
}

// Stages places the stages of one replica, given the worker of each. With one chunk a worker
// the cut follows the workers' order whichever way the pipeline goes.
func (g ReplicaGroup) Stages(holders []int, parts [][]int) []Placement {
	stages := make([]Placement, len(holders))
	next, seen := 0, make([]int, len(g.Workers))
	for st, w := range holders {
		n := parts[w][seen[w]]
		if len(holders) == len(g.Workers) {
			n = parts[st][0]
		}
		seen[w]++
		stages[st] = Placement{Peer: g.Workers[w].Peer, Device: g.Workers[w].Device, Layers: LayerRange{First: next, End: next + n}}
		next += n
	}
	return stages
}

// ReplicaGroups returns the rows of workers of a plan, as Pipelines made them.
func (p Plan) ReplicaGroups() ([]ReplicaGroup, error) {
	spec, err := schedule.ParseSpec(p.Schedule)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadPlan, err)
	}
	n := spec.Replicas()
	if len(p.Replicas)%n != 0 {
		return nil, fmt.Errorf("%w: %s takes its replicas %d at a time, the plan has %d", ErrBadPlan, spec, n, len(p.Replicas))
	}
	var groups []ReplicaGroup
	for group := range slices.Chunk(p.Replicas, n) {
		l := ReplicaGroup{First: group[0].FirstMicro, Warmups: group[0].Warmups}
		for _, pipe := range group {
			l.Micros += pipe.Micros
		}
		for _, pl := range group[0].Stages {
			at := slices.Index(l.Workers, pl.Worker())
			if at < 0 {
				at, l.Workers, l.Layers = len(l.Workers), append(l.Workers, pl.Worker()), append(l.Layers, 0)
			}
			l.Layers[at] += pl.Layers.Len()
		}
		groups = append(groups, l)
	}
	return groups, nil
}

// Elastic reports whether the plan's warm-ups alone say in which order its workers compute.
func (p Plan) Elastic() bool {
	stages := 0
	for _, pipe := range p.Replicas {
		stages += len(pipe.Stages)
	}
	return p.Schedule == ScheduleName && len(p.Workers()) == stages
}

// ScheduleChoice is the order in which the workers of a plan compute, and how the replicas share the
// micro-batches. It may change between two steps of a generation. Its text form is the schedule's, followed by the
// warm-ups of each replica for 1f1b and gpipe, and by the shares of several replicas: `zb-h1`, `1f1b 3,2,1,0`,
// `1f1b 1,0 1,0 12+4`.
type ScheduleChoice struct {
	Schedule string
	Warmups  [][]int // by replica and stage
	// Micros counts the micro-batches of each replica; nil leaves them as they are.
	Micros []int
}

// Bounds of the text form of a choice.
const (
	MaxScheduleChoiceBytes = 1 << 16
	maxNumber              = 1 << 20 // a warm-up or a share
)

// ScheduleChoice returns the choice that the plan begins with.
func (p Plan) ScheduleChoice() ScheduleChoice {
	c := ScheduleChoice{Schedule: p.Schedule}
	for _, pipe := range p.Replicas {
		if pipe.Warmups != nil {
			c.Warmups = append(c.Warmups, pipe.Warmups)
		}
		if len(p.Replicas) > 1 {
			c.Micros = append(c.Micros, pipe.Micros)
		}
	}
	return c
}

// WithSchedule returns the plan with another choice. The error wraps ErrBadPlan. It does not check
// whether the schedule fits the plan's stages, as Programs does, nor whether the shares are whole sum groups, as
// Validate does.
func (p Plan) WithSchedule(c ScheduleChoice) (Plan, error) {
	if c.Warmups != nil && len(c.Warmups) != len(p.Replicas) {
		return Plan{}, fmt.Errorf("%w: schedule %s has warm-ups of %d replicas, the plan has %d", ErrBadPlan, c, len(c.Warmups), len(p.Replicas))
	}
	p, err := p.WithShares(c.Micros)
	if err != nil {
		return Plan{}, err
	}
	p.Schedule = c.Schedule
	for r := range p.Replicas {
		p.Replicas[r].Warmups = nil
		if c.Warmups != nil {
			p.Replicas[r].Warmups = c.Warmups[r]
		}
		if err := p.checkWarmups(r); err != nil {
			return Plan{}, err
		}
	}
	return p, nil
}

// WithShares returns the plan with so many of its micro-batches for each replica, in order; nil leaves them. The error
// wraps ErrBadPlan. It does not check whether the shares are whole sum groups, as Validate does.
func (p Plan) WithShares(micros []int) (Plan, error) {
	p.Replicas = slices.Clone(p.Replicas)
	if micros == nil {
		return p, nil
	}
	if len(micros) != len(p.Replicas) {
		return Plan{}, fmt.Errorf("%w: shares of %d replicas, the plan has %d", ErrBadPlan, len(micros), len(p.Replicas))
	}
	all, next := 0, Micro(0)
	for r := range p.Replicas {
		pipe := &p.Replicas[r]
		all += pipe.Micros
		pipe.FirstMicro, pipe.Micros = next, micros[r]
		next += Micro(micros[r])
	}
	if int(next) != all || slices.Min(micros) < 1 {
		return Plan{}, fmt.Errorf("%w: the replicas share %s as %v", ErrBadPlan, Count(all, "micro-batch"), micros)
	}
	return p, nil
}

// String returns the text form.
func (c ScheduleChoice) String() string {
	b := []byte(c.Schedule)
	for _, warmups := range c.Warmups {
		b = appendNumbers(b, warmups, ',')
	}
	return string(appendNumbers(b, c.Micros, '+'))
}

// Short is the text form for people: without orders, which are long.
func (c ScheduleChoice) Short() string {
	if spec, err := schedule.ParseSpec(c.Schedule); err == nil {
		c.Schedule = spec.Short()
	}
	return c.String()
}

// appendNumbers appends a blank and numbers with a mark between them, or nothing without numbers.
func appendNumbers(b []byte, numbers []int, mark byte) []byte {
	for i, n := range numbers {
		b = append(b, []byte{' ', mark}[min(i, 1)])
		b = strconv.AppendInt(b, int64(n), 10)
	}
	return b
}

// ParseScheduleChoice reads the text form, canonical text of at most MaxScheduleChoiceBytes. The error
// wraps ErrBadPlan.
func ParseScheduleChoice(text string) (ScheduleChoice, error) {
	if len(text) > MaxScheduleChoiceBytes {
		return ScheduleChoice{}, fmt.Errorf("%w: a schedule of %d bytes, at most %d are accepted", ErrBadPlan, len(text), MaxScheduleChoiceBytes)
	}
	name, rest, warmups := strings.Cut(text, " ")
	c := ScheduleChoice{Schedule: name}
	if _, err := schedule.ParseSpec(name); err != nil {
		return ScheduleChoice{}, fmt.Errorf("%w: %w", ErrBadPlan, err)
	}
	if !warmups {
		return c, nil
	}
	for part := range strings.SplitSeq(rest, " ") {
		mark := ","
		if strings.Contains(part, "+") {
			mark = "+"
		}
		var list []int
		for word := range strings.SplitSeq(part, mark) {
			n, err := strconv.Atoi(word)
			if err != nil || n < 0 || n > maxNumber {
				return ScheduleChoice{}, fmt.Errorf("%w: %.20q in a schedule, want 0 to %d", ErrBadPlan, word, maxNumber)
			}
			list = append(list, n)
		}
		if mark == "+" {
			c.Micros = list // of several, the text is not canonical
		} else {
			c.Warmups = append(c.Warmups, list)
		}
	}
	if c.String() != text {
		return ScheduleChoice{}, fmt.Errorf("%w: schedule %.40q is not in canonical form", ErrBadPlan, text)
	}
	return c, nil
}
