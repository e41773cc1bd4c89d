package chaos

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pnode/node/api"
	"pnode/node/config"
	"pnode/node/notice"
	"pnode/planner/plan"
)

func TestSchedule(t *testing.T) {
	const within, every, longest = 30 * time.Minute, 20 * time.Second, 8 * time.Second
	counts := map[Kind]int{}
	for seed := range uint64(50) {
		faults := Schedule(seed, 5, within, every, longest, Kinds)
		if !reflect.DeepEqual(faults, Schedule(seed, 5, within, every, longest, Kinds)) {
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
			if f.Kind == OneWay && (f.To == f.Node || f.To < 0 || f.To > 4) || !f.Kind.isLong() && f.Away > longest {
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
	for _, p := range []progress{{Step: 1, at: at(-1)}, {Step: 2, at: at(0)}, {Step: 3, at: at(1)}, {Step: 4, at: at(5)}, {Step: 4, at: at(6)}, {Step: 8, Generation: 2, at: at(10)}} {
		f.took(p)
	}
	r := Report{Nodes: 2, Faults: []Injected{{Fault: Fault{Kind: Kill}, at: at(2)}, {Fault: Fault{Kind: Kill}, generation: 1, at: at(5.5)}}}
	r.begin(progress{Step: 1, at: at(-1)}, progress{Step: 2, at: at(0)})
	r.measure(f)
	if r.Faults[0].PauseS != 4 || r.Faults[1].PauseS != 5 {
		t.Errorf("pauses %v and %v s", r.Faults[0].PauseS, r.Faults[1].PauseS)
	}
	if x := r.Faults[1]; x.NextS != 4.5 || r.Faults[0].NextS != 0 {
		t.Errorf("later plans after %v and %v s", r.Faults[0].NextS, x.NextS)
	}
	want := []Times{{Kill, false, Three{2, 5, 5, 5}, Three{1, 4.5, 4.5, 4.5}}}
	if !reflect.DeepEqual(r.Times, want) {
		t.Errorf("%+v, want %+v", r.Times, want)
	}
	if r.Steps != 6 || r.Seconds != 10 || r.Kept != 6.0/8 {
		t.Errorf("%d steps in %v s, kept %v", r.Steps, r.Seconds, r.Kept)
	}
}

func TestOptions(t *testing.T) {
	good := Options{Dir: t.TempDir(), Nodes: 3, Within: time.Minute, Every: time.Second, Longest: time.Second, AtOnce: 1}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for _, change := range []func(*Options){
		func(o *Options) { o.Nodes = 2 }, func(o *Options) { o.Within = 0 }, func(o *Options) { o.Every = 0 },
		func(o *Options) { o.Longest = 0 }, func(o *Options) { o.AtOnce = 0 }, func(o *Options) { o.AtOnce = 2 },
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

// TestWhatANetworkLacks: loopback has no faults of lines.
func TestWhatANetworkLacks(t *testing.T) {
	if _, err := possible([]Kind{Kill, Cut}, loopback{}); !errors.Is(err, ErrOptions) {
		t.Errorf("a cut on loopback: %v", err)
	}
	all, err := possible(nil, loopback{})
	if err != nil || !slices.Contains(all, Kill) || slices.ContainsFunc(all, Kind.needsLines) {
		t.Errorf("faults on loopback: %v, %v", all, err)
	}
	if _, _, err := openNetwork(Options{Network: Loopback, Line: Line{Rate: 1e6}}); !errors.Is(err, ErrOptions) {
		t.Errorf("a line on loopback: %v", err)
	}
}

func TestLine(t *testing.T) {
	var l Line
	if err := l.Set("100Mbit/s,5ms"); err != nil || l != (Line{Rate: 12.5e6, Delay: config.Span(5 * time.Millisecond)}) || l.String() != "100Mbit/s,5ms" {
		t.Errorf("%v, %v", l, err)
	}
	for _, bad := range []string{"", "100Mbit/s", "5ms,100Mbit/s", "100Mbit/s,5h"} {
		if err := l.Set(bad); err == nil {
			t.Errorf("%q is read as %v", bad, &l)
		}
	}
}

// TestCloud asks the metadata service of a node as the node does.
func TestCloud(t *testing.T) {
	l, err := here{}.listen()
	if err != nil {
		t.Fatal(err)
	}
	c := newCloud(l)
	defer c.close()
	r, err := http.Get(c.url + "/latest/meta-data/spot/instance-action")
	if err != nil {
		t.Fatal(err)
	}
	if r.Body.Close(); r.StatusCode != http.StatusNotFound {
		t.Errorf("without a notice: %s", r.Status)
	}
	setting, err := notice.ParseSetting("aws=" + c.url)
	if err != nil {
		t.Fatal(err)
	}
	ends := time.Now().Add(noticeTime)
	c.take(ends)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var heard notice.Notice
	notice.Watch(ctx, setting, slog.New(slog.DiscardHandler), func(n notice.Notice) { heard = n; cancel() })
	if late := ends.Sub(heard.At); heard.Hint || late < 0 || late > time.Second {
		t.Errorf("a notice of %v is heard as %+v", ends, heard)
	}
}

// TestExplain: the interruption of a fault is that of the plan that followed first, by the node that waited longest. A substitution
// is told by the substitute, and with it the plan that followed.
func TestExplain(t *testing.T) {
	start := time.Now()
	at := func(s int, g plan.Generation, total, load float64) told {
		return told{api.Interruption{Rung: api.RungMemory, TotalS: total, LoadS: load}, g, start.Add(time.Duration(s) * time.Second)}
	}
	kill := func(s int, g plan.Generation) Injected {
		return Injected{Fault: Fault{Kind: Kill}, generation: g, at: start.Add(time.Duration(s) * time.Second)}
	}
	r := Report{Faults: []Injected{kill(0, 1), kill(10, 3), kill(20, 4), kill(30, 4)}}
	r.explain([]told{at(1, 1, 9, 9), at(3, 2, 2, 1), at(3, 2, 3, 2), at(5, 3, 8, 8), at(12, 4, 1, 0), at(33, 5, 5, 1)})
	want := []Parts{{Kind: Kill, Rung: api.RungMemory, Count: 3, Total: 3, Load: 1}}
	if !reflect.DeepEqual(r.Parts, want) || r.Faults[2].Interruption != nil {
		t.Errorf("%+v, want %+v", r.Parts, want)
	}
	substituted := func(s int, g plan.Generation, i api.Interruption) told {
		i.Rung, i.From = api.RungSubstitute, api.SourceReplay
		return told{i, g, start.Add(time.Duration(s) * time.Second)}
	}
	r = Report{Faults: []Injected{kill(0, 3), kill(10, 4)}}
	r.explain([]told{
		substituted(1, 3, api.Interruption{TotalS: 2}), substituted(1, 3, api.Interruption{TotalS: 1, LoadS: .5, ReplayS: .25}),
		at(3, 3, 7, 7), at(4, 4, 1.5, 1), at(12, 5, 2, 1), substituted(14, 5, api.Interruption{TotalS: 3, LoadS: 1}),
	})
	want = []Parts{
		{Kind: Kill, Rung: api.RungSubstitute, From: api.SourceReplay, Count: 1, Total: 1, Load: .5, Replay: .25},
		{Kind: Kill, Rung: api.RungMemory, Count: 2, Total: 2, Load: 1},
	}
	if !reflect.DeepEqual(r.Parts, want) || r.Faults[1].Healed != nil {
		t.Errorf("with a substitute: %+v, want %+v", r.Parts, want)
	}
	var text strings.Builder
	if err := r.Print(&text); err != nil || !strings.Contains(text.String(), "kill: substitute, replay                1     1.00;   0.00") {
		t.Errorf("the report says %v:\n%s", err, text.String())
	}
}
