package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const twoSites = `
devices:
  - {count: 2, model: T4, matmul: 8.1TFLOP/s, attention: 4TFLOP/s, bandwidth: 320GB/s, memory: 16GB}
  - model: laptop
    compute: none
    matmul: 150GFLOP/s
    bandwidth: 20GB/s
    memory: 4GiB
    slower: [{after: 5m, times: 3}, {after: 9m, times: 1}]
link: {bandwidth: 1Gbit/s, latency: 1ms}
links:
  - {between: [0-1, 2], bandwidth: 100Mbit/s, latency: 40ms, jitter: 1.5ms, loss: 0.5%}
  - {from: 2, to: 0, bandwidth: 10Mbit/s, latency: 40ms}
seed: 7
`

func TestCluster(t *testing.T) {
	c, err := LoadCluster(write(t, twoSites))
	if err != nil {
		t.Fatal(err)
	}
	t4 := Device{Model: "T4", MatMul: 8_100_000_000_000, Attention: 4_000_000_000_000, Bandwidth: 320_000_000_000, Memory: 16 * GB}
	laptop := Device{Model: "laptop", Compute: "none", MatMul: 150_000_000_000, Bandwidth: 20_000_000_000, Memory: 4 << 30, Slower: []Slower{{Moment(5 * time.Minute), 3}, {Moment(9 * time.Minute), 1}}}
	if got, want := c.Nodes(), []Device{t4, t4, laptop}; !reflect.DeepEqual(got, want) {
		t.Errorf("nodes %+v, want %+v", got, want)
	}
	if t4.AttentionSpeed() != t4.Attention || laptop.AttentionSpeed() != laptop.MatMul || laptop.Computes() || !t4.Computes() {
		t.Error("defaults of a device")
	}
	lan := LinkShape{Bandwidth: 125_000_000, Latency: Span(time.Millisecond)}
	wan := LinkShape{Bandwidth: 12_500_000, Latency: Span(40 * time.Millisecond), Jitter: Span(1500 * time.Microsecond), Loss: 5000}
	slow := LinkShape{Bandwidth: 1_250_000, Latency: Span(40 * time.Millisecond)}
	listen := []string{"127.0.0.1:4000", "127.0.0.1:4001", "127.0.0.1:4002"}
	for _, tc := range []struct {
		from, to int
		want     LinkShape
	}{{0, 1, lan}, {1, 0, lan}, {0, 2, wan}, {1, 2, wan}, {2, 1, wan}, {2, 0, slow}} {
		if got := shapeAt(c.Emulations(listen)[tc.from], listen[tc.to], 0); got != tc.want {
			t.Errorf("from %d to %d: %+v, want %+v", tc.from, tc.to, got, tc.want)
		}
	}
}

// TestEmulationsOfACluster: what a node is told of its links loads back from the file that
// it is told in.
func TestEmulationsOfACluster(t *testing.T) {
	c, err := LoadCluster(write(t, twoSites))
	if err != nil {
		t.Fatal(err)
	}
	listen := []string{"127.0.0.1:4000", "127.0.0.1:4001", "127.0.0.1:4002"}
	for i, e := range c.Emulations(listen) {
		var b strings.Builder
		if err := e.Print(&b); err != nil {
			t.Fatal(err)
		}
		got, err := LoadEmulation(write(t, b.String()))
		if err != nil {
			t.Fatalf("node %d: %v\n%s", i, err, b.String())
		}
		if !reflect.DeepEqual(got, e) {
			t.Errorf("node %d:\n got %+v\nwant %+v\nfrom\n%s", i, got, e, b.String())
		}
	}
}

// shapeAt is the link to an address so long after the start.
func shapeAt(e Emulation, to string, after Moment) LinkShape {
	shape := e.Link
	for _, l := range e.Links {
		if l.To == to && l.After <= after {
			shape = l.LinkShape
		}
	}
	return shape
}

// TestLinksChange: a link gets slow, drops, and comes back.
func TestLinksChange(t *testing.T) {
	c, err := LoadCluster(write(t, `
devices: [{count: 2, matmul: 1GFLOP/s, bandwidth: 1GB/s, memory: 1GB}]
link: {latency: 5ms}
links:
  - {between: [0, 1], after: 1m, latency: 60ms}
  - {between: [0, 1], after: 90s, loss: 100%}
  - {between: [0, 1], after: 100s, latency: 5ms}
`))
	if err != nil {
		t.Fatal(err)
	}
	listen := []string{"127.0.0.1:4000", "127.0.0.1:4001"}
	e := c.Emulations(listen)[1]
	for at, want := range map[time.Duration]LinkShape{
		0: {Latency: Span(5 * time.Millisecond)}, 59 * time.Second: {Latency: Span(5 * time.Millisecond)},
		time.Minute: {Latency: Span(60 * time.Millisecond)}, 95 * time.Second: {Loss: 1_000_000},
		time.Hour: {Latency: Span(5 * time.Millisecond)},
	} {
		if got := shapeAt(e, listen[0], Moment(at)); got != want {
			t.Errorf("after %v: %+v, want %+v", at, got, want)
		}
	}
}

func TestBadClusters(t *testing.T) {
	const device = "{matmul: 1GFLOP/s, bandwidth: 1GB/s, memory: 1GB}"
	two := "devices: [" + device + ", " + device + "]\n"
	for content, words := range map[string][]string{
		"":               {"devices are 0"},
		"devices: []":    {"devices are 0", "1 to 1000"},
		"devices: 3":     {" line 1: ", "devices", "a list"},
		"device: []":     {" line 1: ", `unknown key "device"`, `"devices"`},
		"devices: [{}]":  {"devices[0].matmul", "TFLOP/s"},
		"devices: [1, 2": {"file.yaml"},
		"devices: [{model: \"a\\eb\", matmul: 1GFLOP/s}]":                           {"devices[0].model", "\"a\\x1bb\"", "64 bytes of printable text"},
		"devices:\n  - {matmul: 1GFLOP/s, bandwidth: 1GB/s, memory: 16X}":           {" line 2: ", "devices[0].memory", `"16X"`, "16MB"},
		"devices:\n  - {matmul: fast}":                                              {" line 2: ", "devices[0].matmul", `"fast"`, "GFLOP/s"},
		"devices:\n  - {matmul: 1GFLOP/s, bandwidth: 0}":                            {"devices[0].bandwidth", `"0"`, "Mbit/s"},
		"devices: [{count: 1001, matmul: 1GFLOP/s, bandwidth: 1GB/s, memory: 1GB}]": {"devices[0].count is 1001", "1 to 1000"},
		"devices: [{count: 1.5}]":                                                   {"devices[0].count", "whole number"},
		"devices: [{compute: half, matmul: 1GFLOP/s, bandwidth: 1B/s, memory: 1B}]": {"devices[0].bandwidth"},
		"devices: [{compute: half, matmul: 1GFLOP/s}]":                              {"devices[0].compute", `"half"`, "real or none"},
		two + "link: {latency: -1ms}":                                               {" line 2: ", "link.latency", "0s to 10s"},
		two + "link: {loss: 0.5}":                                                   {"link.loss", "0.5%"},
		two + "link: {delay: 1ms}":                                                  {`unknown key "delay"`},
		two + "links:\n  - {between: [0, 2]}":                                       {"links[0]", "node 2", "0 to 1", "2 devices"},
		two + "links:\n  - {between: [0]}":                                          {"links[0]", "two nodes"},
		two + "links:\n  - {between: [0, 1], from: 1}":                              {"links[0]", "either"},
		two + "links:\n  - {from: 1}":                                               {"links[0]", "both"},
		two + "links:\n  - {between: [1, 1]}":                                       {"links[0]", "itself"},
		two + "links:\n  - {between: [0, x]}":                                       {" line 3: ", "links[0].between[1]", `"x"`, "0-3"},
		two + "links:\n  - {from: 0, to: 1, after: soon}":                           {"links[0].after", `"soon"`, "90s"},
		two + "links:\n  - {from: [0], to: 1}":                                      {"links[0].from", "not a list"},
		two + "links:\n  - {from: 1-0, to: 1}":                                      {"links[0].from", "1-0"},
		two + "\n---\nseed: 1":                                                      {" line 4: a second document"},
	} {
		_, err := LoadCluster(write(t, content))
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", content, err)
			continue
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s\n%v\ndoes not say %q", content, err, word)
			}
		}
	}
	if _, err := LoadCluster(filepath.Join(t.TempDir(), "none.yaml")); !errors.Is(err, ErrInvalid) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func TestBadEmulations(t *testing.T) {
	const device = "device: {matmul: 1GFLOP/s, bandwidth: 1GB/s, memory: 1GB}\n"
	for content, word := range map[string]string{
		"seed: 1": "device.matmul",
		device + "links: [{to: nowhere, latency: 1ms}]":                                     `links[0].to is "nowhere"`,
		device + "links: [{too: 127.0.0.1:1}]":                                              `"to"`,
		device + "link: [1]":                                                                "key: value",
		"device: {matmul: 1GFLOP/s, memory: 1GB}":                                           "device.bandwidth",
		"device: {matmul: 1GFLOP/s, bandwidth: 100MB/s, memory: 1GB, slower: [{times: 0}]}": "device.slower[0].times",
		"device: {matmul: 1GFLOP/s, bandwidth: 100MB/s}":                                    "device.memory",
	} {
		if _, err := LoadEmulation(write(t, content)); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v, want %q", content, err, word)
		}
	}
}

// TestUnitsPrintWhatTheyRead for values that are not round.
func TestRelayRate(t *testing.T) {
	for text, want := range map[string]RelayRate{"": 0, "off": -1, "100Mbit/s": 12_500_000, "1Gbit/s": 125_000_000, "2MB/s": 2_000_000} {
		var r RelayRate
		if err := r.Set(text); err != nil || r != want {
			t.Errorf("%s reads %d, %v", text, r, err)
		}
		again := RelayRate(1)
		if err := again.Set(r.String()); err != nil || again != r {
			t.Errorf("%s prints %s, which reads %d, %v", text, r, again, err)
		}
	}
	for rate, want := range map[RelayRate]int64{0: 12_500_000, -1: 0, 125_000: 125_000} {
		if got := rate.BytesPerS(); got != want {
			t.Errorf("%q is %d bytes a second, want %d", rate, got, want)
		}
	}
	for _, text := range []string{"on", "0", "0Mbit/s", "10kbit/s", "1TB/s", "100", "-5Mbit/s"} {
		if err := new(RelayRate).Set(text); err == nil || !strings.Contains(err.Error(), "want off, or a rate from 1Mbit/s") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestUnitsPrintWhatTheyRead(t *testing.T) {
	for _, n := range []int64{1, 125, 999, 12_345_678_901, 1<<52 + 1} {
		var s Speed
		var r Rate
		if err := s.Set(Speed(n).String()); err != nil || s != Speed(n) {
			t.Errorf("speed %d prints %s and reads %d: %v", n, Speed(n), s, err)
		}
		if err := r.Set(Rate(n).String()); err != nil || r != Rate(n) {
			t.Errorf("rate %d prints %s and reads %d: %v", n, Rate(n), r, err)
		}
	}
	for _, n := range []int{0, 1, 5000, 999_999, 1_000_000} {
		var s Share
		if err := s.Set(Share(n).String()); err != nil || s != Share(n) {
			t.Errorf("share %d prints %s and reads %d: %v", n, Share(n), s, err)
		}
	}
}

// FuzzCluster: whatever a file holds, it is read or refused.
func FuzzCluster(f *testing.F) {
	f.Add([]byte(twoSites))
	f.Add([]byte("devices: [{count: 9999999999}]\nlinks: [[[]]]"))
	f.Fuzz(func(t *testing.T, content []byte) {
		var c Cluster
		if _, err := parse("fuzz", content, &c); err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%v", err)
			}
			return
		}
		if c.validate() == nil {
			c.Emulations(make([]string, len(c.Nodes())))
		}
	})
}

// TestEffectiveCluster: the file says how many nodes there are, and is checked before
// anything begins.
func TestEffectiveCluster(t *testing.T) {
	given := func(keys ...string) func(string) bool {
		return func(key string) bool { return slices.Contains(keys, key) }
	}
	flags := Default()
	flags.Cluster = write(t, twoSites)
	c, err := Effective("", flags, given("cluster"))
	if err != nil || c.Local != 3 {
		t.Errorf("local is %d: %v", c.Local, err)
	}
	flags.Emulate = write(t, "device: {matmul: 1GFLOP/s, bandwidth: 1GB/s, memory: 1GB}")
	flags.Local, flags.Listen = 4, "127.0.0.1:0"
	for keys, word := range map[string]string{
		"cluster local":   "--local is 4: want 3",
		"cluster emulate": "--emulate is",
		"cluster listen":  "--listen is",
		"emulate local":   "--emulate is",
	} {
		if _, err := Effective("", flags, given(strings.Fields(keys)...)); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v, want %q", keys, err, word)
		}
	}
	if _, err := Effective("", flags, given("emulate")); err != nil {
		t.Error(err)
	}
	flags.Cluster = write(t, "devices: []")
	if _, err := Effective("", flags, given("cluster")); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "devices are 0") {
		t.Errorf("an empty cluster: %v", err)
	}
}
