package main

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// sboms are files of a release to check, besides the one that the test makes.
var sboms = flag.String("sboms", "", "`PATTERN` of files to check against the schema")

// information returns what Go may know of a program: modules with everything that one may have.
func information() *debug.BuildInfo {
	return &debug.BuildInfo{
		GoVersion: "go1.26.8 X:nodwarf5", Path: "pnode/cmd/pnode", Main: debug.Module{Path: "pnode", Version: "v1.2.3"},
		Deps: []*debug.Module{
			{Path: "github.com/z/last/v2", Version: "v2.0.0", Sum: "h1:abc="},
			{Path: "github.com/google/flatbuffers", Version: "v25.2.10+incompatible", Sum: "h1:def="},
			{Path: "example.org/old", Version: "v1.0.0", Replace: &debug.Module{Path: "example.org/new", Version: "v0.0.0-20260101000000-0123456789ab"}},
		},
		Settings: []debug.BuildSetting{{Key: "-trimpath", Value: "true"}, {Key: "vcs.revision", Value: "0123"}},
	}
}

// schema compiles the format's own schema, as CycloneDX publishes it (Apache-2.0).
func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	for _, name := range []string{"bom-1.5.schema.json", "spdx.schema.json", "jsf-0.82.schema.json"} {
		f, err := os.Open(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		text, err := jsonschema.UnmarshalJSON(f)
		f.Close()
		if err == nil {
			err = c.AddResource("http://cyclonedx.org/schema/"+name, text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.Compile("http://cyclonedx.org/schema/bom-1.5.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// valid returns why text is no bill of materials.
func valid(s *jsonschema.Schema, text string) error {
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	return s.Validate(v)
}

func TestSBOMIsValid(t *testing.T) {
	s := schema(t)
	text, err := sbom("pnode-linux-amd64", strings.Repeat("0a", 32), information())
	if err != nil {
		t.Fatal(err)
	}
	if err := valid(s, string(text)); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	for what, broken := range map[string]string{ // or the schema says nothing
		"a hash that is none": strings.Replace(string(text), "0a0a", "xyz", 1),
		"a license unknown":   strings.Replace(string(text), "Apache-2.0", "Apache-2,0", 1),
		"a module twice":      strings.Replace(string(text), `"components": [`, `"components": [{"type":"library","name":"a"},{"type":"library","name":"a"},`, 1),
	} {
		if valid(s, broken) == nil {
			t.Errorf("%s is valid", what)
		}
	}
	files, err := filepath.Glob(*sboms)
	if err != nil || *sboms != "" && len(files) == 0 {
		t.Fatalf("%s: no files, %v", *sboms, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			err = valid(s, string(text))
		}
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestSBOMNamesEveryModule: once, those of both programs in a file, and the standard library.
func TestSBOMNamesEveryModule(t *testing.T) {
	other := information()
	other.Deps = append(other.Deps, &debug.Module{Path: "example.org/drivers", Version: "v1.0.0"})
	text, err := sbom("pnode-linux-amd64", "00", information(), other)
	if err != nil {
		t.Fatal(err)
	}
	var got bom
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"pkg:golang/example.org/drivers@v1.0.0",
		"pkg:golang/example.org/new@v0.0.0-20260101000000-0123456789ab",
		"pkg:golang/github.com/google/flatbuffers@v25.2.10%2Bincompatible",
		"pkg:golang/github.com/z/last/v2@v2.0.0",
		"pkg:golang/stdlib@1.26.8",
	}
	if len(got.Components) != len(want) {
		t.Fatalf("%d components, want %d:\n%s", len(got.Components), len(want), text)
	}
	for i, c := range got.Components {
		if c.PURL != want[i] || c.Ref != want[i] {
			t.Errorf("component %d is %s, want %s", i, c.PURL, want[i])
		}
	}
	if got.Metadata.Component.Version != "v1.2.3" {
		t.Errorf("the program has version %q", got.Metadata.Component.Version)
	}
}
