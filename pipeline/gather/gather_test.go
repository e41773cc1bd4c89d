package gather

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pnode/kernels/cpu"
	"pnode/pipeline/collective"
	"pnode/pipeline/compress"
	"pnode/pipeline/gather/seals"
	"pnode/pipeline/meeting"
	"pnode/pipeline/model"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// testPlan has two replicas on two peers each, with a tied embedding.
func testPlan() (plan.RunSpec, plan.Plan) {
	run := plan.RunSpec{Model: model.Config{Vocab: 70, Context: 16, Blocks: 2, Heads: 2, Channels: 20}, Train: plan.TrainSpec{Steps: 10}}
	p := plan.Plan{Generation: 3, Local: &plan.Local{Rounds: plan.Rounds{Every: 5, Fragments: 1}, Codec: "int8"}}
	for r := range 2 {
		pipe := plan.Pipeline{FirstMicro: plan.Micro(r), Micros: 1}
		for s, layers := range []plan.LayerRange{{First: 0, End: 2 + r}, {First: 2 + r, End: 4}} {
			pipe.Stages = append(pipe.Stages, plan.Placement{Peer: plan.PeerID(fmt.Sprintf("peer-%d-%d", r, s)), Device: "cpu", Layers: layers})
		}
		p.Replicas = append(p.Replicas, pipe)
	}
	return run, p
}

func TestIndices(t *testing.T) {
	for _, c := range [][3]int{{0, 0, 0}, {1025, 63, 1023}, {7, 1, 2}} {
		at := index(c[0], plan.Replica(c[1]), c[2])
		if layer, receiver, piece := collective.LayerOf(wire.Tag{Index: at}); layer != c[0] || receiver != c[1] || piece != c[2] {
			t.Errorf("%v is read as layer %d, replica %d, piece %d", c, layer, receiver, piece)
		}
	}
}

func TestWhatNobodyExpects(t *testing.T) {
	run, p := testPlan()
	layer1 := meeting.MessageBytes(run.Model, compress.Int8, 1)
	for name, c := range map[string]struct {
		from, to plan.PeerID
		tag      wire.Tag
		want     int
	}{
		"a layer":                 {"peer-0-0", "peer-1-0", wire.Tag{Kind: wire.OuterGrad, Index: index(1, 1, 0)}, layer1},
		"its seal":                {"peer-0-0", "peer-1-0", wire.Tag{Kind: wire.OuterGrad, Index: index(1, 1, 1)}, 64},
		"what follows it":         {"peer-0-0", "peer-1-0", wire.Tag{Kind: wire.OuterGrad, Index: index(1, 1, 2)}, Nothing},
		"the seal of a mean":      {"peer-0-0", "peer-0-1", wire.Tag{Kind: wire.OuterGrad, Index: index(3, 0, 1)}, Nothing},
		"to another stage":        {"peer-0-0", "peer-1-1", wire.Tag{Kind: wire.OuterGrad, Index: index(1, 1, 0)}, Nothing},
		"of another stage":        {"peer-0-1", "peer-1-0", wire.Tag{Kind: wire.OuterGrad, Stage: 1, Index: index(1, 1, 0)}, Nothing},
		"in another's name":       {"peer-0-1", "peer-1-0", wire.Tag{Kind: wire.OuterGrad, Index: index(1, 1, 0)}, Nothing},
		"to no replica":           {"peer-0-0", "peer-1-0", wire.Tag{Kind: wire.OuterGrad, Index: index(1, 2, 0)}, Nothing},
		"no such layer":           {"peer-0-0", "peer-1-0", wire.Tag{Kind: wire.OuterGrad, Index: index(4, 1, 0)}, Nothing},
		"of no replica":           {"peer-0-0", "peer-1-0", wire.Tag{Kind: wire.OuterGrad, Replica: 2, Index: index(1, 1, 0)}, Nothing},
		"of no stage":             {"peer-0-0", "peer-1-0", wire.Tag{Kind: wire.OuterGrad, Stage: 2, Index: index(1, 1, 0)}, Nothing},
		"a mean to the head":      {"peer-0-0", "peer-0-1", wire.Tag{Kind: wire.OuterGrad, Index: index(3, 0, 0)}, 4 * run.Model.TiedGradLen()},
		"a mean from the head":    {"peer-0-1", "peer-0-0", wire.Tag{Kind: wire.OuterGrad, Stage: 1, Index: index(0, 0, 0)}, Nothing},
		"a mean of no embedding":  {"peer-0-0", "peer-0-1", wire.Tag{Kind: wire.OuterGrad, Index: index(2, 0, 0)}, Nothing},
		"a report":                {"peer-0-1", "peer-1-1", wire.Tag{Kind: wire.KindOuterReport, Stage: 1, Index: 1}, 57 + 64},
		"a report to itself":      {"peer-0-1", "peer-0-1", wire.Tag{Kind: wire.KindOuterReport, Stage: 1, Index: 0}, Nothing},
		"a report to others":      {"peer-0-1", "peer-1-0", wire.Tag{Kind: wire.KindOuterReport, Stage: 1, Index: 1}, Nothing},
		"a report of others":      {"peer-0-0", "peer-1-1", wire.Tag{Kind: wire.KindOuterReport, Index: 1}, Nothing},
		"hashes":                  {"peer-1-0", "peer-1-1", wire.Tag{Kind: wire.OuterHave, Replica: 1, Index: 0}, 3 * 96},
		"hashes to others":        {"peer-1-0", "peer-0-1", wire.Tag{Kind: wire.OuterHave, Replica: 1, Index: 0}, Nothing},
		"hashes of no replica":    {"peer-1-0", "peer-1-1", wire.Tag{Kind: wire.OuterHave, Replica: 1, Index: 2}, Nothing},
		"what is not of a round":  {"peer-1-0", "peer-1-1", wire.Tag{Kind: wire.Activation, Replica: 1, Stage: 0}, Nothing},
		"hashes of many replicas": {"peer-1-0", "peer-1-1", wire.Tag{Kind: wire.OuterHave, Replica: 1, Index: 1 << 30}, Nothing},
	} {
		if got := Most(run, p, c.from, c.to, c.tag); got != c.want {
			t.Errorf("%s: %d bytes, want %d", name, got, c.want)
		}
	}
}

// exchange is one peer's end, which may change what it sends.
type exchange struct {
	collective.MemoryEnd
	change func(*wire.Frame) error
}

func (e exchange) Send(ctx context.Context, to plan.PeerID, f wire.Frame) error {
	if e.change != nil {
		if err := e.change(&f); err != nil {
			return err
		}
	}
	return e.MemoryEnd.Send(ctx, to, f)
}

// keys sign in the name of a peer: whoever knows the name can.
type keys plan.PeerID

func (k keys) Sign(message []byte) ([]byte, error) {
	signature := sha512.Sum512(append([]byte(k), message...))
	return signature[:], nil
}

func (keys) Verify(by plan.PeerID, message, signature []byte) error {
	if want, _ := keys(by).Sign(message); !bytes.Equal(signature, want) {
		return errors.New("another signature")
	}
	return nil
}

// all is a log that merges what two replicas have, or some of them, once each of these has it.
type all struct {
	some []bool
	made chan plan.Merged
	mu   sync.Mutex // guards the rest
	has  [2]bool
	said [2]plan.Gathered
	// shown is what each has shown of what it has said.
	shown [2][]seals.Exhibit
	// found is the first fault that was told, which is waited for where accused.
	found   *plan.Fault
	accused bool
	done    plan.Merged
}

func (*all) Closed() bool { return false }

func (a *all) Found(_ plan.Step, f plan.Fault) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.found == nil {
		a.found = &f
		a.merge()
	}
}

func (a *all) Have(g plan.Gathered, shown []seals.Exhibit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	awaited := func(r int) bool { return a.some == nil || a.some[r] }
	for r, part := range g.Parts {
		if part.Steps == 0 && awaited(r) {
			return
		}
	}
	if a.done.To != 0 {
		return
	}
	a.has[g.Replica], a.said[g.Replica], a.shown[g.Replica] = true, g, shown
	a.merge()
}

// merge makes the outer step once all that are awaited have what is. Callers hold mu.
func (a *all) merge() {
	for r, has := range a.has {
		if !has && (a.some == nil || a.some[r]) || a.accused && a.found == nil {
			return
		}
	}
	g := a.said[0]
	a.done = plan.Merged{Generation: g.Generation, From: g.From, To: g.From + 5, Parts: g.Parts}
	close(a.made)
}

func (a *all) Merged(ctx context.Context, _ plan.Step) (plan.Merged, error) {
	select {
	case <-a.made:
		return a.done, nil
	case <-ctx.Done():
		return plan.Merged{}, context.Cause(ctx)
	}
}

// meet has the workers of some replicas make a round whose messages go in pieces of so many bytes, and returns the parameters that each
// wrote and the errors, by peer.
func meet(t *testing.T, size int, log *all, change func(*wire.Frame) error, replicas ...plan.Replica) (params map[plan.PeerID]map[int][]float32, errs map[plan.PeerID]error) {
	t.Helper()
	run, p := testPlan()
	net := collective.NewMemory()
	params, errs = map[plan.PeerID]map[int][]float32{}, map[plan.PeerID]error{}
	ctx, cancel := context.WithCancel(t.Context()) // with the first error
	defer cancel()
	var work sync.WaitGroup
	var mu sync.Mutex // guards the results
	for _, r := range replicas {
		for _, place := range p.Replicas[r].Stages {
			processor, err := cpu.New(cpu.Options{Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer processor.Close()
			e := exchange{net.End(place.Peer), nil}
			if r == 1 {
				e.change = change
			}
			g, err := New(Config{Run: run, Plan: p, Replica: r, Worker: place.Worker(), Processor: processor, Exchange: e, Rounds: log, Keys: keys(place.Peer)})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			g.size = size
			fill := func(seed float32) func(int, []float32) error {
				return func(layer int, params []float32) error {
					for i := range params {
						params[i] = seed + float32(layer) + float32(i%7)
					}
					return nil
				}
			}
			work.Go(func() {
				own := map[int][]float32{}
				err := g.Load(func(layer int, s meeting.State) error {
					clear(s.Momentum)
					clear(s.Missed)
					return fill(0)(layer, s.Reference)
				})
				g.Begin(ctx, 0)
				if err == nil {
					err = g.Offer(wire.OuterReport{Losses: make([]float64, 5)}, false, fill(0.5*float32(r+1)))
				}
				var o Outcome
				if err == nil {
					o, err = g.Merge(ctx, false, nil, func(layer int, params []float32) error {
						own[layer] = append([]float32{}, params...)
						return nil
					})
				}
				if err == nil && change == nil && len(replicas) == 2 {
					checkOutcome(t, run, place.Layers, o)
				}
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					cancel()
				}
				params[place.Peer], errs[place.Peer] = own, err
			})
		}
	}
	work.Wait()
	return params, errs
}

// checkOutcome checks what a worker says of an outer step in which two replicas count.
func checkOutcome(t *testing.T, run plan.RunSpec, layers plan.LayerRange, o Outcome) {
	bytes := int64(0)
	for l := layers.First; l < layers.End; l++ {
		bytes += int64(meeting.MessageBytes(run.Model, compress.Int8, l))
	}
	if o.Took.SentBytes != bytes || o.Took.TakenBytes < bytes || o.Took.Round < o.Took.Waited || o.Took.Waited <= 0 || o.Took.Hidden < 0 {
		t.Errorf("layers %v, messages of %d bytes: %+v", layers, bytes, o.Took)
	}
	if s := o.Spread; s.Mean <= 0 || len(s.Squares) != 2 || s.Squares[1] <= s.Squares[0] || s.Dots[0] <= 0 {
		t.Errorf("layers %v: spread %+v", layers, s)
	}
}

// TestMeter: messages that came while inner steps were made are hidden, as long as they came.
func TestMeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := meter{begun: time.Now()}
		for range 3 {
			time.Sleep(time.Second)
			m.took(10)
		}
		time.Sleep(2 * time.Second)
		merging := time.Now()
		m.sent.Add(7)
		time.Sleep(time.Second)
		m.stands(merging)
		if got := m.end(merging); got != (Took{7, 30, 6 * time.Second, time.Second, 2 * time.Second}) {
			t.Errorf("%+v", got)
		}
		late := meter{begun: time.Now()}
		time.Sleep(time.Second)
		late.took(10)
		late.stands(late.begun)
		if got := late.end(late.begun); got != (Took{0, 10, time.Second, time.Second, 0}) {
			t.Errorf("%+v", got)
		}
	})
}

// TestPieces: however small the pieces are in which messages travel, all have the same parameters.
func TestPieces(t *testing.T) {
	want, errs := meet(t, pieceBytes, &all{made: make(chan plan.Merged)}, nil, 0, 1)
	for peer, err := range errs {
		if err != nil {
			t.Fatal(peer, err)
		}
	}
	for _, size := range []int{1000, 333} {
		got, errs := meet(t, size, &all{made: make(chan plan.Merged)}, nil, 0, 1)
		for peer, err := range errs {
			if err != nil || fmt.Sprint(got[peer]) != fmt.Sprint(want[peer]) || len(got[peer]) == 0 {
				t.Errorf("pieces of %d bytes: %s has other parameters: %v", size, peer, err)
			}
		}
	}
	if fmt.Sprint(want["peer-0-0"][0]) != fmt.Sprint(want["peer-1-0"][0]) || want["peer-0-0"][0][0] == 0 {
		t.Error("replicas have other parameters")
	}
}

// TestOthersAreLost: a replica that is not there, or that nothing gets to, is no error where the log does not count it.
func TestOthersAreLost(t *testing.T) {
	_, errs := meet(t, pieceBytes, &all{some: []bool{true, false}, made: make(chan plan.Merged)}, nil, 0)
	for peer, err := range errs {
		if err != nil {
			t.Errorf("%s: %v", peer, err)
		}
	}
	gone := func(f *wire.Frame) error {
		if f.Tag.Kind == wire.OuterHave {
			return nil
		}
		return errors.New("gone")
	}
	params, errs := meet(t, pieceBytes, &all{some: []bool{true, false}, made: make(chan plan.Merged)}, gone, 0, 1)
	for peer, err := range errs {
		if err != nil {
			t.Errorf("%s: %v", peer, err)
		}
	}
	if len(params["peer-0-0"]) != 2 || len(params["peer-1-0"]) != 0 {
		t.Errorf("replica 0 has written %d layers, replica 1, which is not counted, %d", len(params["peer-0-0"]), len(params["peer-1-0"]))
	}
}

// TestFaults: what no honest replica sends is its sender's. Its messages are lacking, and who finds that out goes on without them.
func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		kind    wire.Kind
		change  func([]byte) []byte
		accused plan.FaultKind
	}{
		"a short message": {wire.OuterGrad, func(b []byte) []byte { return b[1:] }, plan.BadFrame},
		"another's seal":  {wire.OuterGrad, func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, plan.BadTensor},
		"no numbers":      {wire.OuterGrad, func(b []byte) []byte { return bytes.Repeat([]byte{0xff}, len(b)) }, plan.BadTensor},
		"no steps":        {wire.KindOuterReport, func(b []byte) []byte { return b[:1] }, plan.BadReport},
		"too many steps":  {wire.KindOuterReport, func(b []byte) []byte { return append(b, make([]byte, 8)...) }, plan.BadReport},
		"no losses":       {wire.KindOuterReport, func(b []byte) []byte { return append(b[:1], bytes.Repeat([]byte{0xff}, len(b)-1)...) }, plan.BadReport},
		"held-out text":   {wire.KindOuterReport, func(b []byte) []byte { b[0] = 4; return append(b, make([]byte, 8)...) }, plan.BadReport},
		"half of a loss":  {wire.KindOuterReport, func(b []byte) []byte { return b[4:] }, plan.BadReport},
	} {
		log := &all{some: []bool{true, false}, accused: true, made: make(chan plan.Merged)}
		change := func(f *wire.Frame) error {
			if f.Tag.Kind == c.kind && (c.kind != wire.OuterGrad || f.Tag.Index == index(3, 0, 0)) {
				f.Payload = c.change(bytes.Clone(f.Payload))
			}
			return nil
		}
		params, errs := meet(t, pieceBytes, log, change, 0, 1)
		for peer, err := range errs {
			if err != nil {
				t.Errorf("%s: %s: %v", name, peer, err)
			}
		}
		if f := log.found; f == nil || f.Kind != c.accused || f.Accused != "peer-1-1" || len(params["peer-0-1"]) == 0 || log.done.Parts[1].Steps != 0 {
			t.Errorf("%s: %+v, of %+v", name, f, log.done.Parts)
		}
	}
}

// resealed changes a message of a round and seals what it is then, as the member could that sends it: the seal of an outer gradient comes behind it.
type resealed struct {
	peer   plan.PeerID
	kind   wire.Kind
	change func(b []byte)
	seal   map[int32]wire.Seal
}

func (r *resealed) frame(f *wire.Frame) error {
	run, p := testPlan()
	m, losses := seals.Message{Replica: 1, Layer: seals.Losses}, len(f.Payload)-wire.SealBytes
	switch of := seals.Of(run, p, "", 0); {
	case f.Tag.Kind != r.kind:
	case r.kind == wire.KindOuterReport:
		f.Payload = bytes.Clone(f.Payload)
		r.change(f.Payload[:losses])
		s, err := of.Seal(keys(r.peer), m, f.Payload[:losses])
		copy(f.Payload[losses:], s.Seal[:])
		return err
	case f.Tag.Index == index(2, 0, 0):
		f.Payload = bytes.Clone(f.Payload)
		r.change(f.Payload)
		m.Layer = 2
		s, err := of.Seal(keys(r.peer), m, f.Payload)
		r.seal = map[int32]wire.Seal{index(2, 0, 1): s.Seal}
		return err
	default:
		if s, ok := r.seal[f.Tag.Index]; ok {
			f.Payload = s[:]
		}
	}
	return nil
}

// TestWhoTellsOthersOtherThings is found out by what replicas say to the log: of each, all have the same where it is honest. What they show names the member that
// has sealed two things, and no other one of its replica.
func TestWhoTellsOthersOtherThings(t *testing.T) {
	run, p := testPlan()
	for name, c := range map[string]struct {
		lie  *resealed
		want plan.PeerID
	}{
		"honest":          {},
		"another loss":    {&resealed{peer: "peer-1-1", kind: wire.KindOuterReport, change: func(b []byte) { b[3]++ }}, "peer-1-1"},
		"another message": {&resealed{peer: "peer-1-0", kind: wire.OuterGrad, change: func(b []byte) { b[len(b)-1] ^= 1 }}, "peer-1-0"},
	} {
		log, change := &all{made: make(chan plan.Merged)}, func(*wire.Frame) error { return nil }
		if c.lie != nil {
			change = c.lie.frame
		}
		_, errs := meet(t, pieceBytes, log, change, 0, 1)
		for peer, err := range errs {
			if err != nil {
				t.Errorf("%s: %s: %v", name, peer, err)
			}
		}
		r := seals.Of(run, p, "", 0)
		for q := range 2 {
			if same := log.said[0].Parts[q] == log.said[1].Parts[q]; same == (c.lie != nil && q == 1) {
				t.Errorf("%s: of replica %d they have %v and %v", name, q, log.said[0].Parts[q], log.said[1].Parts[q])
			}
			for by := range 2 {
				if err := r.Shows(keys(""), log.shown[by][q], plan.Replica(q), log.said[by].Parts[q]); err != nil {
					t.Errorf("%s: replica %d of replica %d: %v", name, by, q, err)
				}
			}
		}
		if got := r.Twofold(log.shown[0][1], log.shown[1][1], 1); fmt.Sprint(got) != fmt.Sprint(slices.DeleteFunc([]plan.PeerID{c.want}, func(p plan.PeerID) bool { return p == "" })) {
			t.Errorf("%s: %v have sealed two things", name, got)
		}
	}
}

// TestSealsOfOthers: who passes messages on to the coordinator of its replica that their sender has not sealed is at fault itself.
func TestSealsOfOthers(t *testing.T) {
	for name, change := range map[string]func(b []byte){
		"another hash": func(b []byte) { b[0]++ },
		"another seal": func(b []byte) { b[sha256.Size]++ },
	} {
		log := &all{made: make(chan plan.Merged)}
		_, errs := meet(t, pieceBytes, log, func(f *wire.Frame) error {
			if f.Tag.Kind == wire.OuterHave {
				f.Payload = bytes.Clone(f.Payload)
				change(f.Payload)
			}
			return nil
		}, 0, 1)
		if fault := (*plan.Fault)(nil); !errors.As(errs["peer-1-1"], &fault) || fault.Kind != plan.BadReport || fault.Accused != "peer-1-0" {
			t.Errorf("%s: %v", name, errs)
		}
	}
}
