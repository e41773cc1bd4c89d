package model

import (
	"errors"
	"strings"
	"testing"
)

func TestValidateNamesFieldValueAndRemedy(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Config)
		want   []string // parts of the error; none: valid
	}{
		{"tiny is valid", func(*Config) {}, nil},
		{"one head", func(c *Config) { c.Heads = 1 }, nil},
		{"no vocabulary", func(c *Config) { c.Vocab = 0 }, []string{"vocab is 0", "2 to"}},
		{"absurd vocabulary", func(c *Config) { c.Vocab = 1 << 40 }, []string{"vocab is 1099511627776"}},
		{"no context", func(c *Config) { c.Context = 0 }, []string{"context is 0"}},
		{"negative blocks", func(c *Config) { c.Blocks = -3 }, []string{"blocks is -3", "1 to 1024"}},
		{"no channels", func(c *Config) { c.Channels = 0 }, []string{"channels is 0"}},
		{"no heads", func(c *Config) { c.Heads = 0 }, []string{"heads is 0", "1 to 24"}},
		{"heads that do not divide", func(c *Config) { c.Heads = 5 }, []string{"channels is 24", "5 heads", "take channels 25"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := tiny
			test.change(&c)
			err := c.Validate()
			if (err == nil) != (test.want == nil) {
				t.Fatalf("Validate: %v", err)
			}
			for _, part := range test.want {
				if !errors.Is(err, ErrBadConfig) || !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}

func TestPresets(t *testing.T) {
	params := map[string][2]int64{ // accepted range
		"nano":       {1_000_000, 3_000_000},
		"small-5m":   {4_950_000, 5_050_000},
		"small-10m":  {10_500_000, 11_000_000},
		"gpt2-124m":  {124_439_808, 124_439_808},
		"llama-160m": {162_417_408, 162_417_408},
		"gpt2-355m":  {354_823_168, 354_823_168},
		"llama-1b":   {1_100_048_384, 1_100_048_384},
		"gpt3-1.3b":  {1_315_723_264, 1_315_723_264},
	}
	if len(PresetNames()) != len(params) {
		t.Errorf("presets are %v", PresetNames())
	}
	for _, name := range PresetNames() {
		c, err := Preset(name)
		must(t, err)
		must(t, c.Validate())
		if n := c.Params(); n < params[name][0] || n > params[name][1] {
			t.Errorf("%s has %d parameters, want %v", name, n, params[name])
		}
	}
	_, err := Preset("huge")
	if !errors.Is(err, ErrUnknownPreset) || !strings.Contains(err.Error(), `"huge"`) || !strings.Contains(err.Error(), "gpt2-124m") {
		t.Errorf("error of an unknown preset: %v", err)
	}
}

// TestLayerTensors checks that tensors fill their layer's vector without gaps and that
// only matrices decay.
func TestLayerTensors(t *testing.T) {
	for layer := range tiny.Layers() {
		end := 0
		for _, tensor := range tiny.LayerTensors(layer) {
			if tensor.Off != end {
				t.Errorf("layer %d: %s is at %d, want %d", layer, tensor.Name, tensor.Off, end)
			}
			if tensor.Decay != (len(tensor.Shape) == 2) {
				t.Errorf("layer %d: %s has decay %v", layer, tensor.Name, tensor.Decay)
			}
			end += tensor.Len()
		}
		if end != tiny.LayerLen(layer) {
			t.Errorf("layer %d: tensors have %d elements, LayerLen is %d", layer, end, tiny.LayerLen(layer))
		}
	}
	embed, head := tiny.LayerTensors(0), tiny.LayerTensors(tiny.Layers()-1)
	tail := head[len(head)-1]
	if embed[0].Off != 0 || embed[0].Len() != tiny.TiedLen() || tail.Name != embed[0].Name || tail.Len() != tiny.TiedLen() {
		t.Errorf("the tied tensor is %v and %v", embed[0], tail)
	}
}
