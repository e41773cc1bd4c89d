package plan

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
)

func TestSyncRules(t *testing.T) {
	for text, want := range map[string]SyncRule{
		"every-step":        {},
		"local":             {Local: true},
		"local:h=50":        {Local: true, Every: 50},
		"local:codec=topk":  {Local: true, Codec: "topk"},
		"local:warmup=500":  {Local: true, Warmup: 500},
		"local:delay=0":     {Local: true, AtOnce: true},
		"local:h=9,delay=8": {Local: true, Every: 9, Delay: 8},
		"local:warmup=10%":  {Local: true, WarmupPercent: 10},
		"local:h=100000":    {Local: true, Every: MaxEvery},
		"local:h=30,codec=int8,warmup=10%,lr=0.7,momentum=0.5": {Local: true, Every: 30, Codec: "int8", WarmupPercent: 10, LR: 0.7, Momentum: 0.5},
		"local:lr=1,momentum=0":                                {Local: true, LR: 1},
	} {
		got, err := ParseSync(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%q: %+v (%v), printed as %q", text, got, err, got)
		}
		var train, again TrainSpec
		train.Sync = want
		b, err := json.Marshal(train)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &again); err != nil || again != train || strings.Contains(string(b), "sync") != want.Local {
			t.Errorf("%q in a specification: %s, read as %+v (%v)", text, b, again.Sync, err)
		}
	}
	if r, err := ParseSync("local:momentum=.5,lr=.7,h=050"); err != nil || r.String() != "local:h=50,lr=0.7,momentum=0.5" {
		t.Errorf("another order: %v, %v", r, err)
	}
	for _, text := range []string{
		"", "locally", "local:", "every-step:h=5", "local:h=0", "local:h=-1", "local:h=1048577", "local:h=99999999999999999999", "local:h", "local:h=5,", "local:h=5,h=6",
		"local:codec=", "local:codec=fp8", "local:warmup=100%", "local:warmup=-5%", "local:warmup=300%", "local:warmup=1.5%", "local:warmup=5,warmup=5%", "local:alpha=0.5", "local:delay=", "local:delay=-1", "local:h=9,delay=9", "local:delay=2000000", "local:delay=100000", "local:h=100001",
		"local:lr=0.7", "local:momentum=0.5", "local:lr=0,momentum=0", "local:lr=17,momentum=0", "local:lr=NaN,momentum=0", "local:lr=Inf,momentum=0", "local:lr=1e-9,momentum=0",
		"local:lr=1,momentum=1", "local:lr=1,momentum=-0.1", "local:lr=1,momentum=NaN", "local:H=5", "Local", "local:h=5;codec=int8",
	} {
		if r, err := ParseSync(text); !errors.Is(err, ErrBadInput) {
			t.Errorf("%q is taken as %+v (%v)", text, r, err)
		}
	}
	for _, bad := range []SyncRule{{Every: 5}, {LR: 1}, {Local: true, Momentum: 0.5}, {Local: true, Warmup: 1, WarmupPercent: 1}, {Local: true, LR: math.NaN()}} {
		if _, err := bad.MarshalText(); !errors.Is(err, ErrBadInput) {
			t.Errorf("%+v is written: %v", bad, err)
		}
	}
}

func FuzzParseSync(f *testing.F) {
	f.Add("every-step")
	f.Add("local:h=30,codec=int8,warmup=10%,lr=0.7,momentum=0.5")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseSync(text)
		if err != nil {
			return
		}
		if again, err := ParseSync(r.String()); err != nil || again != r {
			t.Fatalf("%q is %+v, whose text %q is %+v (%v)", text, r, r, again, err)
		}
	})
}

func TestOuterOptimizer(t *testing.T) {
	for _, c := range []struct {
		rule, codec  string
		inner        OptimizerRule
		lr, momentum float64
	}{
		{"local", "int8", AdamW, 0.7, 0.5},
		{"local", "topk", AdamW, 1, 0},
		{"local", "int8", Muon, 0.7, 0.6},
		{"local", "topk", Muon, 1, 0},
		{"local:lr=0.9,momentum=0", "int8", AdamW, 0.9, 0},
		{"local:lr=0.7,momentum=0.9", "topk", AdamW, 0.7, 0.9},
		{"local:lr=1,momentum=0.8", "bf16", Muon, 1, 0.8},
	} {
		rule, err := ParseSync(c.rule)
		if err != nil {
			t.Fatal(err)
		}
		if lr, momentum := (TrainSpec{Sync: rule, Optimizer: c.inner}).OuterOptimizer(c.codec); lr != c.lr || momentum != c.momentum {
			t.Errorf("%s with %s: %v and %v, want %v and %v", c.rule, c.codec, lr, momentum, c.lr, c.momentum)
		}
	}
}

func TestWarmupEnds(t *testing.T) {
	for _, c := range []struct {
		rule        SyncRule
		steps, want Step
	}{
		{SyncRule{Local: true}, 1000, 0},
		{SyncRule{Local: true, Warmup: 70}, 1000, 70},
		{SyncRule{Local: true, WarmupPercent: 10}, 610, 61},
		{SyncRule{Local: true, WarmupPercent: 7}, 199, 13},
		{SyncRule{Local: true, WarmupPercent: 99}, math.MaxUint64, math.MaxUint64/100*99 + 14},
	} {
		if got := c.rule.WarmupEnd(c.steps); got != c.want {
			t.Errorf("%v of %d steps: %d, want %d", c.rule, c.steps, got, c.want)
		}
	}
}
