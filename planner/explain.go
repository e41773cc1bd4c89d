package planner

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/elastic"
	"pnode/planner/founding"
	"pnode/planner/layout"
	"pnode/planner/measure"
	"pnode/planner/plan"
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
		Text: fmt.Sprintf("predicted step %s: %v on %s of %s", plan.Time(k.step()), k.shape, plan.Number(k.shape.devices()), plan.Count(len(s.problem.devices), "measured device")),
	}}
	out = append(out, e.groups()...)
	if s.yields != "" {
		out = append(out, plan.Reason{Kind: plan.ReasonReplicas, Text: s.yields})
	}
	switch {
	case k.apart:
		out = append(out, plan.Reason{Kind: plan.ReasonRounds, Nanos: int64(k.rounds.Exposed), Text: e.roundsText()})
	case s.apart:
		out = append(out, plan.Reason{Kind: plan.ReasonRounds, Text: "one replica: it has no other to meet, and makes every step as without local steps"})
	}
	if k.postValidates() {
		out = append(out, plan.Reason{Kind: plan.ReasonPostValidation, Nanos: int64(k.step() + k.result.Saved), Text: fmt.Sprintf(
			"steps are applied before their commit, %s sooner, and rolled back where that asks for something else: %s keep the state of before, %s in all",
			plan.Time(k.result.Saved), plan.Count(len(k.devices()), "device"), plan.Size(k.model.Memory.Previous(0, s.layers())))})
	}
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
	out = append(append(append(out, e.claims()...), e.ratios()...), e.relayed()...)
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

// roundsText says how the replicas come together.
func (e explainer) roundsText() string {
	c, least, most := e.k.rounds, int64(math.MaxInt64), int64(0)
	for _, row := range e.k.layout.Rows {
		for _, at := range row {
			bytes := int64(len(e.k.pipes)-1) * plan.OuterBytes(c.Codec, e.k.model.Memory.Trained(at.First, at.End))
			least, most = min(least, bytes), max(most, bytes)
		}
	}
	each := plan.Size(most)
	if least < most {
		each = plan.Size(least) + " to " + each
	}
	train, inner := e.in.Run.Train, e.k.step()-c.PerStep()
	lr, momentum := train.OuterOptimizer(c.Codec)
	why := c.Why(train.Sync, train.Steps-e.in.Start)
	if e.k.pinned != nil {
		why = "as in the plan before"
	}
	meanwhile := ""
	if c.Delay > 0 {
		meanwhile = fmt.Sprintf(" while %s of the next round go on", plan.Count(int(c.Delay), "step"))
	}
	return fmt.Sprintf("replicas take %s on their own, each on its share of the micro-batches, and then an outer step together (learning rate %g, Nesterov momentum %g): a device sends %s in %s%s, and waits for %s of %s (%s): %s",
		plan.Count(int(c.Every), "step"), lr, momentum, each, c.Codec, meanwhile, plan.Time(c.Exposed), plan.Time(c.Exposed+schedule.Nanos(c.Every)*inner), plan.Permille(c.Permille(inner)), why)
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
	if o.step() < k.step() && e.in.Previous == nil {
		return fmt.Sprintf("%s: %v, step %s, %s faster, no more than measurements differ by: fewer replicas take less memory", what, o.shape, plan.Time(o.step()), plan.Permille(-diff))
	}
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
	exchange, update := k.result.Exchange, k.result.Commit+k.result.Update
	if k.programmed() {
		if rest := exchange + update; rest > k.layout.End {
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
				byDevice[at.Device] = append(byDevice[at.Device], fmt.Sprintf("replica %d stage %d layers %v, %d in flight%s", r, s, plan.LayerRange{First: at.First, End: at.End}, at.Use.Slots, again))
				continue
			}
			if at.Levels != nil && again != "" {
				again = "," + again
			}
			need, total := k.memory(at.Device)
			line(fmt.Sprintf("replica %d stage %d: %s, layers %v, %s a micro-batch, %d of them, %d in flight, %s of %s%s",
				r, s, e.name(at.Device), plan.LayerRange{First: at.First, End: at.End}, plan.Time(took.Micro()+took.Recompute), k.shares[r], at.Use.Slots,
				plan.Size(need), plan.Size(total), again+also(e.choices(at.Device))))
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
		need, total := k.memory(d)
		line(fmt.Sprintf("%s: %s; %s for a micro-batch of each, %s of %s%s",
			e.name(d), strings.Join(byDevice[d], ", "), plan.Time(micro), plan.Size(need), plan.Size(total), also(e.choices(d))))
	}
	return out
}

// also appends texts to a line.
func also(texts []string) string {
	if len(texts) == 0 {
		return ""
	}
	return ", " + strings.Join(texts, ", ")
}

// choices says what the stages of a device keep in host memory, and why they store as they do where
// the run leaves that to the planner.
func (e explainer) choices(device int) (texts []string) {
	m, d := e.k.model, e.problem.devices[device]
	if m.Offloads(device) {
		bytes, took := int64(0), schedule.Nanos(0)
		for _, at := range e.k.layout.On(device) {
			s := e.k.layout.Stage(at)
			bytes, took = bytes+m.Memory.Moments(s.First, s.End), took+m.Crossing(device, s.First, s.End)
		}
		texts = append(texts, fmt.Sprintf("keeps %s of optimizer state in host memory to fit, %s a step for copies", plan.Size(bytes), plan.Time(took)))
	}
	if at := m.Devices[device]; e.in.Run.Train.Optimizer == plan.Muon && at.CopyBytesPerS > 0 && at.HostBytes > 0 && e.wantsMemory(e.k) {
		texts = append(texts, "keeps all optimizer state: whole matrices, as Muon updates them, do not pass through windows to host memory")
	}
	storage := m.Devices[device].Storage
	switch {
	case !e.in.Run.Train.Storage.Auto:
		return texts
	case max(d.profile.MatMulBF16FLOPS, d.profile.MatMulF16FLOPS) <= 0 && storage == model.StorageF32: // as on most processors: nothing to choose
		return texts
	case d.profile.Processor() && d.profile.Products(storage) <= 0:
		return append(texts, fmt.Sprintf("in %v: this processor has no instructions for it and computes at about its rate in f32, %s", storage, plan.Speed(d.profile.MatMulFLOPS)))
	case max(d.profile.MatMulBF16FLOPS, d.profile.MatMulF16FLOPS) <= 0:
		return append(texts, fmt.Sprintf("in %v: halves were not measured", storage))
	}
	why := ":"
	switch {
	case e.in.Previous != nil:
		why = " since the run began:"
	case storage != e.problem.precision().Storages[0]:
		why = " for its memory, although"
	}
	var rates []string
	for _, s := range []model.Storage{model.StorageF16, model.StorageBF16, model.StorageF32} {
		if flops := d.profile.Products(s); flops > 0 {
			rates = append(rates, fmt.Sprintf("%v at %s", s, plan.Speed(flops)))
		}
	}
	return append(texts, fmt.Sprintf("in %v%s it multiplies %s", storage, why, strings.Join(rates, ", ")))
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

// precision says what the planner's choice of a type means for losses, and what the first plan chose it for; empty where there
// was none.
func (e explainer) precision() []plan.Reason {
	if !e.in.Run.Train.Storage.Auto {
		return nil
	}
	storage := e.k.model.Devices[e.k.layout.Rows[0][0].Device].Storage
	why, costs := e.whyPrecision(storage), ""
	switch {
	case storage != model.StorageF32:
		costs = ": losses differ from those in f32 by rounding; parameters, gradients, their sums and checkpoints are f32"
	case why == "":
		return nil
	}
	return []plan.Reason{{Kind: plan.ReasonPrecision, Text: fmt.Sprintf("%v in all stages, of later plans too%s%s", storage, why, costs)}}
}

// whyPrecision says why a first plan stores what it does, as the rest of a sentence; empty for later plans, and where nothing was weighed.
func (e explainer) whyPrecision(storage model.Storage) string {
	p := e.problem.precision()
	gain := fmt.Sprintf("products in %v are %s times as fast, measured on %d of %s", p.Half, p.Times(), p.Measured, plan.Count(len(e.devices), "device"))
	switch {
	case p.Half == model.StorageF32:
		return ""
	case storage != p.Storages[0]:
		return fmt.Sprintf(", as the model does not fit in %v (%s)", p.Storages[0], gain)
	case storage == p.Half:
		return fmt.Sprintf(" (%s)", gain)
	case p.Without >= 0:
		return fmt.Sprintf(": processors compute in %v where all have instructions for it, and %s, of kind %s, has none", p.Half, e.name(p.Without), e.devices[p.Without].profile.Kind)
	}
	return fmt.Sprintf(": %s, and are taken from %d.%d times on", gain, founding.LeastGain/1000, founding.LeastGain%1000/100)
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

// ratios names the devices that count with other speeds than their profiles say.
func (e explainer) ratios() (out []plan.Reason) {
	for d, at := range e.devices {
		switch r := e.ratio(at.peer, at.name); {
		case r == measure.WholeRatio || len(out) == maxLeftOutLines:
		case r > measure.WholeRatio:
			out = append(out, plan.Reason{Kind: plan.ReasonRatio, Text: fmt.Sprintf("%s counts as %d.%d times slower than its profile: so it computed", e.name(d), r/1000, r%1000/100)})
		default:
			out = append(out, plan.Reason{Kind: plan.ReasonRatio, Text: fmt.Sprintf("%s counts as %d.%d times faster than its profile: so it computed", e.name(d), 1000/r, 1000%r*10/r)})
		}
	}
	return out
}

// leftOut names the devices without a stage, with the best step that uses each.
func (e explainer) leftOut(others []*candidate) (out []plan.Reason) {
	for _, left := range e.unused(others) {
		out = append(out, plan.Reason{Kind: plan.ReasonLeftOut, Text: fmt.Sprintf("%s gets no stage: %s", left.Name, left.why(e.k.step()))})
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
			if link, measured := p.links.Between(p.devices[a].peer, p.devices[b].peer); !measured {
				worst = measure.Worse(worst, link)
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
			if told[pair] || !e.links.Relayed(from, to) || len(lines) == maxStageLines {
				continue
			}
			told[pair] = true
			link, _ := e.links.Between(from, to)
			lines = append(lines, plan.Reason{Kind: plan.ReasonRelayed, Text: fmt.Sprintf("%s and %s reach each other through a relay: %s and a round trip of %s",
				e.name(a), e.name(b), plan.Bandwidth(link.BytesPerS), plan.Time(schedule.Nanos(link.RTTNanos)))})
		}
	}
	return lines
}

// whyOther says that another schedule would be better; takes names it.
func whyOther(r Reselection, takes string) string {
	return fmt.Sprintf("a step takes %s, predicted were %s; %s %s instead of %s", plan.Time(r.Measured), plan.Time(r.Promised), takes, plan.Time(r.Then), plan.Time(r.Now))
}
