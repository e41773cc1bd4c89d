package plan

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// SyncRule says when the replicas of a run come together. The zero value sums their gradients in every step. A local rule has each
// replica update its own parameters in inner steps, and all of them make an outer step every so often: local steps with an outer
// optimizer (Douillard et al. 2023, "DiLoCo", arXiv 2311.08105). Losses depend on the replicas then.
type SyncRule struct {
	Local bool
	// Every is H, the inner steps between two outer steps. Codec writes outer gradients, see OuterCodecs. Zero values: the planner chooses.
	Every Step
	Codec string
	// Delay is Rounds.Delay, AtOnce that it is 0; at most one of them is not zero. Zero values: the planner chooses.
	Delay  Step
	AtOnce bool
	// Warmup is how many steps of every-step training come first, WarmupPercent the same as a share of the run's steps. One of them at most is
	// not zero.
	Warmup        Step
	WarmupPercent int
	// LR and Momentum are of the outer optimizer; LR 0: as TrainSpec.OuterOptimizer says.
	LR, Momentum float64
}

// The texts of the rules without settings.
const (
	everyStep  = "every-step"
	localSteps = "local"
)

// syncSettings shows the settings of a local rule.
const syncSettings = "h=50, codec=int8, delay=5 or delay=0, warmup=500 or warmup=10%, and lr=0.7,momentum=0.5 together"

// Bounds of an outer optimizer.
const (
	MinOuterLR, MaxOuterLR = 1e-6, 16
	MaxOuterMomentum       = 0.999
)

var (
	outerCodecs = []string{"f32", "bf16", "int8", "int4", "topk"}
	// outerBits are by codec the thousandths of bits that an element takes in a large tensor.
	outerBits = []int64{32_000, 16_000, 8250, 4250, 219}
)

// OuterCodecs returns the names of the codecs for outer gradients, the most exact first. Package pipeline/compress writes and reads them.
func OuterCodecs() []string { return slices.Clone(outerCodecs) }

// OuterBytes returns about what outer gradients of so many elements take in a codec, at least: each tensor may take some bytes more.
func OuterBytes(codec string, elements int64) int64 {
	i := max(0, slices.Index(outerCodecs, codec))
	return elements/8000*outerBits[i] + elements%8000*outerBits[i]/8000
}

// ParseSync reads a rule: `every-step`, `local`, or `local:` and settings with commas between them. The error wraps ErrBadInput.
func ParseSync(text string) (SyncRule, error) {
	r, err := readSync(text)
	if err != nil {
		return SyncRule{}, fmt.Errorf("%w: sync: %w", ErrBadInput, err)
	}
	return r, nil
}

func readSync(text string) (SyncRule, error) {
	if text == everyStep {
		return SyncRule{}, nil
	}
	name, settings, more := strings.Cut(text, ":")
	r, seen := SyncRule{Local: true}, map[string]bool{}
	if name != localSteps {
		return SyncRule{}, fmt.Errorf("want %s, %s, or %[2]s: and settings: %[3]s", everyStep, localSteps, syncSettings)
	}
	for more {
		var setting string
		setting, settings, more = strings.Cut(settings, ",")
		key, value, _ := strings.Cut(setting, "=")
		if seen[key] {
			return SyncRule{}, fmt.Errorf("want %.20q once", key)
		}
		seen[key] = true
		if !r.set(key, value) {
			return SyncRule{}, fmt.Errorf("the setting %.40q: want %s", setting, syncSettings)
		}
	}
	if seen["lr"] != seen["momentum"] {
		return SyncRule{}, fmt.Errorf("want both lr and momentum, as in %s:lr=0.7,momentum=0.5, or neither", localSteps)
	}
	return r, r.check()
}

// set reads one setting; not ok for keys that there are none of, and values that are no numbers.
func (r *SyncRule) set(key, value string) (ok bool) {
	var err error
	number := func(bits int) (n uint64) {
		n, err = strconv.ParseUint(value, 10, bits)
		return n
	}
	switch percent, isPercent := strings.CutSuffix(value, "%"); key {
	case "h":
		r.Every = Step(number(40))
		return err == nil && r.Every > 0
	case "delay":
		r.Delay = Step(number(40))
		r.AtOnce = r.Delay == 0
	case "codec":
		r.Codec = value
		return value != ""
	case "warmup":
		if value = percent; isPercent {
			r.WarmupPercent = int(number(7))
		} else {
			r.Warmup = Step(number(40))
		}
	case "lr":
		r.LR, err = strconv.ParseFloat(value, 64)
		return err == nil && r.LR > 0
	case "momentum":
		r.Momentum, err = strconv.ParseFloat(value, 64)
	default:
		return false
	}
	return err == nil
}

// Validate returns an error that names a setting out of bounds. It wraps ErrBadInput.
func (r SyncRule) Validate() error {
	if err := r.check(); err != nil {
		return fmt.Errorf("%w: sync: %w", ErrBadInput, err)
	}
	return nil
}

func (r SyncRule) check() error {
	switch {
	case !r.Local && r != SyncRule{}:
		return errors.New("settings of local steps, and the replicas' gradients are summed in every step")
	case r.Every > MaxEvery:
		return fmt.Errorf("h is %d, want 1 to %d inner steps between outer steps", r.Every, MaxEvery)
	case r.Codec != "" && !slices.Contains(outerCodecs, r.Codec):
		return fmt.Errorf("codec for outer gradients is %.20q: want one of %s", r.Codec, strings.Join(outerCodecs, ", "))
	case r.Delay >= MaxEvery || r.Delay > 0 && (r.AtOnce || r.Every > 0 && r.Delay >= r.Every):
		return fmt.Errorf("delay is %d, want fewer inner steps than h", r.Delay)
	case r.WarmupPercent < 0 || r.WarmupPercent > 99:
		return fmt.Errorf("warmup is %d%% of the steps, want 0%% to 99%%", r.WarmupPercent)
	case r.Warmup != 0 && r.WarmupPercent != 0:
		return fmt.Errorf("warmup is %d steps and %d%%, want one of them", r.Warmup, r.WarmupPercent)
	case r.LR != 0 && !(r.LR >= MinOuterLR && r.LR <= MaxOuterLR):
		return fmt.Errorf("lr of outer steps is %v, want %v to %v", r.LR, MinOuterLR, MaxOuterLR)
	case !(r.Momentum >= 0 && r.Momentum <= MaxOuterMomentum) || r.LR == 0 && r.Momentum != 0:
		return fmt.Errorf("momentum of outer steps is %v with lr %v, want 0 to %v, with an lr", r.Momentum, r.LR, MaxOuterMomentum)
	}
	return nil
}

// String returns the text that ParseSync reads.
func (r SyncRule) String() string {
	if !r.Local {
		return everyStep
	}
	var settings []string
	add := func(there bool, key string, value any) {
		if there {
			settings = append(settings, fmt.Sprintf("%s=%v", key, value))
		}
	}
	add(r.Every != 0, "h", r.Every)
	add(r.Codec != "", "codec", r.Codec)
	add(r.Delay != 0 || r.AtOnce, "delay", r.Delay)
	add(r.Warmup != 0, "warmup", r.Warmup)
	add(r.WarmupPercent != 0, "warmup", fmt.Sprintf("%d%%", r.WarmupPercent))
	add(r.LR != 0, "lr", r.LR)
	add(r.LR != 0, "momentum", r.Momentum)
	if len(settings) == 0 {
		return localSteps
	}
	return localSteps + ":" + strings.Join(settings, ",")
}

// MarshalText returns the rule's text.
func (r SyncRule) MarshalText() ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	return []byte(r.String()), nil
}

// UnmarshalText reads a rule's text.
func (r *SyncRule) UnmarshalText(text []byte) (err error) {
	*r, err = ParseSync(string(text))
	return err
}

// OuterOptimizer returns the learning rate and the Nesterov momentum of outer steps whose gradients are in a codec. Where the rule has none they
// are 0.7 and 0.5 after inner steps of AdamW: less momentum than DiLoCo's 0.9, under which runs of some hundred outer steps or fewer came out
// worse. After those of Muon they are 0.7 and 0.6 (Thérien et al. 2025, "MuLoCo", arXiv 2505.23725). For topk they are 1 without momentum, whose
// place its error feedback takes (Sarfi et al. 2025, "SparseLoCo", arXiv 2508.15706).
func (t TrainSpec) OuterOptimizer(codec string) (lr, momentum float64) {
	switch {
	case t.Sync.LR != 0:
		return t.Sync.LR, t.Sync.Momentum
	case codec == "topk":
		return 1, 0
	case t.Optimizer == Muon:
		return 0.7, 0.6
	}
	return 0.7, 0.5
}

// WarmupEnd returns the last step of the warm-up of a run with so many steps: plans that start before it sum gradients in every step.
func (r SyncRule) WarmupEnd(steps Step) Step {
	return r.Warmup + steps/100*Step(r.WarmupPercent) + steps%100*Step(r.WarmupPercent)/100
}
