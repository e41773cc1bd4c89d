package schedule

import "slices"

// Kind is a named generator. Its texts say what it costs: p workers with rank r, N
// micro-batches, v stages per worker; times f, i, w of forward, input and weight gradient
// of all of a worker's stages, b = i + w. Memory is the activations of so many
// micro-batches in all of a worker's stages. Bubble is without communication: the time
// that is added to N*(f+b).
type Kind struct {
	Name, Title string
	// Params are the names, in a Spec, of the options that it reads beside stages and
	// micro-batches, in the order of the text form; Defaults says what they are if not given.
	Params   []string
	Defaults string
	// NeedsCosts: the actions follow from costs and caps, not from a name; what Elastic
	// finds is written as 1f1b with warm-ups.
	NeedsCosts bool
	Memory     string
	Bubble     string
	Source     string
	Make       func(Options) (Schedule, error)

	chunks        int // stages per worker if not given; 0 is always one
	segments      int // of a sequence if not given; 0 is always whole ones
	bidirectional bool
}

// StagesPerWorker is how many stages of each replica one worker holds.
func (k Kind) StagesPerWorker(o Options) int {
	if k.chunks > 0 && slices.Contains(k.Params, "v") {
		return orDefault(o.Chunks, k.chunks)
	}
	return max(k.chunks, 1)
}

// Segments is into how many a sequence is cut; 1 is whole.
func (k Kind) Segments(o Options) int {
	if k.segments > 0 {
		return orDefault(o.Segments, k.segments)
	}
	return 1
}

// Replicas is how many replicas share the workers.
func (k Kind) Replicas(o Options) int {
	if k.bidirectional {
		return 2 * orDefault(o.Pairs, 1)
	}
	return 1
}

// kinds is made once: plans look kinds up by their names thousands of times.
var kinds = slices.Concat(straightKinds(), interleavedKinds(), chimeraKinds(), zeroBubbleKinds())

// Kinds lists all generators.
func Kinds() []Kind { return slices.Clone(kinds) }

// KindNamed finds a kind.
func KindNamed(name string) (Kind, bool) {
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return kinds[i], true
}
