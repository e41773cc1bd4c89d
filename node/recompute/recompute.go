package recompute

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/kernels/host"
	"pnode/node/ledger"
	"pnode/pipeline"
	"pnode/pipeline/collective"
	"pnode/pipeline/gather"
	"pnode/pipeline/gather/seals"
	"pnode/planner/plan"
)

// ErrOtherDevice is wrapped by the errors for runs that were not trained on processors.
var ErrOtherDevice = errors.New("recompute: a run can be trained again where processors alone have trained it")

// Config says what is trained again. All fields but Initial and OnStep are needed.
type Config struct {
	History
	Data pipeline.Data
	// Threads is for each worker; 0 is one per core.
	Threads int
	// Initial writes the parameters of a layer that the run began with; nil: random ones.
	Initial func(layer int, dst io.Writer) error
	// OnStep hears of each step how many of all are done, where each replica's inner steps count. It may be called by any goroutine.
	OnStep func(done, of int)
	Log    *slog.Logger
}

// Result holds what training again has led to.
type Result struct {
	// Layers are the states of the layers after the last step, as checkpoints have them: of local steps, what all replicas have in common.
	Layers map[int][]byte
	// Differ says what nodes said that is not so.
	Differ []string
	// Unlike says of workers why they may have computed other last digits than this processor, though honest.
	Unlike []string
}

// Run trains up to a step.
func Run(ctx context.Context, c Config, to plan.Step) (Result, error) {
	if c.OnStep == nil {
		c.OnStep = func(int, int) {}
	}
	count := &counter{of: c.steps(to), tell: c.OnStep}
	kept := &states{run: c.Run, wanted: c.wanted(to), initial: c.Initial, layers: map[plan.Step]map[int][]byte{}, own: map[plan.Own]map[int][]byte{}}
	out := Result{}
	for i, p := range c.Plans {
		if err := p.Validate(c.Run.Model.Layers(), c.Run.Train.Sums()); err != nil {
			return Result{}, fmt.Errorf("recompute: the plan of generation %d: %w", p.Generation, err)
		}
		if err := c.check(p); err != nil {
			return Result{}, err
		}
		end := c.ends(i, to)
		if end <= p.Start {
			continue
		}
		g := generation{Config: c, states: kept, counter: count, plan: p, end: end}
		g.script = newScript(c.outer(p, to), kept.wanted, g.differs)
		differ, err := g.train(ctx)
		for _, u := range g.unlike {
			if !slices.Contains(out.Unlike, u) {
				out.Unlike = append(out.Unlike, u)
			}
		}
		if err != nil {
			return Result{}, fmt.Errorf("recompute: generation %d, steps %d to %d: %w", p.Generation, p.Start+1, end, err)
		}
		out.Differ = append(out.Differ, differ...)
	}
	if out.Layers = kept.layers[to]; len(out.Layers) != c.Run.Model.Layers() {
		return Result{}, fmt.Errorf("%w: nothing leads to step %d", errNoState, to)
	}
	return out, nil
}

// counter counts steps.
type counter struct {
	mu   sync.Mutex // guards done
	done int
	of   int
	tell func(done, of int)
}

func (c *counter) step() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done++
	c.tell(c.done, c.of)
}

// generation is a plan that is carried out again, up to a step.
type generation struct {
	Config
	*states
	*counter
	plan   plan.Plan
	end    plan.Step
	script *script    // of the outer steps up to end
	guard  sync.Mutex // guards differ
	differ []string
	unlike []string
}

// member is a worker that carries out its part.
type member struct {
	worker *pipeline.Worker
	device kernels.Device
	// over ends the worker once it has made all that counts; nil: it ends by itself.
	over context.Context
}

// train carries the plan out.
func (g *generation) train(ctx context.Context) (differ []string, err error) {
	net := collective.NewMemory()
	var parts []member
	defer func() {
		for _, p := range parts {
			p.worker.Close()
			err = errors.Join(err, p.device.Close())
		}
	}()
	group, ctx := errgroup.WithContext(ctx)
	for _, id := range g.plan.Workers() {
		c := pipeline.Config{
			Worker: id, Run: g.run, Plan: g.plan, Host: &host.Memory{}, Data: g.Data, Exchange: net.End(id.Peer),
			OnLoaded: func() {}, Log: g.Log,
		}
		c.Run.Train.CheckpointEvery = 0 // who needs a state says so
		over, takesPart := g.together(&c), true
		if g.plan.Local != nil {
			over, takesPart = g.apart(ctx, &c)
		}
		if !takesPart {
			continue
		}
		if !strings.HasPrefix(id.Device, "cpu") {
			return nil, fmt.Errorf("%w: generation %d was trained on %s of %s", ErrOtherDevice, g.plan.Generation, id.Device, g.nameOf(id.Peer))
		}
		if c.Device, err = g.like(id); err != nil {
			return nil, err
		}
		if c.Local != nil {
			c.Local.Processor = c.Device
		}
		w, err := pipeline.New(c)
		if err != nil {
			return nil, errors.Join(err, c.Device.Close())
		}
		parts = append(parts, member{w, c.Device, over})
	}
	for _, p := range parts {
		group.Go(func() error {
			run := ctx
			if p.over != nil {
				run = p.over
			}
			err := p.worker.Run(run, ctx)
			if p.over != nil && p.over.Err() != nil && ctx.Err() == nil {
				err = nil // nothing that follows counts
			}
			return errors.Join(err, p.worker.Saved())
		})
	}
	return g.differ, group.Wait()
}

// like returns a processor of the kind that a worker's was; where that is not to be had, the best one here.
func (g *generation) like(id plan.WorkerID) (*cpu.Device, error) {
	kinds, who := g.kinds(id), g.nameOf(id.Peer)
	o := cpu.Options{Threads: g.Threads}
	switch len(kinds) {
	case 0:
		g.unlike = append(g.unlike, fmt.Sprintf("no folder tells with which instructions %s computed", who))
		return cpu.New(o)
	case 1:
		o.Kind = kinds[0]
	default:
		g.unlike = append(g.unlike, fmt.Sprintf("%s changed between %s within generation %d", who, quoted(kinds), g.plan.Generation))
		return cpu.New(o)
	}
	d, err := cpu.New(o)
	if errors.Is(err, cpu.ErrKind) {
		g.unlike = append(g.unlike, fmt.Sprintf("%s computed otherwise: %v", who, err))
		return cpu.New(cpu.Options{Threads: g.Threads})
	}
	return d, err
}

// kinds returns the kinds of processors that a worker was, as far as these differ in what the plan stores.
func (g *generation) kinds(id plan.WorkerID) (kinds []string) {
	for _, kind := range g.Kinds[Part{g.plan.Generation, id}] {
		if !g.Run.Train.Storage.Rounds(g.plan) {
			kind = cpu.KindInFloats(kind)
		}
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// quoted joins texts that nodes wrote.
func quoted(texts []string) string {
	var b strings.Builder
	for i, t := range texts {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Quote(t))
	}
	return b.String()
}

// together has a worker make every step with all others. Its losses are to be those of the run.
func (g *generation) together(c *pipeline.Config) (over context.Context) {
	at, coordinates := g.plan.Start, c.Worker == g.plan.Coordinator()
	c.Keeper = keeper{states: g.states, plan: g.plan}
	c.Stop = func() bool { return at+1 >= g.end }
	c.Due = func(step plan.Step) bool { return g.wanted[step] }
	c.OnStep = func(r pipeline.StepResult) {
		at = r.Step
		if !coordinates || r.Final {
			return
		}
		g.step()
		said, known := g.Committed[ledger.Position{Generation: g.plan.Generation, Step: r.Step}]
		if is := ledger.CommitOf(r.Step, r.Loss, r.Norm); known && said != is {
			g.differs(fmt.Sprintf("step %d of generation %d has the loss %v and the norm %v, nodes said %v", r.Step, g.plan.Generation, r.Loss, r.Norm, said.Loss()))
		}
	}
	return nil
}

// apart has a worker make the inner steps of its replica that count, and the outer steps. A replica none of whose steps count takes no part.
func (g *generation) apart(ctx context.Context, c *pipeline.Config) (over context.Context, takesPart bool) {
	r := plan.Replica(slices.IndexFunc(g.plan.Replicas, func(pipe plan.Pipeline) bool {
		return slices.ContainsFunc(pipe.Stages, func(at plan.Placement) bool { return at.Worker() == c.Worker })
	}))
	counted := slices.DeleteFunc(slices.Clone(g.script.made), func(m plan.Merged) bool { return m.Parts[r].Steps == 0 })
	if len(counted) == 0 {
		return nil, false
	}
	last, whole := counted[len(counted)-1], c.Run
	over, end := context.WithCancel(ctx)
	log := &view{script: g.script, replica: r, at: g.plan.Start}
	coordinates := c.Worker == plan.CoordinatorOf(g.plan, r)
	c.Run, c.Plan = plan.Alone(whole, g.plan, r)
	c.Replica, c.First, c.Keeper = r, g.plan.Replicas[r].FirstMicro, keeper{g.states, g.plan, r}
	c.Stop = func() bool { return false }
	c.OnStep = func(s pipeline.StepResult) {
		if s.Final {
			return
		}
		log.step(s.Step)
		if coordinates {
			g.step()
		}
	}
	c.Local = &pipeline.Local{Run: whole, Plan: g.plan, Rounds: log, Keys: seals.Alone{}, OnOuterStep: func(o gather.Outcome) {
		log.step(o.To + o.Meanwhile)
		if o.To == last.To && !o.Last {
			end()
		}
	}}
	return over, true
}

func (g *generation) differs(text string) {
	g.guard.Lock()
	defer g.guard.Unlock()
	if !slices.Contains(g.differ, text) {
		g.differ = append(g.differ, text)
	}
}
