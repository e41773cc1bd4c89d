package config

import (
	"strings"
	"testing"
)

func TestMemory(t *testing.T) {
	for text, want := range map[string]string{
		"auto": "auto", "8GiB": "8GiB", "50%": "50%", " cuda:0 = 8192MiB , cpu=25.5%,6GB": "cuda:0=8GiB,cpu=25.5%,6GB",
	} {
		var m Memory
		if err := m.Set(text); err != nil || m.String() != want {
			t.Errorf("%q is %v, %v; want %s", text, m, err, want)
			continue
		}
		again := m
		if err := again.Set(m.String()); err != nil || again != m {
			t.Errorf("%v read again is %v, %v", m, again, err)
		}
	}
	for text, want := range map[string]string{
		"": "want auto", "8": "100MB or more", "0%": "want auto", "101%": "want auto", "gpu=8GiB": "want auto", "cpu=": "want auto",
		"cuda:0": "want auto", "cpu=1GB,cpu=2GB": "names cpu twice", "1GB,2GB": "size for all devices twice",
	} {
		var m Memory
		if err := m.Set(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestAllowances(t *testing.T) {
	const free = 10_000_000_001
	for _, c := range []struct {
		memory Memory
		device string
		want   int64
	}{
		{"", "cpu", free},
		{"1GB", "cpu", 1e9},
		{"64GB", "cpu", free},
		{"cuda:0=1GB", "cuda:1", free},
		{"cuda:0=1GB,2GB", "cuda:1", 2e9},
		{"2GB,cuda:0=25%", "cuda:0", 2_500_000_000},
	} {
		if got := c.memory.Of(c.device).Within(free); got != c.want {
			t.Errorf("%q of %s: %d, want %d", c.memory, c.device, got, c.want)
		}
	}
}

// TestMemoryOfLocalNodes: those that share a device take no more of it together than one would.
func TestMemoryOfLocalNodes(t *testing.T) {
	for _, c := range []struct {
		memory  Memory
		devices Devices
		nodes   int
		want    string
	}{
		{"", "", 3, "cpu=33.3333% | cpu=33.3333% | cpu=33.3333%"},
		{"", "opencl:0,cpu", 2, "cpu=50% | cpu=50%"},
		{"cuda:0=8GiB", "cuda:0,cpu", 2, "cuda:0=8GiB,cpu=50% | cpu=50%"},
		{"8GiB", "cuda:0", 2, "cuda:0=4GiB,cpu=4GiB | cuda:0=4GiB,cpu=4GiB"},
		{"50%,cuda:1=1GB", "cuda:0,cuda:1", 3, "cuda:0=25%,cpu=16.6666% | cuda:1=1GB,cpu=16.6666% | cuda:0=25%,cpu=16.6666%"},
		{"300MB", "cuda:0,cuda:1,cuda:2,cuda:3", 4, "cuda:0=300MB,cpu=100MB | cuda:1=300MB,cpu=100MB | cuda:2=300MB,cpu=100MB | cuda:3=300MB,cpu=100MB"},
		{"cpu=2GB", "cuda:0,cuda:1,cpu", 2, "cpu=1GB | cpu=1GB"},
	} {
		var parts []string
		for i := range c.nodes {
			part := c.memory.Part(c.devices.Of(i, c.nodes), c.devices.Sharers(i, c.nodes), c.nodes)
			parts = append(parts, part.String())
		}
		if got := strings.Join(parts, " | "); got != c.want {
			t.Errorf("%q of %v for %d nodes: %s, want %s", c.memory, c.devices, c.nodes, got, c.want)
		}
	}
}
