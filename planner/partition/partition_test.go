package partition

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"pnode/pipeline/schedule"
)

func prefix[T int64 | schedule.Nanos](values []T) []T {
	sums := make([]T, len(values)+1)
	for i, v := range values {
		sums[i+1] = sums[i] + v
	}
	return sums
}

// random has devices of which some take other memory for the same layers.
func random(rng *rand.Rand) Problem {
	n := 1 + rng.IntN(4)
	layers := n + rng.IntN(7)
	sums := func() (fixed, saved []int64) {
		for range layers {
			fixed, saved = append(fixed, rng.Int64N(20)), append(saved, rng.Int64N(8))
		}
		return prefix(fixed), prefix(saved)
	}
	fixed, saved := sums()
	p := Problem{SlotBytes: rng.Int64N(4), Devices: make([]Device, n)}
	for d := range p.Devices {
		times, boundary := make([]schedule.Nanos, layers), make([]schedule.Nanos, layers)
		for l := range layers {
			times[l], boundary[l] = 1+schedule.Nanos(rng.IntN(30)), schedule.Nanos(rng.IntN(60))
		}
		p.Devices[d] = Device{Before: prefix(times), Fixed: fixed, Saved: saved, Boundary: boundary, InFlight: 1 + rng.IntN(4), FreeBytes: 20 + rng.Int64N(200)}
		if rng.IntN(2) == 0 {
			p.Devices[d].Fixed, p.Devices[d].Saved = sums()
		}
		if rng.IntN(3) == 0 {
			p.Devices[d].divide(rng)
		}
	}
	return p
}

// divide has the device keep a part of each layer in host memory.
func (d *Device) divide(rng *rand.Rand) {
	own, host := make([]int64, len(d.Fixed)-1), make([]int64, len(d.Fixed)-1)
	for l := range own {
		bytes := d.Fixed[l+1] - d.Fixed[l]
		host[l] = rng.Int64N(bytes + 1)
		own[l] = bytes - host[l]
	}
	d.Fixed, d.Host, d.HostBytes = prefix(own), prefix(host), rng.Int64N(60)
}

type answer struct {
	period, sum schedule.Nanos
	ends        []int
}

func (a answer) better(b answer) bool {
	if a.period != b.period {
		return a.period < b.period
	}
	if a.sum != b.sum {
		return a.sum < b.sum
	}
	return slices.Compare(a.ends, b.ends) < 0
}

// brute tries every cut.
func brute(p Problem, ends []int, found *[]answer) {
	d, first := len(ends), 0
	if d > 0 {
		first = ends[d-1]
	}
	if d == len(p.Devices) {
		if first != p.layers() {
			return
		}
		a := answer{ends: slices.Clone(ends)}
		x := 0
		for d, end := range ends {
			if !p.fits(d, x, end) {
				return
			}
			a.period = max(a.period, p.time(d, x, end), p.boundary(d, end))
			a.sum += p.time(d, x, end)
			x = end
		}
		*found = append(*found, a)
		return
	}
	for end := first + 1; end <= p.layers(); end++ {
		brute(p, append(ends, end), found)
	}
}

func TestSplitMatchesBruteForce(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	fitted := 0
	for range 3000 {
		p := random(rng)
		var all []answer
		brute(p, nil, &all)
		ends, period, err := Split(p)
		if len(all) == 0 {
			var no *NoFit
			if !errors.As(err, &no) {
				t.Fatalf("%+v: nothing fits, but got %v, %v", p, ends, err)
			}
			if no.NeedBytes <= no.FreeBytes || *no != *p.lack(no.Device, no.First, no.End) {
				t.Fatalf("%+v: %+v", p, no)
			}
			continue
		}
		fitted++
		best := all[0]
		for _, a := range all {
			if a.better(best) {
				best = a
			}
		}
		if err != nil || period != best.period || !slices.Equal(ends, best.ends) {
			t.Fatalf("%+v: %v period %d error %v, want %+v", p, ends, period, err, best)
		}
		checkWithin(t, p, all, best.period)
	}
	if fitted < 1000 {
		t.Errorf("only %d problems had an answer", fitted)
	}
}

// checkWithin relaxes the period.
func checkWithin(t *testing.T, p Problem, all []answer, least schedule.Nanos) {
	t.Helper()
	if ends := Within(p, least-1); ends != nil {
		t.Fatalf("%+v: %v has period below %d", p, ends, least)
	}
	period := least * 3 / 2
	var best answer
	for _, a := range all {
		if a.period <= period && (best.ends == nil || a.sum < best.sum || (a.sum == best.sum && slices.Compare(a.ends, best.ends) < 0)) {
			best = a
		}
	}
	if ends := Within(p, period); !slices.Equal(ends, best.ends) {
		t.Fatalf("%+v within %d: %v, want %+v", p, period, ends, best)
	}
}

func TestSplitLeavesAWeakDeviceALayerItCanTake(t *testing.T) {
	layers := []schedule.Nanos{1, 1, 10, 10}
	zero := make([]int64, len(layers)+1)
	slow := func(factor schedule.Nanos) Device {
		times := slices.Clone(layers)
		for i := range times {
			times[i] *= factor
		}
		return Device{Before: prefix(times), Fixed: zero, Saved: zero, InFlight: 1, FreeBytes: 1}
	}
	ends, period, err := Split(Problem{Devices: []Device{slow(1), slow(20), slow(1)}})
	if err != nil || period != 20 || !slices.Equal(ends, []int{1, 2, 4}) {
		t.Errorf("cut at %v period %d error %v, want [1 2 4] and 20", ends, period, err)
	}
}

func TestSplitRefuses(t *testing.T) {
	device := func(times, fixed, saved, inFlight int) Device {
		return Device{Before: make([]schedule.Nanos, times), Fixed: make([]int64, fixed), Saved: make([]int64, saved), InFlight: inFlight}
	}
	for name, p := range map[string]Problem{
		"nothing":           {},
		"too few layers":    {Devices: []Device{device(2, 2, 2, 1), device(2, 2, 2, 1)}},
		"times":             {Devices: []Device{device(3, 3, 3, 1), device(2, 3, 3, 1)}},
		"fixed":             {Devices: []Device{device(2, 3, 2, 1)}},
		"saved":             {Devices: []Device{device(2, 2, 3, 1)}},
		"sums of the host":  {Devices: []Device{{Before: make([]schedule.Nanos, 2), Fixed: make([]int64, 2), Saved: make([]int64, 2), InFlight: 1, Host: make([]int64, 1)}}},
		"nothing in flight": {Devices: []Device{device(2, 2, 2, 0)}},
	} {
		if ends, _, err := Split(p); !errors.Is(err, ErrBadProblem) {
			t.Errorf("%s: %v, %v", name, ends, err)
		}
	}
}

// last is when the slowest replica finishes.
func last(shares []int, rates []Rate) schedule.Nanos {
	var end schedule.Nanos
	for r, n := range shares {
		end = max(end, rates[r].First+schedule.Nanos(n-1)*rates[r].Each)
	}
	return end
}

func bruteShares(micros int, rates []Rate, shares []int) schedule.Nanos {
	if len(shares) == len(rates)-1 {
		return last(append(shares, micros), rates)
	}
	best := schedule.Nanos(1) << 60
	for n := 1; n <= micros-(len(rates)-len(shares)-1); n++ {
		best = min(best, bruteShares(micros-n, rates, append(slices.Clone(shares), n)))
	}
	return best
}

func TestSharesMatchBruteForce(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 500 {
		rates := make([]Rate, 1+rng.IntN(4))
		for r := range rates {
			rates[r] = Rate{First: schedule.Nanos(rng.IntN(50)), Each: schedule.Nanos(1 + rng.IntN(20))}
		}
		micros := len(rates) + rng.IntN(12)
		shares := Shares(micros, rates)
		sum := 0
		for _, n := range shares {
			if n < 1 {
				t.Fatalf("%v: a replica without work", shares)
			}
			sum += n
		}
		if sum != micros || last(shares, rates) != bruteShares(micros, rates, nil) {
			t.Fatalf("%d micro-batches at %v: %v ends at %d, possible is %d", micros, rates, shares, last(shares, rates), bruteShares(micros, rates, nil))
		}
	}
	if got := Shares(1, make([]Rate, 2)); got != nil {
		t.Errorf("one micro-batch for two replicas: %v", got)
	}
}

// TestPeriodsWithTheSameCuts: within the periods that a probe returns every stage's cuts are the same, and at their end they are not,
// so that a search for the least period skips what makes no difference, and nothing else.
func TestPeriodsWithTheSameCuts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 7))
	cuts := func(p Problem, period schedule.Nanos) (all []bool) {
		reach, next := p.start(), p.start()
		for d := range p.Devices {
			p.extend(d, reach, next, period, &periods{})
			all = append(all, next...)
			reach, next = next, reach
		}
		return all
	}
	narrow, far := 0, 0
	for range 500 {
		p := random(rng)
		period := schedule.Nanos(rng.IntN(120))
		_, same := p.reachable(period)
		if same.least > period || same.next <= period {
			t.Fatalf("period %d is not within %+v", period, same)
		}
		for q := same.least; q < min(same.next, same.least+200); q++ {
			if !slices.Equal(cuts(p, q), cuts(p, period)) {
				t.Fatalf("periods %d and %d, both within %+v, have other cuts: %+v", q, period, same, p)
			}
		}
		if same.next-same.least > 1 {
			far++
		}
		if same.least > 0 && same.next < 1000 {
			narrow++
		}
	}
	if narrow < 100 || far < 400 {
		t.Errorf("of 500 probes %d have bounds, and %d spare any other", narrow, far)
	}
}

// TestApportion divides layers by weights that do not go into them.
func TestApportion(t *testing.T) {
	for _, tc := range []struct {
		layers  int
		weights []int64
		want    []int
	}{
		{12, []int64{1, 1, 1}, []int{4, 4, 4}},
		{13, []int64{1, 1, 1}, []int{5, 4, 4}},
		{10, []int64{70, 20, 10}, []int{7, 2, 1}},
		{4, []int64{97, 1, 1, 1}, []int{1, 1, 1, 1}},
		{6, []int64{97, 1, 1, 1}, []int{3, 1, 1, 1}},
	} {
		if got := Apportion(tc.layers, tc.weights); !slices.Equal(got, tc.want) {
			t.Errorf("%d layers by %d: %d, want %d", tc.layers, tc.weights, got, tc.want)
		}
	}
}
