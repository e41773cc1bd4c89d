package main

import (
	"bytes"
	"encoding/json"
	"runtime/debug"
	"slices"
	"strings"
)

// sbomSuffix ends the name of the file that lists a program's modules.
const sbomSuffix = ".cdx.json"

// bom is the part of CycloneDX 1.5 that says what Go knows of a program: its modules and the settings
// that it was built with. Go does not say which module needs which other, nor under which license.
type bom struct {
	Schema      string      `json:"$schema"`
	BOMFormat   string      `json:"bomFormat"`
	SpecVersion string      `json:"specVersion"`
	Version     int         `json:"version"`
	Metadata    metadata    `json:"metadata"`
	Components  []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Licenses   []licensed `json:"licenses,omitempty"`
	PURL       string     `json:"purl,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type licensed struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// sbom describes a file by its name, its SHA-256 and what `go version -m` shows of the programs in it, the
// one that starts first. The same file has the same bytes of description: no time and no random number.
func sbom(file, sum string, programs ...*debug.BuildInfo) ([]byte, error) {
	info := programs[0]
	program := component{
		Type: "application", Ref: file, Name: file, Version: info.Main.Version,
		Hashes: []hash{{"SHA-256", sum}}, Licenses: make([]licensed, 1),
		Properties: []property{{"go:path", info.Path}},
	}
	program.Licenses[0].License.ID = "Apache-2.0"
	for _, s := range info.Settings {
		program.Properties = append(program.Properties, property{"go:build:" + s.Key, s.Value})
	}
	b := bom{
		Schema: "http://cyclonedx.org/schema/bom-1.5.schema.json", BOMFormat: "CycloneDX", SpecVersion: "1.5", Version: 1,
		Metadata: metadata{Component: program}, Components: []component{standardLibrary(info.GoVersion)},
	}
	for _, p := range programs {
		for _, d := range p.Deps {
			b.Components = append(b.Components, library(d))
		}
	}
	slices.SortFunc(b.Components, func(x, y component) int { return strings.Compare(x.Ref, y.Ref) })
	b.Components = slices.CompactFunc(b.Components, func(x, y component) bool { return x.Ref == y.Ref })
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(b)
	return text.Bytes(), err
}

// library describes a module, or the one that go.mod puts in its place.
func library(m *debug.Module) component {
	if m.Replace != nil {
		m = m.Replace
	}
	url := purl(m.Path, m.Version)
	c := component{Type: "library", Ref: url, Name: m.Path, Version: m.Version, PURL: url}
	if m.Sum != "" { // as in go.sum
		c.Properties = []property{{"go:sum", m.Sum}}
	}
	return c
}

// standardLibrary describes Go's own packages: they have weaknesses and fixes as modules have.
func standardLibrary(version string) component {
	version, _, _ = strings.Cut(strings.TrimPrefix(version, "go"), " ")
	url := purl("stdlib", version)
	return component{Type: "library", Ref: url, Name: "stdlib", Version: version, PURL: url}
}

// purl returns the package URL of a Go module.
func purl(path, version string) string {
	url := "pkg:golang/" + path
	if version != "" {
		url += "@" + strings.ReplaceAll(version, "+", "%2B")
	}
	return url
}
