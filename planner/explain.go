package planner

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/elastic"
	"pnode/planner/layout"
	"pnode/planner/partition"
	"pnode/planner/plan"
	"pnode/planner/sharding"
)

// Larger plans and rosters are summed up.
const (
	maxStageLines   = 24
	maxLeftOutLines = 16
)

// explain returns the reasons for the chosen candidate.
func explain(s *search, k *candidate, others []*candidate) plan.Reasons {
	e := explainer{s, k}
	out := plan.Reasons{{
		Kind: plan.ReasonStepTime, Nanos: int64(k.step()),
		Text: fmt.Sprintf("predicted step %s: %v on %d of %s", plan.Time(k.step()), k.shape, k.shape.devices(), plan.Count(len(s.problem.devices), "measured device")),
	}}
	out = append(out, e.groups()...)
	out = append(out, plan.Reason{Kind: plan.ReasonBound, Text: boundText(s.problem, k)})
	out = append(append(out, e.precision()...), e.sharing()...)
	if k.shape.devices() <= maxStageLines {
		out = append(append(out, e.stages()...), e.codecs()...)
	}
	for _, o := range others {
		if o.shape != k.shape || slices.ContainsFunc(o.devices(), func(d int) bool { return !k.uses(d) }) {
			out = append(out, plan.Reason{Kind: plan.ReasonNextBest, Nanos: int64(o.step()), Text: e.nextBest(o)})
			break
		}
	}
	if s.in.Previous != nil {
		out = append(out, plan.Reason{Kind: plan.ReasonMoved, Text: fmt.Sprintf("%s of parameters change their node", plan.Size(k.movedBytes))})
	}
	out = append(append(out, e.fewGroups()...), e.leftOut(others)...)
	out = append(append(out, e.claims()...), e.relayed()...)
	if n, worst := s.unmeasured(k.layout.Rows); n > 0 {
		like := ""
		if worst != DefaultLink {
			like = ", by the other links of their nodes, at worst"
		}
		out = append(out, plan.Reason{Kind: plan.ReasonAssumed, Text: fmt.Sprintf("%s between neighbours not measured: assumed%s %s/s and a round trip of %s",
			plan.Count(n, "link"), like, plan.Size(worst.BytesPerS), plan.Time(schedule.Nanos(worst.RTTNanos)))})
	}
	return out
}

// explainer writes the reasons for one candidate of a search.
type explainer struct {
	*search
	k *candidate
}

// nextBest compares with another candidate.
func (e explainer) nextBest(o *candidate) string {
	what, k := "next best", e.k
	if o.shape == k.shape {
		what += " with other nodes"
	}
	diff := slower(k.step(), o.step())
	if o.step() < k.step() {
		return fmt.Sprintf("%s: %v, step %s, %s faster, but it moves %s of parameters instead of %s",
			what, o.shape, plan.Time(o.step()), plan.Permille(-diff), plan.Size(o.movedBytes), plan.Size(k.movedBytes))
	}
	return fmt.Sprintf("%s: %v, step %s, %s slower", what, o.shape, plan.Time(o.step()), plan.Permille(diff))
}

// groups says what groups gain; empty where a candidate has none that the planner chose.
func (e explainer) groups() []plan.Reason {
	k, plain := e.k, e.k.instead
	if plain == nil {
		return nil
	}
	chunks, best := k.order.spec.Chunks(), ""
	if k.proven {
		best = " (no others end sooner)"
	}
	if k.order.spec.Kind != elastic.GroupsKind {
		return []plan.Reason{{Kind: plan.ReasonOrders, Nanos: int64(plain.step()), Text: fmt.Sprintf("%s fills waits%s: a step in 1f1b would be %s, %s longer, %s",
			k.order.spec.Short(), best, plan.Time(plain.step()), plan.Permille(slower(k.step(), plain.step())), boundText(e.problem, plain))}}
	}
	return []plan.Reason{{Kind: plan.ReasonGroups, Nanos: int64(plain.step()), Text: fmt.Sprintf("%d chunks of layers a device, in groups%s: filling and draining take less of a step, which in 1f1b with one chunk would be %s, %s longer, %s; %d times the messages keep the busiest link busy for %s",
		chunks, best, plan.Time(plain.step()), plan.Permille(slower(k.step(), plain.step())), boundText(e.problem, plain), chunks, plan.Time(k.layout.BusiestLink(k.model)))}}
}

// fewGroups says that the run's sums allow no more replicas; empty where devices or micro-batches are too few
// in any case.
func (e explainer) fewGroups() []plan.Reason {
	k, sums := e.k, e.in.Run.Train.Sums()
	if more := k.copies() + k.order.copies; more <= sums.Groups || more > sums.Micros || e.in.Run.Train.Replicas > 0 || k.shape.replicas >= len(e.problem.devices) {
		return nil
	}
	return []plan.Reason{{Kind: plan.ReasonSums, Text: fmt.Sprintf("no more replicas: gradients are added in %s of micro-batches, and each takes one or more; new runs set another number with --sum-groups",
		plan.Count(sums.Groups, "group"))}}
}

// boundText says what a step spends its time on.
func boundText(of *problem, k *candidate) string {
	exchange, update := k.job.Reduce+k.job.Tied+k.job.Gather, k.job.Commit+k.job.Update
	if k.programmed() {
		if rest := k.job.Tail(); rest > k.layout.End {
			return fmt.Sprintf("bound by what follows the pipelines: reductions, commit and update take %s, the passes %s", plan.Time(rest), plan.Time(k.layout.End))
		}
		busiest, computes := k.layout.Busiest(k.model)
		return fmt.Sprintf("bound by %s: %s computes %s of the %s that the passes take, the rest is filling, draining and messages",
			k.order.spec.Short(), of.name(busiest), plan.Time(computes), plan.Time(k.layout.End))
	}
	r := k.result.Slowest
	p, pipes, micros := k.pipes[r], k.result.Pipelines[r], schedule.Nanos(k.shares[r])
	floor := p.Costs.Floor()
	byMemory := p.Bound.Memory() && p.Period > floor+floor/50 && p.Costs.RoundTrip() < micros*p.Period
	switch {
	case exchange > pipes:
		return fmt.Sprintf("bound by the exchange between replicas: %s, pipelines %s", plan.Time(exchange), plan.Time(pipes))
	case update > pipes:
		return fmt.Sprintf("bound by commit and update: %s, pipelines %s", plan.Time(update), plan.Time(pipes))
	case !byMemory && p.Costs.RoundTrip() > (micros-1)*floor && len(p.devices) > 1:
		return fmt.Sprintf("bound by filling and draining: %s for %s of %s each in replica %d; more micro-batches a step would help",
			plan.Time(p.Costs.RoundTrip()), plan.Count(int(micros), "micro-batch"), plan.Time(floor), r)
	}
	return "bound by " + periodText(of, k, r)
}

// periodText says what sets the period of a replica's pipe.
func periodText(of *problem, k *candidate, replica int) string {
	p := k.pipes[replica]
	return p.Bound.Text(func(s int) string {
		return fmt.Sprintf("replica %d stage %d on %s", replica, s, of.name(p.devices[s]))
	})
}

// stages says what each stage does and takes: a line for each stage in 1F1B, for each device under
// schedules that are programs.
func (e explainer) stages() []plan.Reason {
	k, byDevice := e.k, map[int][]string{}
	var out []plan.Reason
	line := func(text string) { out = append(out, plan.Reason{Kind: plan.ReasonStageTime, Text: text}) }
	for r, row := range k.layout.Rows {
		for s, at := range row {
			took, again := k.model.StageTime(at), ""
			if levels := plan.JoinLevels(at.Levels); levels != "" {
				again = fmt.Sprintf(" recomputes %s to fit", levels)
			}
			if at.Ahead > 0 {
				again += fmt.Sprintf(", %s of recomputation ahead of the gradient in waits (the last %s)", plan.Time(took.Recompute), plan.Count(at.Ahead, "layer"))
			}
			if k.programmed() {
				byDevice[at.Device] = append(byDevice[at.Device], fmt.Sprintf("replica %d stage %d layers [%d,%d) %d in flight%s", r, s, at.First, at.End, at.Use.Slots, again))
				continue
			}
			if at.Levels != nil && again != "" {
				again = "," + again
			}
			room, memory := k.pipes[r].Rooms[s], k.model.On(at.Device)
			need := k.model.Fixed(at.Device, at.First, at.End) + room.PassBytes + int64(at.Use.Slots)*room.SlotBytes
			line(fmt.Sprintf("replica %d stage %d: %s, layers [%d,%d), %s a micro-batch, %d of them, %d in flight, %s of %s%s",
				r, s, e.name(at.Device), at.First, at.End, plan.Time(took.Micro()+took.Recompute), k.shares[r], at.Use.Slots,
				plan.Size(need+memory.Pass()), plan.Size(k.model.Devices[at.Device].FreeBytes+memory.Pass()), again+e.choices(at.Device)))
		}
	}
	for _, d := range k.devices() {
		if byDevice[d] == nil {
			continue
		}
		micro := schedule.Nanos(0)
		for _, at := range k.layout.On(d) {
			took := k.model.StageTime(*k.layout.Stage(at))
			micro += took.Micro() + took.Recompute
		}
		line(fmt.Sprintf("%s: %s; %s for a micro-batch of each, %s of %s%s",
			e.name(d), strings.Join(byDevice[d], ", "), plan.Time(micro), plan.Size(k.layout.Need[d]), plan.Size(k.model.Room(d)), e.choices(d)))
	}
	return out
}

// choices says what the stages of a device keep in host memory, and why they store as they do where
// the run leaves that to the planner.
func (e explainer) choices(device int) (text string) {
	m, d := e.k.model, e.problem.devices[device]
	if m.Offloads(device) {
		bytes, took := int64(0), schedule.Nanos(0)
		for _, at := range e.k.layout.On(device) {
			s := e.k.layout.Stage(at)
			bytes, took = bytes+m.Memory.Moments(s.First, s.End), took+m.Crossing(device, s.First, s.End)
		}
		text = fmt.Sprintf(", keeps %s of optimizer state in host memory to fit, %s a step for copies", plan.Size(bytes), plan.Time(took))
	}
	storage := m.Devices[device].Storage
	switch {
	case !e.in.Run.Train.Storage.Auto:
		return text
	case max(d.profile.MatMulBF16FLOPS, d.profile.MatMulF16FLOPS) <= 0:
		return text + fmt.Sprintf(", in %v: halves were not measured", storage)
	}
	why := ":"
	switch {
	case e.in.Previous != nil:
		why = " since the run began:"
	case storage != e.storages()[0]:
		why = " for its memory, although"
	}
	var rates []string
	for _, s := range []model.Storage{model.StorageF16, model.StorageBF16, model.StorageF32} {
		if flops := d.profile.Products(s); flops > 0 {
			rates = append(rates, fmt.Sprintf("%v at %s", s, plan.Speed(flops)))
		}
	}
	return text + fmt.Sprintf(", in %v%s it multiplies %s", storage, why, strings.Join(rates, ", "))
}

// codecs says why stages send fewer bits to each other.
func (e explainer) codecs() []plan.Reason {
	for r, codecs := range e.k.layout.Codecs {
		for b, codec := range codecs {
			exposed := e.k.layout.Exposed[layout.Boundary{Replica: r, Stage: b}]
			why := "asked for"
			switch {
			case codec == plan.CodecF32:
				return nil
			case e.settled != "":
				why = "chosen when the run first had a boundary"
			case e.in.Run.Train.Codec.Auto() && exposed == 0:
				continue // another boundary is the reason
			case e.in.Run.Train.Codec.Auto():
				unit, period := "a step", e.k.layout.End
				if !e.k.programmed() {
					unit, period = "a micro-batch", e.k.pipes[r].Period
				}
				why = fmt.Sprintf("in %v the messages of replica %d boundary %d → %d would be exposed, %s %s instead of %s; later plans have the same codec",
					codec-1, r, b, b+1, plan.Time(exposed), unit, plan.Time(period))
			}
			return []plan.Reason{{Kind: plan.ReasonCodec, Text: fmt.Sprintf("tensors travel in %v between all stages: %s", codec, why)}}
		}
	}
	return nil
}

// precision says what halves by the planner's choice mean for losses; empty where there are none.
func (e explainer) precision() []plan.Reason {
	storage := e.k.model.Devices[e.k.layout.Rows[0][0].Device].Storage
	if storage == model.StorageF32 || !e.in.Run.Train.Storage.Auto {
		return nil
	}
	return []plan.Reason{{Kind: plan.ReasonPrecision, Text: fmt.Sprintf("%v in all stages, of later plans too: losses differ from those in f32 by rounding; parameters, gradients, their sums and checkpoints are f32", storage)}}
}

// claims names the nodes that are counted on with less than they claim.
func (e explainer) claims() (out []plan.Reason) {
	for _, m := range e.in.Members {
		if m.Claim != "" && len(out) < maxLeftOutLines {
			out = append(out, plan.Reason{Kind: plan.ReasonClaim, Text: m.label() + " " + m.Claim})
		}
	}
	return out
}

// leftOut names the devices without a stage, with the best step that uses each.
func (e explainer) leftOut(others []*candidate) (out []plan.Reason) {
	for _, m := range e.idle {
		out = append(out, plan.Reason{Kind: plan.ReasonLeftOut, Text: fmt.Sprintf("%s gets no stage: %s", m.label, m.why)})
	}
	for d := range e.problem.devices {
		if e.k.uses(d) {
			continue
		}
		text := fmt.Sprintf("%s gets no stage: no plan with it comes close", e.name(d))
		if cramped(e.models.whole(), d) {
			text = fmt.Sprintf("%s gets no stage: its %s do not hold a single layer", e.name(d), plan.Size(e.problem.devices[d].profile.MemoryFreeBytes))
		}
		if i := slices.IndexFunc(others, func(o *candidate) bool { return o.uses(d) }); i >= 0 {
			text = fmt.Sprintf("%s gets no stage: the best plan with it takes %s a step (%v), without it %s",
				e.name(d), plan.Time(others[i].step()), others[i].shape, plan.Time(e.k.step()))
		}
		out = append(out, plan.Reason{Kind: plan.ReasonLeftOut, Text: text})
	}
	if more := len(out) - maxLeftOutLines; more > 0 {
		out = append(out[:maxLeftOutLines], plan.Reason{Kind: plan.ReasonLeftOut, Text: fmt.Sprintf("%s more get no stage", plan.Count(more, "device"))})
	}
	return out
}

// unmeasured counts the pairs of neighbours whose link nobody measured, with the worst that is
// assumed of any.
func (p *problem) unmeasured(rows cost.Rows) (n int, worst cost.Link) {
	worst = DefaultLink
	pairs := map[[2]int]bool{}
	for _, row := range rows {
		for s := 1; s < len(row); s++ {
			a, b := row[s-1].Device, row[s].Device
			if link, measured := p.links.between(p.devices[a].peer, p.devices[b].peer); !measured {
				worst = worse(worst, link)
				pairs[[2]int{min(a, b), max(a, b)}] = true
			}
		}
	}
	return len(pairs), worst
}

// relayed names the neighbours whose link goes through a relay, each pair once: as its messages did last, else as it was
// measured.
func (e explainer) relayed() (lines []plan.Reason) {
	told := map[[2]plan.PeerID]bool{}
	for _, row := range e.k.layout.Rows {
		for s := 1; s < len(row); s++ {
			a, b := row[s-1].Device, row[s].Device
			from, to := e.devices[a].peer, e.devices[b].peer
			pair := [2]plan.PeerID{min(from, to), max(from, to)}
			if told[pair] || !e.links.relayed(from, to) || len(lines) == maxStageLines {
				continue
			}
			told[pair] = true
			link, _ := e.links.between(from, to)
			lines = append(lines, plan.Reason{Kind: plan.ReasonRelayed, Text: fmt.Sprintf("%s and %s reach each other through a relay: %s and a round trip of %s",
				e.name(a), e.name(b), plan.Bandwidth(link.BytesPerS), plan.Time(schedule.Nanos(link.RTTNanos)))})
		}
	}
	return lines
}

// sharing explains how replicas hold their optimizer state, and for each group of stages that lacks
// memory what else in parts would bring; empty for one replica. Workers hold gradients and parameters
// whole.
func (e explainer) sharing() []plan.Reason {
	if e.k.copies() == 1 || e.in.Run.Train.Shard == plan.ShardOff {
		return nil
	}
	groups := e.shareGroups(e.k)
	lines := []plan.Reason{{Kind: plan.ReasonSharding, Text: e.sharedText(groups)}}
	if len(groups) > maxStageLines || !e.wantsMemory(e.k) {
		return lines
	}
	for _, g := range groups {
		if text := e.lackText(g); text != "" {
			lines = append(lines, plan.Reason{Kind: plan.ReasonSharding, Text: text})
		}
	}
	return lines
}

// sharedText says whose optimizer state is in parts, and what that brings.
func (e explainer) sharedText(groups []sharding.Group) string {
	sharded, least := e.k.sharded(), int64(-1)
	for _, g := range groups {
		bytes := e.shared(g, g.Stages).Freed(sharding.Of(sharding.OptimizerState))
		if g.Among(sharded) == (len(sharded) > 0) && bytes > 0 && (least < 0 || bytes < least) { // a frozen group has nothing
			least = bytes
		}
	}
	if least = max(0, least); len(sharded) == 0 {
		use := "which no stage needs"
		if e.wantsMemory(e.k) {
			use = "too little to gain by"
		}
		return fmt.Sprintf("optimizer state whole on each of %d replicas: in parts it would free %s a stage or more, %s", e.k.copies(), plan.Size(least), use)
	}
	whose := ""
	if rest := e.k.model.Memory.All().Without(sharded, e.layers()); len(rest) > 0 {
		whose = fmt.Sprintf(" of layers %s, whole of layers %s, which have the memory", sharded, rest)
	}
	return fmt.Sprintf("optimizer state in parts, one on each of %d replicas%s: %s a stage or more are free for other things; updated parameters are exchanged in place of summed gradients, %s a step",
		e.k.copies(), whose, plan.Size(least), plan.Time(e.k.job.Gather))
}

// lackText says of a group of stages what would have to be in parts for memory not to bind;
// empty where it does not.
func (e explainer) lackText(g sharding.Group) string {
	stages, missing := e.lacking(g)
	stage, has := e.shared(g, stages), sharding.Set(0)
	if g.Among(e.k.sharded()) {
		has = sharding.Of(sharding.OptimizerState)
	}
	lacks := missing - stage.Freed(has)
	if lacks <= 0 {
		return ""
	}
	text := fmt.Sprintf("layers %s lack %s of memory, so they wait or recompute: ", g.Layers, plan.Size(lacks))
	in, enough := stage.Choose(missing)
	switch {
	case !enough && !stage.Site:
		return text + "replicas that far apart can hold nothing else in parts that would do"
	case !enough:
		return text + "nothing else that replicas could hold in parts would do"
	}
	shows := "hidden behind the pipelines"
	if longer := stage.Cost(in); longer > 0 {
		shows = plan.Time(longer) + " longer than now"
	}
	return text + fmt.Sprintf("%v in parts would do, %d exchanges a step, %s, but workers hold gradients and parameters whole", in, stage.Exchanges(in), shows)
}

// siteRTT is the longest round trip between peers of one site.
const siteRTT = 5e6

// shared returns what a group could hold in parts, with what that frees on some of its stages.
// Each micro-batch is a group of its own, since backwards alternate with forwards, and exchanges
// pass while the pipelines compute.
func (e explainer) shared(g sharding.Group, on []cost.Stage) sharding.Stage {
	k := e.k
	out := sharding.Stage{
		Groups:   (slices.Max(k.shares) + k.order.copies - 1) / k.order.copies,
		Exchange: k.model.Exchange(k.layout.Rows, g.Layers, nil),
		Window:   k.passes(),
		Site:     true,
	}
	if k.simulated {
		out.Window = slices.Max(k.result.Pipelines)
	}
	for i, a := range g.Stages {
		for _, b := range g.Stages[:i] {
			link, measured := e.links.between(e.problem.devices[a.Device].peer, e.problem.devices[b.Device].peer)
			out.Site = out.Site && measured && link.RTTNanos <= siteRTT
		}
	}
	whole, parts := e.models.with(cost.Parts{Partials: k.partials()}, k.model.Offload), e.models.with(cost.Parts{Replicas: k.copies(), Layers: g.Layers, Partials: k.partials()}, k.model.Offload)
	out.FreedBytes = sharding.Freed(whole, parts, k.copies(), on)
	return out
}

// lacking returns the stages of a group that lack memory to hold all whole, to recompute nothing that
// the run does not ask for, and to have as much in flight as their links call for; bytes is what the
// tightest of them lacks. It has no answer under schedules whose programs say what is in flight.
func (e explainer) lacking(g sharding.Group) (stages []cost.Stage, bytes int64) {
	k := e.k
	if k.programmed() {
		return nil, 0
	}
	c := cutter{e.problem, e.models.with(cost.Parts{Partials: k.partials()}, k.model.Offload), k.order}
	for r, p := range k.pipes {
		problem := c.stages(p)
		full, _, err := schedule.MinimalWarmups(problem.Costs(p.Codecs), nil)
		if err != nil {
			continue // no memory would do
		}
		for s, at := range k.layout.Rows[r] {
			lack := int64(min(full[s]+1, k.shares[r]))*problem.Stages[s].SlotBytes - problem.Stages[s].RoomBytes
			if lack > 0 && g.Layers.Contains(at.First) {
				stages, bytes = append(stages, at), max(bytes, lack)
			}
		}
	}
	return stages, bytes
}

// whyOther says that another schedule would be better; takes names it.
func whyOther(r Reselection, takes string) string {
	return fmt.Sprintf("a step takes %s, predicted were %s; %s %s instead of %s", plan.Time(r.Measured), plan.Time(r.Promised), takes, plan.Time(r.Then), plan.Time(r.Now))
}

// tooLittle says why a shape whose stages need so many bytes, without what passes take, is refused
// even on the roomiest devices. A device that passes alone would fill is named: more devices of that
// size would not help. The error wraps ErrNoFit.
func (p *problem) tooLittle(m *cost.Model, sh shape, roomiest []int, need int64) error {
	var have int64
	for _, i := range roomiest {
		d, pass := p.devices[i], m.On(i).Pass()
		if m.Devices[i].FreeBytes == 0 {
			return fmt.Errorf("%w: device %s of %s has %s for the run, the passes of a stage alone need %s, however few its layers; allow more with --memory, use a smaller micro-batch or a smaller model, or add a node with more memory",
				ErrNoFit, d.name, d.node, plan.Size(d.profile.MemoryFreeBytes), plan.Size(pass))
		}
		have += min(d.profile.MemoryFreeBytes, 1<<48)
		need += pass
	}
	the := "the roomiest device has"
	if len(roomiest) > 1 {
		the = fmt.Sprintf("the roomiest %d devices have", len(roomiest))
	}
	return fmt.Errorf("%w: %v need %s at least, %s %s; add a node, allow more with --memory, use fewer replicas, a smaller model or a smaller micro-batch",
		ErrNoFit, sh, plan.Size(need), the, plan.Size(have))
}

// noFit puts names to a partition's refusal; other errors stay as they are. The error wraps ErrNoFit.
func (p *problem) noFit(m *cost.Model, devices []int, err error) error {
	var no *partition.NoFit
	if !errors.As(err, &no) {
		return err
	}
	i := devices[no.Device]
	d := p.devices[i]
	if no.Host {
		return p.noHost(m, i, fmt.Sprintf("layers [%d,%d)", no.First, no.End), no.NeedBytes)
	}
	// What passes take has been taken off the free bytes.
	need, free := no.NeedBytes+m.On(i).Pass(), no.FreeBytes+d.profile.MemoryFreeBytes-m.Devices[i].FreeBytes
	fewer := ""
	if n := m.Memory.Parts().Partials; n > 0 {
		fewer = fmt.Sprintf(", fewer sum groups (a new run with --sum-groups 1 needs %s less)", plan.Size(int64(n)*m.Memory.Params(no.First, no.End)))
	}
	return fmt.Errorf("%w: device %s of %s would need %s for layers [%d,%d), %s are free; add a node, allow more with --memory, use more stages%s, a smaller model or a smaller micro-batch",
		ErrNoFit, d.name, d.node, plan.Size(need), no.First, no.End, plan.Size(free), fewer)
}

// noHost says that a node lacks memory for the optimizer state of something.
func (p *problem) noHost(m *cost.Model, device int, of string, need int64) error {
	d := p.devices[device]
	return fmt.Errorf("%w: %s of %s would keep the optimizer state of %s in the memory of its node, %s, where %s are free; add a node, or free memory there",
		ErrNoFit, d.name, d.node, of, plan.Size(need), plan.Size(m.Devices[device].HostBytes))
}

// noLayout puts names to a layout's refusal. The error wraps ErrNoFit.
func (p *problem) noLayout(k *candidate, no *layout.NoFit) error {
	d := p.devices[no.Device]
	if no.Host {
		return p.noHost(k.model, no.Device, "its stages", no.NeedBytes)
	}
	var stages, inFlight []string
	for i, at := range no.At {
		stages = append(stages, fmt.Sprintf("replica %d stage %d", at.Replica, at.Stage))
		inFlight = append(inFlight, fmt.Sprint(no.InFlight[i]))
	}
	return fmt.Errorf("%w: device %s of %s would need %s for %s under %s, which keeps %s micro-batches there, %s are free; take a schedule that keeps fewer (1f1b), add a node, or use a smaller model or a smaller micro-batch",
		ErrNoFit, d.name, d.node, plan.Size(no.NeedBytes), strings.Join(stages, " and "), k.order.spec, strings.Join(inFlight, " and "), plan.Size(no.FreeBytes))
}
