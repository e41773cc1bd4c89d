package cost

import (
	"math"
	"slices"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// Device is a device that may hold stages.
type Device struct {
	// Storage is the precision of what its products read, Speed what it reaches in that.
	Storage model.Storage
	Speed   Speed
	// Times and Micro are prefixes over layers: each of their times, and the sum for a micro-batch.
	Times []schedule.StageTime
	Micro []schedule.Nanos
	// FreeBytes are for layers and slots: what passes need is taken off.
	FreeBytes int64
	// CopyBytesPerS is the rate of copies each way, HostBytes the memory of its node for what it
	// keeps off the device; 0 where it keeps nothing there.
	CopyBytesPerS, HostBytes int64

	recomputed [][]schedule.Nanos // by level, Micro with what the level recomputes
}

// NewDevice returns a device with the times of all layers. The error is ErrNoHalfCosts.
func (m *MemoryModel) NewDevice(d plan.DeviceProfile, s model.Storage) (*Device, error) {
	memory, err := m.Open(s)
	if err != nil {
		return nil, err
	}
	out := &Device{
		Storage: s, Speed: SpeedOf(d, s), FreeBytes: max(0, d.MemoryFreeBytes-memory.Pass()),
		CopyBytesPerS: max(0, d.CopyBytesPerS), HostBytes: max(0, d.HostFreeBytes),
		Times: make([]schedule.StageTime, m.Layers()+1), Micro: make([]schedule.Nanos, m.Layers()+1),
	}
	var t schedule.StageTime
	for i := range memory.Costs() {
		if i == 0 || !alike(&memory.Costs()[i], &memory.Costs()[i-1]) {
			t = out.Speed.Layer(&memory.Costs()[i])
		}
		sum := out.Times[i]
		out.Times[i+1] = schedule.StageTime{
			Forward: sum.Forward + t.Forward, Input: sum.Input + t.Input, Weight: sum.Weight + t.Weight, Update: sum.Update + t.Update,
		}
		out.Micro[i+1] = out.Times[i+1].Micro()
	}
	return out, nil
}

// alike reports whether two layers make the same calls, and update as many parameters.
func alike(a, b *model.LayerCost) bool {
	return len(a.ForwardWorks) > 0 && slices.Equal(a.ForwardWorks, b.ForwardWorks) && slices.Equal(a.InputWorks, b.InputWorks) && slices.Equal(a.WeightWorks, b.WeightWorks) &&
		a.ParamBytes == b.ParamBytes && a.FrozenBytes == b.FrozenBytes && a.CopyBytes == b.CopyBytes
}

// Time returns the times of the layers [first,end).
func (d *Device) Time(first, end int) schedule.StageTime {
	from, to := d.Times[first], d.Times[end]
	return schedule.StageTime{
		Forward: to.Forward - from.Forward, Input: to.Input - from.Input, Weight: to.Weight - from.Weight, Update: to.Update - from.Update,
	}
}

// Whole returns the time of the whole model on the device per micro-batch.
func (d *Device) Whole() schedule.Nanos { return max(1, d.Micro[len(d.Micro)-1]) }

// Model is the program's only cost model: devices in their precisions, the memory of the layers
// with optimizer state in parts or in host memory, and links. It answers with times, bytes and
// memory. Measured times of a stage override modelled ones.
type Model struct {
	Devices []*Device
	Memory  *MemoryModel
	// Offload holds by device whether it keeps the optimizer state of its stages in the memory of
	// its node; nil for none.
	Offload []bool
	// Link joins one device to another.
	Link func(from, to int) Link
	// Stack returns what a stage with so many slots allocates; nil where costs come without a model.
	Stack func(at Stage, slots int) (model.Memory, error)

	sizes map[sizeKey]stageSize // what Stack has said of stages, which all models With other parts share
}

// NewModel returns a model without devices yet.
func NewModel(memory *MemoryModel, link func(from, to int) Link) *Model {
	return &Model{Memory: memory, Link: link, sizes: map[sizeKey]stageSize{}}
}

// With returns the model of the same devices with optimizer state in other parts and elsewhere.
func (m *Model) With(p Parts, offload []bool) *Model {
	out := *m
	out.Memory, out.Offload = m.Memory.InParts(p), offload
	return &out
}

// On returns the memory of layers on a device.
func (m *Model) On(device int) *DeviceMemory { return m.Memory.Device(m.Devices[device].Storage) }

// Offloads reports whether a device keeps its optimizer state in the memory of its node.
func (m *Model) Offloads(device int) bool { return m.Offload != nil && m.Offload[device] }

// Fixed returns the bytes that layers [first,end) of one stage take of a device, whatever is in
// flight.
func (m *Model) Fixed(device, first, end int) int64 {
	return m.On(device).Fixed(first, end, m.Offloads(device)) + m.exchanges(device, first, end)
}

// Room returns the bytes that a device has for its stages.
func (m *Model) Room(device int) int64 {
	return m.Devices[device].FreeBytes + m.On(device).Pass() - m.Memory.NodeBytes()
}

// Recomputed returns the prefix of a device's times per micro-batch with what a level recomputes.
func (m *Model) Recomputed(device, level int) []schedule.Nanos {
	d, memory := m.Devices[device], m.On(device)
	if d.recomputed == nil {
		d.recomputed = make([][]schedule.Nanos, len(memory.Levels()))
	}
	if d.recomputed[level] == nil {
		times, again := make([]schedule.Nanos, m.Memory.Layers()+1), schedule.Nanos(0)
		for i := range memory.Costs() {
			again += d.Speed.Again(&memory.Costs()[i], memory.Levels()[level].Level)
			times[i+1] = d.Micro[i+1] + again
		}
		d.recomputed[level] = times
	}
	return d.recomputed[level]
}

// sizeKey has all that what a Stack allocates depends on, apart from its slots.
type sizeKey struct {
	first, end, ahead int
	partials          int
	split, offload    bool
	shares            string
	levels            plan.Levels
	storage           model.Storage
}

// stageSize has the bytes of a device that a stage takes once and with each slot, and those of host
// memory.
type stageSize struct{ fixed, slot, host int64 }

// Bytes returns what a stage takes of its device.
func (m *Model) Bytes(s Stage) int64 {
	size := m.size(s)
	return size.fixed + int64(s.Use.Slots)*size.slot
}

// HostBytes returns what a stage takes of the memory of its node.
func (m *Model) HostBytes(s Stage) int64 { return m.size(s).host }

// size returns a stage's memory with what its exchanges take.
func (m *Model) size(s Stage) stageSize {
	out := m.stackSize(s)
	out.fixed += m.exchanges(s.Device, s.First, s.End)
	return out
}

// stackSize asks the model's stack for a stage's memory, or adds up the layers' costs without one.
func (m *Model) stackSize(s Stage) stageSize {
	if m.Stack == nil {
		return m.addUp(s)
	}
	previous := m.Memory.Previous(s.First, s.End)
	key := sizeKey{s.First, s.End, s.Ahead, s.Partials, s.Use.Split, s.Offload, packShares(s.Shares), plan.JoinLevels(s.Levels), m.Devices[s.Device].Storage}
	out, ok := m.sizes[key]
	if ok {
		out.fixed += previous
		return out
	}
	one, err := m.Stack(s, 1)
	two, fail := m.Stack(s, 2)
	if err != nil || fail != nil {
		out = stageSize{fixed: math.MaxInt64 / 4}
	} else {
		slot := two.Total() - one.Total()
		out = stageSize{one.Total() - slot, slot, two.Host}
	}
	m.sizes[key] = out
	out.fixed += previous
	return out
}

// packShares returns shares as a comparable value.
func packShares(shares []model.Share) string {
	var b []byte
	for _, s := range shares {
		b = append(b, byte(s.Index), byte(s.Index>>8), byte(s.Count), byte(s.Count>>8))
	}
	return string(b)
}

// addUp returns a stage's size by the costs of its layers.
func (m *Model) addUp(s Stage) stageSize {
	memory := m.On(s.Device)
	saved := memory.Saved(s.First, s.End)
	for i, level := range s.Levels {
		costs := memory.Costs()[s.First+i]
		saved -= costs.SavedBytes - costs.Lean[level].SavedBytes
	}
	out := stageSize{fixed: memory.Fixed(s.First, s.End, s.Offload) + memory.Pass() - m.Memory.NodeBytes(), slot: saved + m.Memory.Slot()}
	levels := m.LevelsOf(s)
	for i := s.Len() - s.Ahead; i < s.Len(); i++ {
		out.fixed += m.Again(s, i, levels[i]).AheadBytes
	}
	if s.Offload {
		out.host = m.Memory.Host(s.First, s.End)
	}
	return out
}

// FitsWhileChanging reports whether every device has room for rows while its stages, one after the
// other, change over from other rows of the same layers.
func (m *Model) FitsWhileChanging(to, from Rows) bool {
	need := make([]int64, len(m.Devices))
	for r, row := range to {
		for s, at := range row {
			need[at.Device] += max(m.Bytes(at), m.Bytes(from[r][s]))
		}
	}
	for d, bytes := range need {
		if bytes > 0 && bytes > m.Room(d) {
			return false
		}
	}
	return true
}

// Caps returns by worker how many activations of any of its stages fit at once with what the stages
// recompute: the fewest of all replicas, at most so many. Worker w has every stage whose number is w
// modulo the workers.
func (m *Model) Caps(rows Rows, workers int, most int64) []int {
	caps := make([]int, workers)
	for _, row := range rows {
		for w := range caps {
			room, largest := m.Room(row[w].Device), int64(1)
			for s := w; s < len(row); s += workers {
				size := m.size(row[s])
				room, largest = room-size.fixed, max(largest, size.slot)
			}
			fit := int(max(0, min(room/largest, most)))
			if caps[w] == 0 || fit < caps[w] {
				caps[w] = max(1, fit)
			}
		}
	}
	return caps
}

// LevelsOf returns by layer what a stage recomputes, by choice or because the run fixes it.
func (m *Model) LevelsOf(s Stage) []model.Recompute {
	if level, fixed := m.Memory.Level(); fixed {
		return level.Uniform(s.Len())
	}
	if s.Levels == nil {
		return model.RecomputeNothing.Uniform(s.Len())
	}
	return s.Levels
}

// Again returns what a stage recomputes of its layer i under a level.
func (m *Model) Again(s Stage, i int, level model.Recompute) Recomputation {
	return m.On(s.Device).Again(&m.Devices[s.Device].Speed, s.First+i, level)
}

// Early returns the levels at which a stage's layers have a use for recomputation ahead of the
// gradient, by number of last layers that begin with such a layer, and the room for all of them.
// late reports whether one of them is not ahead now.
func (m *Model) Early(s Stage) (counts []int, roomBytes int64, late bool) {
	for i, level := range slices.Backward(m.LevelsOf(s)) {
		if !s.dropsEarly(level) {
			continue
		}
		bytes := m.Again(s, i, level).AheadBytes
		roomBytes, late = roomBytes+bytes, late || i < s.Len()-s.Ahead
		if bytes > 0 {
			counts = append(counts, s.Len()-i)
		}
	}
	return counts, roomBytes, late
}
