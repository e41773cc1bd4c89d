package config

import (
	"reflect"
	"slices"
)

// Load reads a run.yaml over the defaults. Errors about its content wrap ErrInvalid and name file and line.
func Load(path string) (Config, error) {
	c := Default()
	_, err := readFile(path, "run file", &c)
	return c.normal(), err
}

// normal makes equal configurations equal to reflect.DeepEqual, and lets the least
// learning rate follow a learning rate that was set below its default.
func (c Config) normal() Config {
	if c.MinLR == Default().MinLR && c.MinLR > c.LR {
		c.MinLR = c.LR / 10
	}
	if len(c.Data) == 0 {
		c.Data = nil
	}
	return c
}

// Keys lists the keys of a run.yaml in the order in which they are printed.
func Keys() []string { return keysOf(reflect.TypeFor[Config]()) }

// Effective returns the settings of the file, or of Default without one, under the flags that were given, checked. To
// resume, only the settings of a node may be among them.
func Effective(file string, flags Config, given func(key string) bool) (Config, error) {
	c := Default()
	var keys []string
	if file != "" {
		var err error
		if keys, err = readFile(file, "run file", &c); err != nil {
			return Config{}, err
		}
		c = c.normal()
	}
	c = Merge(c, flags, given)
	c = c.fitDefaults(func(key string) bool { return given(key) || slices.Contains(keys, key) })
	if c.Resume {
		if err := refuseFixed(file, keys, given); err != nil {
			return Config{}, err
		}
	}
	if err := c.fitEmulation(); err != nil {
		return Config{}, err
	}
	return c, c.Validate()
}

// usualLR holds learning rates of models for which the default is too high, from the papers of GPT-3 (Brown et al. 2020,
// table 2.1) and TinyLlama (Zhang et al. 2024, section 2.4).
var usualLR = map[string]float64{"gpt2-124m": 6e-4, "llama-160m": 6e-4, "llama-1b": 4e-4, "gpt3-1.3b": 2e-4}

// tuningLR is for weights that have been trained already.
const tuningLR = 5e-5

// adapterLR is for adapters of such weights (Hu et al. 2021, table 11).
const adapterLR = 2e-4

// fitDefaults makes the settings that nobody has named fit the model.
func (c Config) fitDefaults(named func(key string) bool) Config {
	lr, known := usualLR[c.Preset]
	if c.Init != "" {
		if lr, known = tuningLR, true; c.LoRARank > 0 || c.LoRA != "" {
			lr = adapterLR
		}
		if !named("preset") {
			c.Preset = "" // the default is for who names no model
		}
	}
	if !named("lr") && known {
		c.LR = lr
		if !named("min_lr") {
			c.MinLR = lr / 10
		}
	}
	return c
}

// Merge returns file with the fields of flags whose keys were given explicitly.
func Merge(file, flags Config, given func(key string) bool) Config {
	out, from := reflect.ValueOf(&file).Elem(), reflect.ValueOf(flags)
	for i, key := range Keys() {
		if given(key) {
			out.Field(i).Set(from.Field(i))
		}
	}
	return file.normal()
}
