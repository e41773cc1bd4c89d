package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Load reads a run.yaml over the defaults. Errors about its content wrap ErrInvalid and name file and line.
func Load(path string) (Config, error) {
	c := Default()
	_, err := readFile(path, "run file", &c)
	return c.normal(), err
}

// normal makes equal configurations equal to reflect.DeepEqual, lets the least
// learning rate follow a learning rate that was set below its default, and has a node that
// the local network finds listen where that reaches it.
func (c Config) normal() Config {
	if c.MinLR == Default().MinLR && c.MinLR > c.LR {
		c.MinLR = c.LR / 10
	}
	if len(c.Data) == 0 {
		c.Data = nil
	}
	if c.LAN && c.Listen == "" {
		c.Listen = AnyPort
	}
	return c
}

// Keys lists the keys of a run.yaml in the order in which they are printed.
func Keys() []string { return keysOf(reflect.TypeFor[Config]()) }

// Effective returns the settings of the file, or of Default without one, under the flags that were given, checked. To
// resume, only the settings of a node may be among them.
func Effective(file string, flags Config, given func(key string) bool) (Config, error) {
	c := Default()
	if file != "" {
		keys, err := readFile(file, "run file", &c)
		if err != nil {
			return Config{}, err
		}
		c = c.normal()
		c.inFile = map[string]string{}
		for _, key := range keys {
			if !given(key) {
				c.inFile[key] = file + ": " + key
			}
		}
	}
	c = Merge(c, flags, given)
	c = c.fitDefaults(func(key string) bool { return given(key) || c.inFile[key] != "" })
	if c.Resume {
		if err := c.refuseFixed(given); err != nil {
			return Config{}, err
		}
		if given("steps") {
			c.extends = c.Steps
		}
	}
	if err := c.fitEmulation(); err != nil {
		return Config{}, err
	}
	return c, c.Validate()
}

// usualLR holds learning rates of models for which the default is too high, from the papers of GPT-3 (Brown et al. 2020,
// table 2.1) and TinyLlama (Zhang et al. 2024, section 2.4).
var usualLR = map[string]float64{"gpt2-124m": 6e-4, "llama-160m": 6e-4, "gpt2-355m": 3e-4, "llama-1b": 4e-4, "gpt3-1.3b": 2e-4}

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

// nodeKeys lists the settings of a node or of this start alone. All others are part of the run's specification, which is
// fixed when the run starts.
var nodeKeys = []string{"dir", "resume", "local", "cluster", "emulate", "name", "listen", "lan", "announce", "relay", "keep_whole", "await_holders", "on_lost_majority", "notices", "grace", "threads", "devices", "memory", "sample_every", "sample_prompt", "trace", "tensorboard", "csv", "mlflow", "otlp", "otlp_every", "metrics", "json", "log_level"}

// flagOf returns the flag of a key.
func flagOf(key string) string { return "--" + strings.ReplaceAll(key, "_", "-") }

// refuseFixed refuses settings of the run's specification for a run that is resumed: in
// the file by name, or given by flag. The error wraps ErrInvalid.
func (c Config) refuseFixed(given func(key string) bool) error {
	var fixed []string
	for _, key := range Keys() {
		switch {
		case slices.Contains(nodeKeys, key), key == "steps" && c.inFile[key] == "": // the flag moves the run's end
		case given(key) || c.inFile[key] != "":
			fixed = append(fixed, c.written(key))
		}
	}
	if len(fixed) == 0 {
		return nil
	}
	const most = 4
	if more := len(fixed) - most; more > 0 {
		fixed = append(fixed[:most:most], fmt.Sprintf("%d more settings", more))
		fixed = append(fixed[:most-1], fixed[most-1]+" and "+fixed[most])
	}
	free := []string{"--steps"}
	for _, key := range nodeKeys {
		if key != "resume" {
			free = append(free, flagOf(key))
		}
	}
	return fmt.Errorf("%w: %s cannot be given with --resume: a run's specification is fixed when it starts; only %s can be given, other settings need a new run, without --resume",
		ErrInvalid, strings.Join(fixed, ", "), strings.Join(free, ", "))
}
