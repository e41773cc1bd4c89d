package ledger

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"math"
	"slices"

	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
)

// Kinds of records.
const (
	kindHead = 1 + iota
	kindPlan
	kindWork
	kindEntry
	kindTeller
	kindLineage
	kindOuter
)

const (
	// headerBytes: marker (3), kind (1), length (4), CRC-32C of kind, length and payload (4).
	headerBytes = 12
	// entryBytes: key of the work or of the teller (8), step (8), loss (8), norm (8), each little-endian.
	entryBytes = 32
	// maxRecordBytes bounds a payload: a plan with its reasons.
	maxRecordBytes = plan.MaxPlanBytes + 1<<18
	maxStages      = 1 << 12
	maxMicros      = 1 << 20
	maxStep        = 1 << 40
)

var (
	marker     = [3]byte{0x9d, 'L', 'g'}
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	errRecord  = errors.New("ledger: bad record")
)

// Head names the run and the node of the records after it.
type Head struct {
	Run  plan.RunID  `json:"run"`
	Peer plan.PeerID `json:"peer"`
	Name string      `json:"name"`
}

// Lineage says which log the plans after it are of.
type Lineage struct {
	Partings plan.Partings `json:"partings"`
}

// Planned is a plan of the log.
type Planned struct {
	Plan    plan.Plan `json:"plan"`
	Reasons []string  `json:"reasons,omitempty"`
	// By is the member that told of it, empty where the log did.
	By plan.PeerID `json:"by,omitempty"`
}

// Position orders commits. A generation that starts from an older checkpoint makes steps again, under its own number.
type Position struct {
	plan.Generation `json:"generation"`
	plan.Step       `json:"step"`
}

// Compare orders by generation and then by step.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Generation, q.Generation), cmp.Compare(p.Step, q.Step))
}

// StageWork says which micro-batches a worker added to the gradient of a stage's layers.
type StageWork struct {
	plan.StageID
	Layers plan.LayerRange `json:"layers"`
	Micros []plan.Micro    `json:"micros"`
}

// Work holds the micro-batches that one worker added in a step.
type Work struct {
	Generation plan.Generation `json:"generation"`
	Worker     plan.WorkerID   `json:"worker"`
	// By is the node that did it, another one than the worker's where the worker was lost and its steps were replayed.
	By plan.PeerID `json:"by"`
	// Kind is of the device that did it (kernels.Kinded); empty where it does not say. Others may have other last digits.
	Kind string `json:"kind,omitempty"`
	// Replica made the step on its own, with local steps: it counts as far as an Outer says. Nil: all replicas together.
	Replica *plan.Replica `json:"replica,omitempty"`
	// Shares counts the micro-batches of each replica in the step, where there are several.
	Shares []int       `json:"shares,omitempty"`
	Stages []StageWork `json:"stages"`
}

// Replayed reports whether the work was done again in place of a lost worker.
func (w Work) Replayed() bool { return w.By != w.Worker.Peer }

// Commit holds the figures that all workers of a step agreed on. Two commits are the same when their bits are.
type Commit struct {
	Step     plan.Step `json:"step"`
	LossBits uint64    `json:"loss_bits"` // of float64, as the norm's
	Norm     uint64    `json:"norm_bits"`
}

// CommitOf returns the commit of a step with a loss in nats a token and a gradient norm before clipping.
func CommitOf(step plan.Step, loss, norm float64) Commit {
	return Commit{step, math.Float64bits(loss), math.Float64bits(norm)}
}

// Committed is a commit of a generation.
type Committed struct {
	Generation plan.Generation `json:"generation"`
	Commit
}

// Position returns where the commit stands.
func (c Committed) Position() Position { return Position{c.Generation, c.Step} }

// Teller names the member that told of commits of a generation.
type Teller struct {
	Generation plan.Generation `json:"generation"`
	By         plan.PeerID     `json:"by"`
}

// Told is a commit that this node did not take itself: a member of the plan told of it.
type Told struct {
	Committed
	By plan.PeerID
}

// Loss returns the mean loss of the step in nats a token.
func (c Commit) Loss() float64 { return math.Float64frombits(c.LossBits) }

// Outer is an outer step of the log, which says what counts of the local steps of a round.
type Outer struct {
	plan.Merged
	// End is the step at which the round was to end: replicas had blocks of samples for the steps up to it.
	End plan.Step `json:"end"`
	// Before has the samples that were left before the round, in full; nil where the node has not seen them.
	Before *plan.Stream `json:"before,omitempty"`
}

func (o Outer) check() error {
	if o.To <= o.From || o.End < o.To || o.End > maxStep || o.End-o.From > plan.MaxEvery || len(o.Parts) > plan.MaxLocalReplicas || len(o.Disputed) > plan.MaxLocalReplicas || len(o.Contradictions) > plan.MaxContradictions {
		return fmt.Errorf("%w: an outer step of %d replicas from step %d to %d of %d", errRecord, len(o.Parts), o.From, o.To, o.End)
	}
	for _, part := range o.Parts {
		if part.Steps > o.To-o.From {
			return fmt.Errorf("%w: %d steps of a replica in a round from step %d to %d", errRecord, part.Steps, o.From, o.To)
		}
	}
	if o.Before != nil {
		if err := o.Before.Validate(); err != nil {
			return err
		}
	}
	return o.Stream.Validate()
}

// Entry is a committed step of one worker.
type Entry struct {
	Commit
	Work *Work
}

// Steps are records of plans, and of steps that were made by them.
type Steps struct {
	Plans   []Planned
	Entries []Entry
	Told    []Told
	Outer   []Outer
}

// after moves the records of the generations after one out of s.
func (s *Steps) after(g plan.Generation) (moved Steps) {
	move := func(of plan.Generation, add func()) bool {
		if of > g {
			add()
		}
		return of > g
	}
	s.Plans = slices.DeleteFunc(s.Plans, func(p Planned) bool {
		return move(p.Plan.Generation, func() { moved.Plans = append(moved.Plans, p) })
	})
	s.Entries = slices.DeleteFunc(s.Entries, func(e Entry) bool {
		return move(e.Work.Generation, func() { moved.Entries = append(moved.Entries, e) })
	})
	s.Told = slices.DeleteFunc(s.Told, func(t Told) bool {
		return move(t.Generation, func() { moved.Told = append(moved.Told, t) })
	})
	s.Outer = slices.DeleteFunc(s.Outer, func(o Outer) bool {
		return move(o.Generation, func() { moved.Outer = append(moved.Outer, o) })
	})
	return moved
}

// Contents are the records of one ledger.
type Contents struct {
	Head Head // the newest
	Steps
	// Lineage is of the newest log that the node followed. GivenUp are, for each change to another one, the steps since the two parted.
	Lineage plan.Partings
	GivenUp []Steps
	// DamagedBytes counts bytes that are no record, but for a last record that was cut by the end of the machine.
	DamagedBytes int64
	// Foreign counts heads of other runs than the newest head's.
	Foreign int
}

// appendRecord appends a record to b.
func appendRecord(b []byte, kind byte, payload []byte) []byte {
	b = append(b, marker[:]...)
	begin := len(b)
	b = append(b, kind)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	sum := crc32.Update(crc32.Checksum(b[begin:], castagnoli), castagnoli, payload)
	b = binary.LittleEndian.AppendUint32(b, sum)
	return append(b, payload...)
}

func appendJSON(b []byte, kind byte, v any) []byte { return appendRecord(b, kind, marshal(v)) }

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("ledger: record does not marshal: " + err.Error()) // only plain values inside
	}
	return b
}

// appendEntry appends a commit of the work, or of the teller, with a key.
func appendEntry(b []byte, key uint64, c Commit) []byte {
	var p []byte
	for _, x := range []uint64{key, uint64(c.Step), c.LossBits, c.Norm} {
		p = binary.LittleEndian.AppendUint64(p, x)
	}
	return appendRecord(b, kindEntry, p)
}

// keyOf returns the number by which entries name a work: a hash of the record's payload.
func keyOf(payload []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(payload) // never fails
	return h.Sum64()
}

// next returns the record at the beginning of b, and the bytes that it takes; 0 where there is none.
func next(b []byte) (kind byte, payload []byte, size int) {
	if len(b) < headerBytes || [3]byte(b) != marker {
		return 0, nil, 0
	}
	n := binary.LittleEndian.Uint32(b[4:])
	if n > maxRecordBytes || len(b)-headerBytes < int(n) {
		return 0, nil, 0
	}
	payload = b[headerBytes : headerBytes+int(n)]
	if crc32.Update(crc32.Checksum(b[3:8], castagnoli), castagnoli, payload) != binary.LittleEndian.Uint32(b[8:]) {
		return 0, nil, 0
	}
	return b[3], payload, headerBytes + int(n)
}

// sources holds what entries name by their keys: work of a worker here, or a member that told.
type sources struct {
	works   map[uint64]*Work
	tellers map[uint64]Teller
}

// Decode reads the bytes of a ledger. Whatever is no record is counted as damage, and no error.
func Decode(b []byte) (c Contents) {
	known := sources{map[uint64]*Work{}, map[uint64]Teller{}}
	for len(b) > 0 {
		kind, payload, size := next(b)
		if size == 0 {
			at := 1 + indexMarker(b[1:])
			if at < len(b) || !cut(b) {
				c.DamagedBytes += int64(at)
			}
			b = b[at:]
			continue
		}
		if err := c.add(kind, payload, known); err != nil {
			c.DamagedBytes += int64(size)
		}
		b = b[size:]
	}
	return c
}

// indexMarker returns where the next marker begins, the length of b where there is none.
func indexMarker(b []byte) int {
	for i := range b {
		if len(b)-i >= len(marker) && [3]byte(b[i:]) == marker {
			return i
		}
	}
	return len(b)
}

// cut reports whether b is the beginning of a record that lacks its end.
func cut(b []byte) bool {
	n := min(len(b), len(marker))
	if !slices.Equal(b[:n], marker[:n]) {
		return false
	}
	return len(b) < headerBytes || len(b)-headerBytes < int(min(binary.LittleEndian.Uint32(b[4:]), maxRecordBytes))
}

func (c *Contents) add(kind byte, payload []byte, known sources) error {
	switch kind {
	case kindHead:
		var h Head
		if err := strict.Decode(payload, &h); err != nil {
			return err
		}
		if c.Head.Run != "" && c.Head.Run != h.Run {
			c.Foreign++
		}
		c.Head = h
	case kindPlan:
		var p Planned
		if err := strict.Decode(payload, &p); err != nil {
			return err
		}
		c.Plans = append(c.Plans, p)
	case kindWork:
		w := new(Work)
		if err := strict.Decode(payload, w); err != nil {
			return err
		}
		if err := w.check(); err != nil {
			return err
		}
		known.works[keyOf(payload)] = w
	case kindLineage:
		var l Lineage
		if err := strict.Decode(payload, &l); err != nil {
			return err
		}
		if len(l.Partings) > plan.MaxPartings {
			return fmt.Errorf("%w: %d recoveries, at most %d", errRecord, len(l.Partings), plan.MaxPartings)
		}
		if shared, parted := c.Lineage.Since(l.Partings); parted {
			if s := c.after(shared); len(s.Plans)+len(s.Entries)+len(s.Told)+len(s.Outer) > 0 {
				c.GivenUp = append(c.GivenUp, s)
			}
		}
		c.Lineage = l.Partings
	case kindOuter:
		var o Outer
		if err := strict.Decode(payload, &o); err != nil {
			return err
		}
		if err := o.check(); err != nil {
			return err
		}
		c.Outer = append(c.Outer, o)
	case kindTeller:
		var t Teller
		if err := strict.Decode(payload, &t); err != nil {
			return err
		}
		known.tellers[keyOf(payload)] = t
	case kindEntry:
		if len(payload) != entryBytes {
			return fmt.Errorf("%w: an entry of %d bytes, want %d", errRecord, len(payload), entryBytes)
		}
		number := func(at int) uint64 { return binary.LittleEndian.Uint64(payload[at:]) }
		commit := Commit{plan.Step(number(8)), number(16), number(24)}
		if w := known.works[number(0)]; w != nil {
			c.Entries = append(c.Entries, Entry{commit, w})
		} else if t, ok := known.tellers[number(0)]; ok {
			c.Told = append(c.Told, Told{Committed{t.Generation, commit}, t.By})
		} else {
			return fmt.Errorf("%w: an entry of work that is not there", errRecord)
		}
	default:
		return fmt.Errorf("%w: of kind %d", errRecord, kind)
	}
	return nil
}

func (w *Work) check() error {
	if len(w.Stages) > maxStages || len(w.Shares) > maxMicros {
		return fmt.Errorf("%w: work on %d stages of %d shares, at most %d and %d", errRecord, len(w.Stages), len(w.Shares), maxStages, maxMicros)
	}
	for _, s := range w.Stages {
		if len(s.Micros) > maxMicros || s.Layers.First < 0 || s.Layers.End < s.Layers.First {
			return fmt.Errorf("%w: work on layers %v with %d micro-batches", errRecord, s.Layers, len(s.Micros))
		}
	}
	return nil
}
