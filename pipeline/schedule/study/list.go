package study

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"pnode/pipeline/schedule"
)

// List writes what there is to ask for.
func List(w io.Writer) error {
	var b strings.Builder
	for _, k := range schedule.Kinds() {
		fmt.Fprintf(&b, "%s: %s\n", k.Name, k.Title)
		line := func(name, value string) {
			if value != "" {
				fmt.Fprintf(&b, "    %-8s %s\n", name, value)
			}
		}
		options := strings.Join(k.Params, ", ")
		if k.Defaults != "" {
			options += " (" + k.Defaults + ")"
		}
		line("options", options)
		line("keeps", k.Memory)
		line("bubble", k.Bubble)
		line("source", k.Source)
	}
	b.WriteString(`
p workers, r a worker's rank, N micro-batches, v stages per worker; f, i, w: a worker's
forward, input and weight gradient of a micro-batch, b = i + w. keeps: activations of so
many micro-batches on all of a worker's stages. bubble: what is added to N(f+b) on links
that take no time.
`)
	_, err := io.WriteString(w, b.String())
	return err
}

// ListJSON writes the kinds as one array.
func ListJSON(w io.Writer) error {
	type kind struct {
		Name     string   `json:"name"`
		Title    string   `json:"title"`
		Options  []string `json:"options"`
		Defaults string   `json:"defaults,omitempty"`
		Memory   string   `json:"memory"`
		Bubble   string   `json:"bubble"`
		Source   string   `json:"source"`
	}
	var all []kind
	for _, k := range schedule.Kinds() {
		all = append(all, kind{k.Name, k.Title, append([]string{}, k.Params...), k.Defaults, k.Memory, k.Bubble, k.Source})
	}
	return json.NewEncoder(w).Encode(all)
}
