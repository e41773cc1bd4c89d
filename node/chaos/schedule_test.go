package chaos

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func TestSchedule(t *testing.T) {
	const within, every = 30 * time.Minute, 20 * time.Second
	counts := map[Kind]int{}
	for seed := range uint64(50) {
		faults := Schedule(seed, 5, within, every, Kinds)
		if !reflect.DeepEqual(faults, Schedule(seed, 5, within, every, Kinds)) {
			t.Fatalf("seed %d: two schedules", seed)
		}
		if n := len(faults); n < 60 || n > 180 {
			t.Errorf("seed %d: %d faults in %v, one every %v", seed, n, within, every)
		}
		before := time.Duration(0)
		for i, f := range faults {
			counts[f.Kind]++
			if i > 0 && (f.At-before < every/2 || f.At-before > every*3/2) || f.At >= within {
				t.Errorf("seed %d: fault %d at %v after %v", seed, i, f.At, before)
			}
			before = f.At
			if f.Kind.spared() && f.Node == 0 || (f.Kind == Join) != (f.Node == 5) || f.Node < 0 || f.Node > 5 || f.Away < time.Second {
				t.Errorf("seed %d: %+v", seed, f)
			}
		}
	}
	for _, kind := range Kinds {
		if counts[kind] == 0 {
			t.Errorf("no seed has a %s", kind)
		}
	}
	if _, err := ParseKinds([]string{"kill", "flood"}); !errors.Is(err, ErrOptions) {
		t.Errorf("an unknown kind: %v", err)
	}
}

// TestRotChangesOneFile flips bits of one file, the same for a seed.
func TestRotChangesOneFile(t *testing.T) {
	damage := func(seed uint64) (changed map[string]string) {
		dir, changed := t.TempDir(), map[string]string{}
		for _, name := range []string{"a", "b", "c"} {
			if err := os.WriteFile(filepath.Join(dir, name), make([]byte, 100), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := rot(dir, seed); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "b", "c"} {
			if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != string(make([]byte, 100)) {
				changed[name] = string(b)
			}
		}
		return changed
	}
	if one := damage(4); len(one) != 1 || !reflect.DeepEqual(one, damage(4)) {
		t.Errorf("changed %v, then %v", one, damage(4))
	}
	if err := rot(t.TempDir(), 1); err != nil {
		t.Errorf("an empty store: %v", err)
	}
}

// TestMeasure reads pauses and throughput off made times: a node of two is away for 4 of 10 s.
func TestMeasure(t *testing.T) {
	start := time.Now()
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	f := &fleet{alive: []span{{at(-5), 2}, {at(2), 1}, {at(6), 2}}}
	for _, p := range []progress{{Step: 1, at: at(-1)}, {Step: 2, at: at(0)}, {Step: 3, at: at(1)}, {Step: 4, at: at(5)}, {Step: 4, at: at(6)}, {Step: 8, at: at(10)}} {
		f.took(p)
	}
	r := Report{Nodes: 2, Faults: []Injected{{at: at(2)}, {at: at(5.5)}}}
	r.begin(progress{Step: 1, at: at(-1)}, progress{Step: 2, at: at(0)})
	r.measure(f)
	if r.Faults[0].PauseS != 4 || r.Faults[1].PauseS != 5 {
		t.Errorf("pauses %v and %v s", r.Faults[0].PauseS, r.Faults[1].PauseS)
	}
	if r.Steps != 6 || r.Seconds != 10 || r.Kept != 6.0/8 {
		t.Errorf("%d steps in %v s, kept %v", r.Steps, r.Seconds, r.Kept)
	}
}

func TestOptions(t *testing.T) {
	good := Options{Dir: t.TempDir(), Nodes: 3, Within: time.Minute, Every: time.Second}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for _, change := range []func(*Options){
		func(o *Options) { o.Nodes = 2 }, func(o *Options) { o.Within = 0 }, func(o *Options) { o.Every = 0 },
		func(o *Options) {
			if err := os.Mkdir(filepath.Join(o.Dir, "node-0"), 0o700); err != nil {
				t.Fatal(err)
			}
		},
	} {
		bad := good
		change(&bad)
		if err := bad.check(); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
