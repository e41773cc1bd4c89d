package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// maxFileBytes bounds a run.yaml.
const maxFileBytes = 1 << 20

// Load reads a run.yaml over the defaults. It refuses unknown and repeated keys; errors
// about its content wrap ErrInvalid and carry file and line.
func Load(path string) (Config, error) {
	c, _, err := load(path)
	return c, err
}

// load is Load that also tells which keys the file has.
func load(path string) (Config, []string, error) {
	f, err := os.Open(path)
	if err != nil {
		return Config{}, nil, fmt.Errorf("%w: read the run file: %w", ErrInvalid, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return Config{}, nil, fmt.Errorf("%w: read the run file: %w", ErrInvalid, err)
	}
	return parse(path, b)
}

func parse(name string, content []byte) (Config, []string, error) {
	c := Default()
	var keys []string
	fail := func(at ast.Node, err error) (Config, []string, error) {
		where := name
		if at != nil {
			where = fmt.Sprintf("%s:%d", name, at.GetToken().Position.Line)
		}
		return Config{}, nil, fmt.Errorf("%w: %s: %w", ErrInvalid, where, err)
	}
	if len(content) > maxFileBytes {
		return fail(nil, fmt.Errorf("longer than %d bytes", maxFileBytes))
	}
	if !utf8.Valid(content) {
		return fail(nil, errors.New("not UTF-8 text"))
	}
	file, err := parser.ParseBytes(content, 0)
	if err != nil {
		return fail(nil, syntax(err))
	}
	for i, doc := range file.Docs {
		if doc.Body == nil { // nothing but comments
			continue
		}
		if i > 0 {
			return fail(doc.Body, errors.New("a second document: remove it and its ---"))
		}
		pairs, ok := doc.Body.(ast.MapNode)
		if !ok {
			return fail(doc.Body, errors.New("want lines of the form `key: value`"))
		}
		for it := pairs.MapRange(); it.Next(); {
			if err := c.decode(it.Key(), it.Value()); err != nil {
				return fail(it.Key(), err)
			}
			keys = append(keys, it.Key().GetToken().Value)
		}
	}
	return c.normal(), keys, nil
}

// syntax tells on one line what the parser did not understand; the line it names is the
// token's.
func syntax(err error) error {
	var e yaml.Error
	if !errors.As(err, &e) {
		return err
	}
	if t := e.GetToken(); t != nil && t.Position != nil {
		return fmt.Errorf("line %d: %s", t.Position.Line, e.GetMessage())
	}
	return errors.New(e.GetMessage())
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
func Keys() []string {
	t := reflect.TypeFor[Config]()
	keys := make([]string, t.NumField())
	for i := range keys {
		keys[i] = t.Field(i).Tag.Get("yaml")
	}
	return keys
}

// Effective are the settings of the file (of Default without one) under the flags that
// were given, checked. To resume, only the settings of a node may be among them.
func Effective(file string, flags Config, given func(key string) bool) (Config, error) {
	c := Default()
	var keys []string
	if file != "" {
		var err error
		if c, keys, err = load(file); err != nil {
			return Config{}, err
		}
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

// usualLR are learning rates of models for which the default is too high: those of the papers
// of GPT-3 (Brown et al. 2020, table 2.1) and TinyLlama (Zhang et al. 2024, section 2.4).
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

// Merge is file with the fields of flags whose keys were given explicitly.
func Merge(file, flags Config, given func(key string) bool) Config {
	out, from := reflect.ValueOf(&file).Elem(), reflect.ValueOf(flags)
	for i, key := range Keys() {
		if given(key) {
			out.Field(i).Set(from.Field(i))
		}
	}
	return file.normal()
}
