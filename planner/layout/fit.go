package layout

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/elastic"
	"pnode/planner/plan"
)

// NoFit names a device that is too small for its stages. It is an error.
type NoFit struct {
	Device               int
	NeedBytes, FreeBytes int64
	// At are the stages, InFlight how many micro-batches each of them keeps.
	At       []plan.StageID
	InFlight []int
	// Host reports that the memory of the device's node is too small.
	Host bool
}

func (e *NoFit) Error() string {
	return fmt.Sprintf("layout: device %d needs %d bytes for %d stages, %d are free", e.Device, e.NeedBytes, len(e.At), e.FreeBytes)
}

// Budget bounds the work of a search: how many more actions should be simulated.
type Budget struct{ Actions int }

// Fit has every device of a layout recompute no more than its stages need to fit. Then devices
// recompute ahead of gradients what they have room for, first the stages whose backwards wait
// longest. Between such a recomputation and its backward a program has nothing, whatever else its
// device holds, so that no schedule is the slower for it (schedule.WithRecompute). A device
// recomputes more than it must where the room that this makes is worth it. The error says what
// does not fit (NoFit).
func Fit(m *cost.Model, l *Layout, budget *Budget) error {
	f := fitter{m, budget}
	for d := range m.Devices {
		if err := f.makeFit(l, d, 0); err != nil {
			return err
		}
	}
	waits, err := f.backwardWaits(l)
	if err != nil {
		return err
	}
	for d := range m.Devices {
		f.fillAhead(l, d, waits)
	}
	if err := l.Time(m); err != nil {
		return err
	}
	for d := range m.Devices {
		if err := f.tryMore(l, d, waits); err != nil {
			return err
		}
	}
	return nil
}

// fitter fits layouts onto the devices of a cost model.
type fitter struct {
	*cost.Model
	budget *Budget
}

// makeFit has a device recompute no more than its stages need to fit and leave a reserve.
func (f fitter) makeFit(l *Layout, device int, reserve int64) error {
	if l.Need == nil {
		l.Need = make([]int64, len(f.Devices))
	}
	at, host := l.On(device), int64(0)
	for _, h := range at {
		host += f.HostBytes(*l.Stage(h))
	}
	if d := f.Devices[device]; host > d.HostBytes {
		return &NoFit{Device: device, NeedBytes: host, FreeBytes: d.HostBytes, Host: true}
	}
	room := f.Room(device) - reserve
	for free, more := int64(0), f.Memory.MostLevels() > 0; ; {
		l.Need[device] = 0
		for _, h := range at {
			l.Need[device] += f.Bytes(*l.Stage(h))
		}
		over := l.Need[device] - room
		if over <= 0 {
			return nil
		}
		if !more {
			no := &NoFit{Device: device, NeedBytes: l.Need[device], FreeBytes: room, At: at}
			for _, h := range at {
				no.InFlight = append(no.InFlight, l.Stage(h).Use.Slots)
			}
			return no
		}
		free += over
		more = f.recompute(l, at, free)
	}
}

// recompute frees so many bytes of the stages of one device, by what their costs say. It reports
// false where everything is recomputed then.
func (f fitter) recompute(l *Layout, at []plan.StageID, free int64) bool {
	var layers []cost.Recomputations
	for _, h := range at {
		s := l.Stage(h)
		for _, layer := range f.On(s.Device).Choices(&f.Devices[s.Device].Speed, s.First, s.End) {
			for i := range layer {
				layer[i].FreedBytes *= int64(s.Use.Slots)
			}
			layers = append(layers, layer)
		}
	}
	levels, enough := elastic.Free(layers, free)
	if levels == nil {
		return false // there is nothing to free
	}
	for _, h := range at {
		s := l.Stage(h)
		s.Levels, levels = levels[:s.Len():s.Len()], levels[s.Len():]
	}
	return enough
}

// fillAhead gives the room that is left on a device to recomputation ahead of gradients: as many of
// a stage's last layers as fit, the stage that waits longest first.
func (f fitter) fillAhead(l *Layout, device int, waits map[plan.StageID]schedule.Nanos) {
	for _, at := range waiting(l, device, waits) {
		s := l.Stage(at)
		before, room := f.Bytes(*s), f.Room(device)
		counts, _, _ := f.Early(*s)
		with := func(i int) cost.Stage {
			more := *s
			more.Ahead = counts[i]
			return more
		}
		n := sort.Search(len(counts), func(i int) bool { return l.Need[device]-before+f.Bytes(with(i)) > room })
		if n > 0 {
			*s = with(n - 1)
			l.Need[device] += f.Bytes(*s) - before
		}
	}
}

// waiting returns the stages of a device that wait for gradients, the longest first.
func waiting(l *Layout, device int, waits map[plan.StageID]schedule.Nanos) []plan.StageID {
	at := slices.DeleteFunc(l.On(device), func(h plan.StageID) bool { return waits[h] == 0 })
	slices.SortStableFunc(at, func(a, b plan.StageID) int { return cmp.Compare(waits[b], waits[a]) })
	return at
}

// tryMore has a device recompute so much that there is room for all that it restores now ahead of
// gradients, and keeps to that where the step is the shorter for it.
func (f fitter) tryMore(l *Layout, device int, waits map[plan.StageID]schedule.Nanos) error {
	reserve, late := int64(0), false
	for _, h := range waiting(l, device, waits) {
		_, room, more := f.Early(*l.Stage(h))
		reserve, late = reserve+room, late || more
	}
	if !late || f.Memory.MostLevels() == 0 || f.budget.Actions <= 0 {
		return nil
	}
	more := l.clone()
	for _, h := range more.On(device) {
		s := more.Stage(h)
		s.Levels, s.Ahead = nil, 0
	}
	if f.makeFit(more, device, reserve) != nil {
		return nil // there is nothing more to drop
	}
	f.fillAhead(more, device, waits)
	micros := 0
	for _, n := range l.Micros {
		micros += n
	}
	f.budget.Actions -= 2 * micros * len(l.Rows[0])
	err := more.Time(f.Model)
	if err == nil && more.End < l.End {
		*l = *more
	}
	return err
}

// backwardWaits returns by stage how long its device waits for gradients from another one, where
// the stage recomputes something.
func (f fitter) backwardWaits(l *Layout) (map[plan.StageID]schedule.Nanos, error) {
	waits := map[plan.StageID]schedule.Nanos{}
	if !slices.ContainsFunc(l.Rows, func(row []cost.Stage) bool {
		return slices.ContainsFunc(row, func(s cost.Stage) bool { counts, _, _ := f.Early(s); return len(counts) > 0 })
	}) {
		return waits, nil
	}
	line, err := schedule.Simulate(l.Programs, f.Timing(l.Rows, l.Codecs))
	if err != nil {
		return nil, err
	}
	for _, spans := range line.Workers {
		free := schedule.Nanos(0)
		for _, span := range spans {
			row, s := l.Rows[span.Action.Replica], int(span.Action.Stage)
			backward := span.Action.Op == schedule.Backward || span.Action.Op == schedule.BackwardInput
			if backward && span.Start > free && s < len(row)-1 && row[s+1].Device != row[s].Device {
				waits[plan.StageID{Replica: span.Action.Replica, Stage: span.Action.Stage}] += span.Start - free
			}
			free = max(free, span.End)
		}
	}
	return waits, nil
}

// Widen takes the most exact codecs of a range that do not lengthen the passes, as elastic.Widen
// does for a period. It begins with the boundaries on the fastest links.
func Widen(m *cost.Model, l *Layout, widest, narrowest plan.Codec) error {
	most := l.End + l.End*elastic.ExposedPercent/100
	l.Exposed = map[Boundary]schedule.Nanos{}
	var order []Boundary
	transfers := map[Boundary]schedule.Nanos{}
	for r, costs := range m.Timing(l.Rows, l.Codecs).Replicas {
		for b, boundary := range costs.Boundaries {
			at := Boundary{r, b}
			order, transfers[at] = append(order, at), max(boundary.Activation.Transfer, boundary.Gradient.Transfer)
		}
	}
	slices.SortStableFunc(order, func(a, b Boundary) int { return cmp.Compare(transfers[a], transfers[b]) })
	for _, at := range order {
		codec := &l.Codecs[at.Replica][at.Stage]
		for *codec = widest; *codec < narrowest; *codec++ {
			if err := l.Time(m); err != nil {
				return err
			}
			if l.End <= most {
				break
			}
			l.Exposed[at] = l.End
		}
	}
	return l.Time(m)
}
