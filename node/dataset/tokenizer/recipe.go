package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"

	"pnode/pipeline/wire/strict"
)

// recipe sums up the four components of a file.
type recipe struct {
	nfc      bool
	spacing  spacing
	split    splitRule
	bytes    bool // pre-tokenizer ByteLevel
	decodes  decoding
	decoders []string // seen so far
	template template
}

// decoding is how the file's decoder reads tokens; it must fit how they are written.
type decoding uint8

const (
	decodesNothing decoding = iota
	decodesBytes
	decodesMetaspace
)

// template is the special tokens around a document.
type template struct{ before, after []string }

// component is one step of a file's field.
type component struct {
	field, kind string
	text        json.RawMessage
}

// each calls read for the component in value, or for each of a Sequence.
func each(field string, value json.RawMessage, read func(component) error) error {
	if isNull(value) {
		return nil
	}
	var c struct {
		Type string `json:"type"`
	}
	if err := formatError(json.Unmarshal(value, &c)); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	if c.Type != "Sequence" {
		return read(component{field, c.Type, value})
	}
	var sequence struct {
		Type          string            `json:"type"`
		Normalizers   []json.RawMessage `json:"normalizers"`
		PreTokenizers []json.RawMessage `json:"pretokenizers"`
		Processors    []json.RawMessage `json:"processors"`
		Decoders      []json.RawMessage `json:"decoders"`
	}
	if err := formatError(strict.Decode(value, &sequence)); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	for _, list := range [][]json.RawMessage{sequence.Normalizers, sequence.PreTokenizers, sequence.Processors, sequence.Decoders} {
		for _, step := range list {
			if err := each(field, step, func(c component) error {
				if c.kind == "Sequence" {
					return unsupported(field, "Sequence within Sequence")
				}
				return read(c)
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// options reads the component into a struct that names all of its fields.
func (c component) options(to any) error {
	if err := formatError(strict.Decode(c.text, to)); err != nil {
		return fmt.Errorf("%s %s: %w", c.field, c.kind, err)
	}
	return nil
}

func (c component) refuse() error {
	var line bytes.Buffer
	if json.Compact(&line, c.text) != nil {
		return unsupported(c.field, string(c.text))
	}
	return unsupported(c.field, line.String())
}

// pattern is an expression or a plain text.
type pattern struct {
	Regex  string `json:"Regex"`
	String string `json:"String"`
}

func (r *recipe) normalizer(c component) error {
	var o struct {
		Type    string  `json:"type"`
		Prepend string  `json:"prepend"`
		Pattern pattern `json:"pattern"`
		Content string  `json:"content"`
	}
	if err := c.options(&o); err != nil {
		return err
	}
	switch {
	case c.kind == "NFC" && r.spacing.kind == spacingNone:
		r.nfc = true
	case c.kind == "Prepend" && o.Prepend == metaspace && r.spacing.kind == spacingNone:
		r.spacing.kind = spacingAlways
	case c.kind == "Replace" && o.Pattern == pattern{String: " "} && o.Content == metaspace && !r.spacing.visible:
		r.spacing.visible = true
		r.spacing.kind = max(r.spacing.kind, spacingNever)
	default:
		return c.refuse()
	}
	return nil
}

func (r *recipe) preTokenizer(c component) error {
	switch c.kind {
	case "ByteLevel":
		return r.byteLevel(c)
	case "Split":
		return r.expression(c)
	case "Metaspace":
		return r.metaspace(c)
	}
	return c.refuse()
}

// byteLevel is the last step: with use_regex it splits as GPT-2 does.
func (r *recipe) byteLevel(c component) error {
	o := struct {
		Type        string `json:"type"`
		PrefixSpace bool   `json:"add_prefix_space"`
		TrimOffsets bool   `json:"trim_offsets"` // changes no token
		UseRegex    bool   `json:"use_regex"`
	}{UseRegex: true}
	if err := c.options(&o); err != nil {
		return err
	}
	if r.bytes || r.spacing.kind != spacingNone || o.UseRegex && r.split != splitNone || o.PrefixSpace && !o.UseRegex {
		return c.refuse()
	}
	r.bytes = true
	if o.UseRegex {
		r.split = splitGPT2
	}
	if o.PrefixSpace {
		r.spacing.kind = spacingMissing
	}
	return nil
}

// expression is a split by one of the known expressions. Since each covers the whole text,
// keeping the matches (Isolated) and dropping what is between them (Removed, inverted) are
// the same.
func (r *recipe) expression(c component) error {
	var o struct {
		Type     string  `json:"type"`
		Pattern  pattern `json:"pattern"`
		Behavior string  `json:"behavior"`
		Invert   bool    `json:"invert"`
	}
	if err := c.options(&o); err != nil {
		return err
	}
	rule, known := expressions[o.Pattern.Regex]
	switch {
	case !known:
		return unsupported(c.field+" Split pattern", o.Pattern.Regex+o.Pattern.String)
	case !(o.Behavior == "Isolated" && !o.Invert || o.Behavior == "Removed" && o.Invert):
		return unsupported(c.field+" Split behavior", fmt.Sprintf("%s with invert %v", o.Behavior, o.Invert))
	}
	if r.bytes || r.split != splitNone || r.spacing.kind != spacingNone {
		return c.refuse()
	}
	r.split = rule
	return nil
}

func (r *recipe) metaspace(c component) error {
	o := struct {
		Type        string `json:"type"`
		Replacement string `json:"replacement"`
		Scheme      string `json:"prepend_scheme"`
		PrefixSpace *bool  `json:"add_prefix_space"` // older files repeat the scheme
		Split       bool   `json:"split"`
	}{Scheme: "always", Split: true}
	if err := c.options(&o); err != nil {
		return err
	}
	kind, known := map[string]spacingKind{"never": spacingNever, "first": spacingFirst, "always": spacingMissing}[o.Scheme]
	if o.PrefixSpace != nil && *o.PrefixSpace != (kind != spacingNever) {
		return c.refuse()
	}
	if !known || o.Replacement != metaspace || r.bytes || r.spacing.kind != spacingNone || r.split != splitNone {
		return c.refuse()
	}
	r.spacing = spacing{kind: kind, visible: true}
	if o.Split {
		r.split = splitSpace
	}
	return nil
}

// postProcessor reads which special tokens stand around a document.
func (r *recipe) postProcessor(c component) error {
	if c.kind == "ByteLevel" { // changes offsets only
		return nil
	}
	if c.kind != "TemplateProcessing" {
		return c.refuse()
	}
	type piece struct {
		SpecialToken *struct {
			ID string `json:"id"`
		}
		Sequence *struct {
			ID string `json:"id"`
		}
	}
	var o struct {
		Single []piece `json:"single"`
	}
	if err := formatError(json.Unmarshal(c.text, &o)); err != nil {
		return fmt.Errorf("%s %s: %w", c.field, c.kind, err)
	}
	seen := false
	for _, p := range o.Single {
		switch {
		case p.Sequence != nil && !seen:
			seen = true
		case p.SpecialToken != nil && !seen:
			r.template.before = append(r.template.before, p.SpecialToken.ID)
		case p.SpecialToken != nil:
			r.template.after = append(r.template.after, p.SpecialToken.ID)
		default:
			return c.refuse()
		}
	}
	if !seen {
		return c.refuse()
	}
	return nil
}

// decoder checks that the file reads tokens the way Decode does: bytes, or U+2581 as a
// space, bytes for what is not in the vocabulary, and one space less in front.
func (r *recipe) decoder(c component) error {
	var o struct {
		Type        string  `json:"type"`
		PrefixSpace bool    `json:"add_prefix_space"`
		TrimOffsets bool    `json:"trim_offsets"`
		UseRegex    bool    `json:"use_regex"`
		Pattern     pattern `json:"pattern"`
		Content     string  `json:"content"`
		Start       int     `json:"start"`
		Stop        int     `json:"stop"`
		Replacement string  `json:"replacement"`
		Scheme      string  `json:"prepend_scheme"`
		Split       bool    `json:"split"`
	}
	if err := c.options(&o); err != nil {
		return err
	}
	r.decoders = append(r.decoders, c.kind)
	switch {
	case c.kind == "ByteLevel" && len(r.decoders) == 1:
		r.decodes = decodesBytes
	case c.kind == "Metaspace" && o.Replacement == metaspace:
		r.decodes = decodesMetaspace
		r.spacing.strip = o.Scheme != "never"
	case c.kind == "Replace" && o.Pattern == pattern{String: metaspace} && o.Content == " ":
		r.decodes = decodesMetaspace
	case c.kind == "Strip" && o.Content == " " && o.Start == 1 && o.Stop == 0:
		r.spacing.strip = true
	case c.kind == "ByteFallback", c.kind == "Fuse":
	default:
		return c.refuse()
	}
	return nil
}
