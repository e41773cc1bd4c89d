package config

import (
	"strings"
	"testing"
)

func TestDevices(t *testing.T) {
	for text, want := range map[string]string{
		"auto": "auto", "cpu": "cpu", "opencl:0, cpu": "opencl:0,cpu", "cuda:12,cuda:0": "cuda:12,cuda:0",
	} {
		var d Devices
		if err := d.Set(text); err != nil || d.String() != want {
			t.Errorf("%q is %v, %v; want %s", text, d, err, want)
		}
	}
	for text, want := range map[string]string{
		"":               "names with commas",
		"gpu":            "names with commas",
		"cpu:0":          "names with commas",
		"opencl":         "names with commas",
		"opencl:01":      "names with commas",
		"cpu,":           "names with commas",
		"cpu,cuda:1,cpu": "names cpu twice",
	} {
		var d Devices
		if err := d.Set(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestDevicesOfLocalNodes: each node its own, shared where there are too few.
func TestDevicesOfLocalNodes(t *testing.T) {
	for _, c := range []struct {
		devices Devices
		nodes   int
		want    string
	}{
		{"", 2, "cpu | cpu"},
		{"opencl:0", 2, "opencl:0 | opencl:0"},
		{"opencl:0,cpu", 2, "opencl:0 | cpu"},
		{"cuda:0,cuda:1,cpu", 2, "cuda:0,cpu | cuda:1"},
		{"cuda:0,cuda:1", 3, "cuda:0 | cuda:1 | cuda:0"},
	} {
		var parts []string
		for i := range c.nodes {
			parts = append(parts, c.devices.Of(i, c.nodes).String())
		}
		if got := strings.Join(parts, " | "); got != c.want {
			t.Errorf("%v for %d nodes: %s, want %s", c.devices, c.nodes, got, c.want)
		}
	}
}
