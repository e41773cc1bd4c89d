package outer

import (
	"errors"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pnode/kernels"
	"pnode/kernels/cpu/cputest"
	"pnode/planner/plan"
)

func newVectors(t testing.TB, d kernels.Device, n int) Vectors {
	return Vectors{Params: cputest.View(t, d, n), Reference: cputest.View(t, d, n), Momentum: cputest.View(t, d, n), Gradient: cputest.View(t, d, n)}
}

// mean fills a replica's gradient with the weighted mean of what the replicas bring, in their order.
func mean(into []float32, weights []float32, parts [][]float32) {
	for i := range into {
		into[i] = 0
		for r, w := range weights {
			into[i] += float32(w * parts[r][i])
		}
	}
}

// history has the two numbers of a replica of a fixture after so many inner steps.
type history map[plan.Step][2]float32

type fixture struct {
	name              string
	delay             plan.Step
	alpha             float32
	params, reference [2]history
}

func readFixtures(t *testing.T) (all []*fixture) {
	t.Helper()
	text, err := os.ReadFile("testdata/torchft.txt")
	if err != nil {
		t.Fatal(err)
	}
	parsed := func(s string) float32 {
		x, err := strconv.ParseFloat(s, 32)
		if err != nil {
			t.Fatal(err)
		}
		return float32(x)
	}
	replica := 0
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch fields[0] {
		case "#":
		case "case":
			all = append(all, &fixture{name: fields[1], delay: plan.Step(parsed(fields[2])), alpha: parsed(fields[3])})
			replica = 0
		default:
			h := history{}
			for _, field := range fields[1:] {
				step, values, _ := strings.Cut(field, ":")
				first, second, _ := strings.Cut(values, ",")
				h[plan.Step(parsed(step))] = [2]float32{parsed(first), parsed(second)}
			}
			f := all[len(all)-1]
			of := &f.params
			if fields[0] == "reference" {
				of = &f.reference
			}
			of[replica], of[1] = h, h
			if fields[0] == "reference" {
				replica++
			}
		}
	}
	return all
}

// TestTorchftFixtures carries out what torchft's regression tests do and compares every number exactly. In the last
// case the second replica is lost after 6 inner steps. It begins anew, trains 3 inner steps by itself, and then takes the first
// one's state and is part of the outer step that follows.
func TestTorchftFixtures(t *testing.T) {
	fixtures := readFixtures(t)
	if len(fixtures) != 7 {
		t.Fatalf("%d fixtures, want 7", len(fixtures))
	}
	for _, f := range fixtures {
		t.Run(f.name, func(t *testing.T) {
			d, q := cputest.New(t)
			rounds := plan.Rounds{Every: 6, Fragments: 2, Delay: f.delay}
			optimizer := Optimizer{LR: 2, Alpha: f.alpha}
			if err := errors.Join(rounds.Validate(), optimizer.Validate()); err != nil {
				t.Fatal(err)
			}
			begin := func(v Vectors) {
				q.Do(kernels.Fill(v.Params, 2, 1))
				q.Do(kernels.Fill(v.Reference, 2, 1))
			}
			replicas, sent := [2]Vectors{newVectors(t, d, 2), newVectors(t, d, 2)}, [2]Vectors{}
			update := cputest.View(t, d, 2)
			q.Do(kernels.Fill(update, 2, -2))
			for _, v := range replicas {
				begin(v)
			}
			lost := f.name == "failure_recovery_0"
			local := [2]plan.Step{} // inner steps that a replica has done since it began
			checked := 0
			check := func(r int) {
				if err := q.Sync(); err != nil {
					t.Fatal(err)
				}
				if lost && r == 1 && local[0] <= 6 && local[0] > 0 { // of the time before it is lost nothing is known
					return
				}
				for what, compared := range map[string]struct {
					want history
					got  kernels.View
				}{"parameters": {f.params[r], replicas[r].Params}, "reference": {f.reference[r], replicas[r].Reference}} {
					if want, known := compared.want[local[r]]; known {
						checked++
						if got := [2]float32(cputest.Floats(compared.got)); got != want {
							t.Fatalf("replica %d after %d inner steps: %s %v, want %v", r, local[r], what, got, want)
						}
					}
				}
			}
			for r := range replicas {
				check(r)
			}
			last := plan.Step(len(f.params[0]) - 1)
			for step := plan.Step(1); step <= last; step++ {
				for r, v := range replicas {
					local[r]++
					q.Do(kernels.Add(v.Params, v.Params, update, 2))
				}
				if lost && step == 9 { // torchft's state_dict: parameters and reference of a live replica
					q.Do(kernels.Copy(replicas[1].Params, replicas[0].Params, 2))
					q.Do(kernels.Copy(replicas[1].Reference, replicas[0].Reference, 2))
				}
				leaves, merged := rounds.After(step)
				if leaves != plan.NoFragment {
					for r, v := range replicas {
						sent[r] = v.Slice(leaves, 1)
						sent[r].Subtract(q)
					}
				}
				if merged != plan.NoFragment {
					if err := q.Sync(); err != nil {
						t.Fatal(err)
					}
					parts := [][]float32{slices.Clone(cputest.Floats(sent[0].Gradient)), slices.Clone(cputest.Floats(sent[1].Gradient))}
					for _, v := range sent {
						mean(cputest.Floats(v.Gradient), Weights([]int64{5, 5}), parts)
						optimizer.Step(q, v)
					}
				}
				for r := range replicas {
					check(r)
				}
				if lost && step == 6 {
					local[1] = 0
					begin(replicas[1])
				}
			}
			want := 0
			for r := range replicas {
				want += len(f.params[r]) + len(f.reference[r])
			}
			if checked != want {
				t.Errorf("compared %d numbers, the fixture has %d", checked, want)
			}
		})
	}
}

// TestStepByTheDefinition compares with the formulas of Nesterov's momentum as they are written, to the bit, on
// magnitudes so mixed that another order of operations shows.
func TestStepByTheDefinition(t *testing.T) {
	const n = 1000
	d, q := cputest.New(t)
	v := newVectors(t, d, n)
	o := Optimizer{LR: 0.7, Momentum: 0.9, Alpha: 0.25}
	params, reference, u := make([]float32, n), make([]float32, n), make([]float32, n)
	noise := func(step, i int) float32 {
		return float32(math.Sin(float64(step*n+i+1)) * math.Pow(10, float64(i%9-4)))
	}
	for i := range n {
		params[i] = noise(0, i)
		reference[i] = params[i]
	}
	copy(cputest.Floats(v.Params), params)
	copy(cputest.Floats(v.Reference), reference)
	for step := 1; step <= 5; step++ {
		for i := range n {
			params[i] += noise(step, i)
			cputest.Floats(v.Params)[i] = params[i]
		}
		v.Slice(0, 300).Subtract(q) // stretches of any length give the same
		v.Slice(300, n-300).Subtract(q)
		if err := q.Sync(); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if got, want := cputest.Floats(v.Gradient)[i], reference[i]-params[i]; got != want {
				t.Fatalf("step %d: d[%d] is %v, want %v", step, i, got, want)
			}
		}
		for i, g := range cputest.Floats(v.Gradient) {
			u[i] = float32(o.Momentum*u[i]) + g
			reference[i] += float32(-o.LR * (g + float32(o.Momentum*u[i])))
			params[i] = float32(o.Alpha*params[i]) + float32((1-o.Alpha)*reference[i])
		}
		o.Step(q, v.Slice(0, 700))
		o.Step(q, v.Slice(700, n-700))
		if err := q.Sync(); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if cputest.Floats(v.Reference)[i] != reference[i] || cputest.Floats(v.Params)[i] != params[i] || cputest.Floats(v.Momentum)[i] != o.Momentum*u[i] {
				t.Fatalf("step %d element %d: reference %v, parameters %v, momentum %v, want %v, %v, %v", step, i,
					cputest.Floats(v.Reference)[i], cputest.Floats(v.Params)[i], cputest.Floats(v.Momentum)[i], reference[i], params[i], o.Momentum*u[i])
			}
		}
	}
}

// TestInnerStepsAreKept: with the parameters as they left, a replica by itself that takes what it sent is where plain training is
// once all that it did has been merged, however late. All numbers are whole, so that sums are exact. Without, steps after leaving are lost.
func TestInnerStepsAreKept(t *testing.T) {
	for _, keep := range []bool{true, false} {
		for delay := range plan.Step(5) {
			d, q := cputest.New(t)
			v, inner := newVectors(t, d, 4), cputest.View(t, d, 4)
			if keep {
				v.Left = cputest.View(t, d, 4)
			}
			rounds, o := plan.Rounds{Every: 10, Fragments: 2, Delay: delay}, Optimizer{LR: 1}
			want := [4]float32{}
			for step := plan.Step(1); step <= 30; step++ {
				for i := range want {
					cputest.Floats(inner)[i] = float32(step) * float32(i+1)
					want[i] += cputest.Floats(inner)[i]
				}
				q.Do(kernels.Add(v.Params, v.Params, inner, 4))
				leaves, merged := rounds.After(step)
				if leaves != plan.NoFragment {
					v.Slice(2*leaves, 2).Subtract(q)
				}
				if merged != plan.NoFragment {
					o.Step(q, v.Slice(2*merged, 2))
				}
				if err := q.Sync(); err != nil {
					t.Fatal(err)
				}
			}
			if got := [4]float32(cputest.Floats(v.Params)); (got == want) != (keep || delay == 0) {
				t.Errorf("kept: %v, %d steps late: %v, plain training is at %v", keep, delay, got, want)
			}
		}
	}
}

func TestOptimizerBounds(t *testing.T) {
	nan := float32(math.NaN())
	for _, o := range []Optimizer{{}, {LR: 17}, {LR: nan}, {LR: 1, Momentum: 1}, {LR: 1, Momentum: nan}, {LR: 1, Alpha: -0.1}, {LR: 1, Alpha: nan}} {
		if err := o.Validate(); !errors.Is(err, ErrSetting) {
			t.Errorf("%+v is taken: %v", o, err)
		}
	}
}

func TestWeights(t *testing.T) {
	for _, tt := range []struct {
		tokens []int64
		want   []float32
	}{
		{[]int64{4, 4}, []float32{0.5, 0.5}},
		{[]int64{3, 0, 1}, []float32{0.75, 0, 0.25}},
		{[]int64{0, 0}, []float32{0, 0}},
		{[]int64{3, -2}, []float32{1, 0}},
		{[]int64{-2, -2}, []float32{0, 0}},
		{nil, []float32{}},
	} {
		if got := Weights(tt.tokens); !slices.Equal(got, tt.want) {
			t.Errorf("%v tokens weigh %v, want %v", tt.tokens, got, tt.want)
		}
	}
}
