package config

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pnode/pipeline/model"
)

func TestModelComesFromInit(t *testing.T) {
	given := func(keys ...string) func(string) bool {
		return func(key string) bool { return slices.Contains(keys, key) }
	}
	flags := Default()
	flags.Init = "weights"
	c, err := Effective("", flags, given("init"))
	if err != nil || c.Preset != "" || c.LR != tuningLR || c.MinLR != tuningLR/10 {
		t.Errorf("preset %q, lr %v, %v, %v", c.Preset, c.LR, c.MinLR, err)
	}
	var printed bytes.Buffer
	if err := c.Print(&printed); err != nil {
		t.Fatal(err)
	}
	again, err := Parse("printed", printed.Bytes())
	if err != nil || !reflect.DeepEqual(again, c) || again.Validate() != nil {
		t.Errorf("%+v, %v, %v", again, err, again.Validate())
	}
	_, err = Effective("", flags, given("init", "preset"))
	if want := "config: --preset is nano: want none: the model comes from --init, weights"; err == nil || err.Error() != want || !errors.Is(err, ErrInvalid) {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestLearningRateFitsThePreset(t *testing.T) {
	flags := Default()
	flags.Preset, flags.LR = "gpt2-124m", 1e-3
	for keys, want := range map[string]float64{"preset": 6e-4, "preset lr": 1e-3} {
		c, err := Effective("", flags, func(key string) bool { return slices.Contains(strings.Fields(keys), key) })
		if err != nil || c.LR != want {
			t.Errorf("%s: lr %v, %v, want %v", keys, c.LR, err, want)
		}
	}
	for name := range usualLR {
		if _, err := model.Preset(name); err != nil {
			t.Error(err)
		}
	}
}

func TestFit(t *testing.T) {
	learned := model.Config{Vocab: 256, Context: 64, Blocks: 2, Heads: 2, Channels: 16}
	rotary := learned
	rotary.Positions = model.RoPE
	for _, tt := range []struct {
		model       model.Config
		context, to int
		want        string
	}{
		{learned, 0, 64, ""},
		{learned, 64, 64, ""},
		{learned, 32, 32, ""},
		{learned, 65, 0, "context is 65: want 1 to 64, the longest"},
		{rotary, 0, 64, ""},
		{rotary, 16, 16, ""},
		{rotary, 65, 0, "context is 65: want 1 to 64, the longest"},
	} {
		c := Default()
		c.Preset, c.Init, c.Context = "", "weights", tt.context
		m, err := c.Fit(tt.model)
		switch {
		case tt.want == "" && (err != nil || m.Context != tt.to):
			t.Errorf("%d: %+v, %v", tt.context, m, err)
		case tt.want != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%d: got %v, want %s", tt.context, err, tt.want)
		}
	}
	c := Default()
	c.Preset, c.Init, c.Stages = "", "weights", 5
	if _, err := c.Fit(learned); err == nil || !strings.Contains(err.Error(), "1 to 4, the layers of the model") {
		t.Error(err)
	}
	c = Default()
	c.Context = 32
	if m, err := c.Model(); err != nil || m.Context != 32 {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestAdaptersFitTheWeights(t *testing.T) {
	gpt2 := model.Config{Vocab: 256, Context: 64, Blocks: 2, Heads: 2, Channels: 16}
	rotary := gpt2
	rotary.Positions = model.RoPE
	c := Default()
	c.Preset, c.Init, c.LoRARank = "", "weights", 4
	for want, m := range map[string]model.Config{"c_attn": gpt2, "q_proj,v_proj": rotary} {
		if got, err := c.Fit(m); err != nil || got.LoRA != (model.LoRA{Rank: 4, Alpha: 8, Targets: want}) {
			t.Errorf("%+v, %v, want %s", got.LoRA, err, want)
		}
	}
	c.LoRAAlpha, c.LoRATargets = 2, "k_proj"
	if got, err := c.Fit(rotary); err != nil || got.LoRA != (model.LoRA{Rank: 4, Alpha: 2, Targets: "k_proj"}) {
		t.Errorf("%+v, %v", got.LoRA, err)
	}
	if _, err := c.Fit(gpt2); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), `lora_targets has "k_proj": take names of c_attn, c_fc, c_proj`) {
		t.Error(err)
	}
	flags := Default()
	flags.Init, flags.LoRARank = "weights", 4
	got, err := Effective("", flags, func(key string) bool { return key == "init" || key == "lora_rank" })
	if err != nil || got.LR != adapterLR {
		t.Errorf("lr is %v, %v", got.LR, err)
	}
}

func TestDropoutIsOfTheModel(t *testing.T) {
	c := Default()
	c.Dropout = 0.25
	preset, err := c.Model()
	if err != nil || preset.EmbedDropout != 0.25 || preset.ResidualDropout != 0.25 {
		t.Errorf("%+v, %v", preset, err)
	}
	c.Preset, c.Init, c.Dropout = "", "weights", 0
	if m, err := c.Fit(preset); err != nil || m.EmbedDropout != 0 || m.ResidualDropout != 0 {
		t.Errorf("the dropout that a model came with stays: %+v, %v", m, err)
	}
}

func TestTheLeastRateFollowsALowerRate(t *testing.T) {
	c, err := Parse("run.yaml", []byte("lr: 0.0001\n"))
	if err != nil || c.MinLR != 1e-5 || c.Validate() != nil {
		t.Errorf("min_lr is %v (%v), want a tenth of lr", c.MinLR, err)
	}
	c, err = Parse("run.yaml", []byte("lr: 0.0001\nmin_lr: 0.0002\n"))
	if err != nil || c.MinLR != 2e-4 {
		t.Errorf("min_lr is %v (%v), want what was given", c.MinLR, err)
	}
}

func nano(t *testing.T) model.Config {
	t.Helper()
	m, err := model.Preset("nano")
	if err != nil {
		t.Fatal(err)
	}
	return m
}
