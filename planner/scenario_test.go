package planner

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

var update = flag.Bool("update", false, "rewrite what the scenarios print")

// scenario is a text of commands; what a command prints stands below it after "| ".
//
//	model layers=4 flops=1000000 params=1000 saved=4096 boundary=1024 [outputs=3000 block=1024]
//	(what recomputing outputs and blocks leaves of saved; blocks take flops for it)
//	halves saved=2048 (what each layer keeps in bf16, of which it has copies of its parameters)
//	storage auto|f32|bf16|f16
//	run micros=8 [replicas=N] [stages=N]
//	recompute auto|none|outputs|block
//	codec f32|bf16|int8|int4|auto|auto:bf16|auto:int4
//	node NAME gflops=10 mib=1024 [bf16_gflops=80 f16_gflops=80] [processor=1]
//	(a processor has instructions for what it has a rate of; others may be cards)
//	device NAME gpu gflops=1000 mib=4096 [copies_gb=12 host_mib=16384]
//	link FROM TO mbps=100 rtt_us=2000
//	drop NAME, drain NAME
//	disk NAME mib=1024 (free on its disk), name NAME MACHINE (what people call it)
//	begin     forget the plans so far, as another run would
//	plan      make the next generation and print it with its reasons
//	replan [left=100 lasts_s=3600 [stop_ms=9500]]
//	          ask whether a new plan is worth it, and whether the change pays
type scenario struct {
	in   Input
	plan plan.Plan
}

func TestScenarios(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) < 5 {
		t.Fatalf("%d scenarios, %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.ReplaceAll(string(text), "\r\n", "\n")
			var s scenario
			var out strings.Builder
			for line := range strings.Lines(want) {
				if strings.HasPrefix(line, "|") {
					continue
				}
				out.WriteString(line)
				if words := strings.Fields(line); len(words) > 0 && words[0] != "#" {
					for _, printed := range s.do(t, words[0], words[1:]) {
						out.WriteString("| " + printed + "\n")
					}
				}
			}
			if *update {
				if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if out.String() != want {
				t.Errorf("prints (rewrite with -update):\n%s", out.String())
			}
		})
	}
}

// do carries out one command.
func (s *scenario) do(t *testing.T, command string, args []string) []string {
	names, set := arguments(t, args)
	switch command {
	case "model":
		s.in.Costs = nil
		for range set["layers"] {
			k := model.LayerCost{
				ForwardFLOPs: set["flops"], InputFLOPs: set["flops"], WeightFLOPs: set["flops"],
				ParamBytes: 4 * set["params"], SavedBytes: set["saved"], BoundaryBytes: set["boundary"],
			}
			if set["outputs"] > 0 {
				k.Lean[model.RecomputeNothing].SavedBytes = set["saved"]
				k.Lean[model.RecomputeOutputs].SavedBytes = set["outputs"]
				k.Lean[model.RecomputeBlock] = model.LeanCost{SavedBytes: set["block"], RecomputeFLOPs: set["flops"]}
			}
			s.in.Costs = append(s.in.Costs, k)
		}
		s.in.Costs[len(s.in.Costs)-1].BoundaryBytes = 0
	case "begin":
		s.plan = plan.Plan{}
	case "halves":
		s.in.HalfCosts = slices.Clone(s.in.Costs)
		for l := range s.in.HalfCosts {
			s.in.HalfCosts[l].SavedBytes, s.in.HalfCosts[l].CopyBytes = set["saved"], s.in.Costs[l].ParamBytes/2
		}
	case "storage":
		rule, err := plan.ParseStorage(names[0])
		if err != nil {
			t.Fatal(err)
		}
		s.in.Run.Train.Storage = rule
	case "recompute":
		rule, err := plan.ParseRecompute(names[0])
		if err != nil {
			t.Fatal(err)
		}
		s.in.Run.Train.Recompute = rule
	case "codec":
		rule, err := plan.ParseCodecRule(names[0])
		if err != nil {
			t.Fatal(err)
		}
		s.in.Run.Train.Codec = rule
	case "run":
		s.in.Run.Run = "scenario"
		if _, some := set["groups"]; !some && set["replicas"] == 1 {
			set["groups"] = 1 // of sums: more would do nothing but take memory
		}
		s.in.Run.Train = plan.TrainSpec{Recompute: s.in.Run.Train.Recompute, Codec: s.in.Run.Train.Codec, Storage: s.in.Run.Train.Storage, Micros: int(set["micros"]), SumGroups: int(set["groups"]), UnevenShares: set["even"] == 0, Replicas: int(set["replicas"]), Stages: int(set["stages"])}
	case "node":
		s.in.Members = append(s.in.Members, Member{Peer: plan.PeerID(names[0]), Profile: plan.Profile{Devices: []plan.DeviceProfile{measuredDevice("cpu", set)}}})
	case "device":
		m := s.member(t, names[0])
		m.Profile.Devices = append(m.Profile.Devices, measuredDevice(names[1], set))
	case "link":
		m := s.member(t, names[0])
		m.Profile.Links = append(m.Profile.Links, plan.LinkProfile{Peer: plan.PeerID(names[1]), BytesPerS: set["mbps"] * 125000, RTTNanos: set["rtt_us"] * 1000})
	case "drop":
		s.in.Members = slices.DeleteFunc(s.in.Members, func(m Member) bool { return m.Peer == plan.PeerID(names[0]) })
	case "drain":
		s.member(t, names[0]).Draining = true
	case "disk":
		s.member(t, names[0]).Profile.DiskFreeBytes = set["mib"] << 20
	case "name":
		s.member(t, names[0]).Name = names[1]
	case "plan":
		return s.make(t)
	case "replan":
		d, err := ShouldReplan(t.Context(), s.in, s.plan)
		if err != nil {
			return []string{err.Error()}
		}
		if left, weighed := set["left"]; weighed {
			var stops []Stop
			if took := set["stop_ms"]; took > 0 {
				stops = []Stop{{Load: schedule.Nanos(took * 1e6)}}
			}
			d = d.Pays(Outlook{Left: plan.Step(left), Lasts: schedule.Nanos(set["lasts_s"] * 1e9), Stops: stops})
		}
		return []string{fmt.Sprintf("%t: %s", d.Replan, d.Reason)}
	default:
		t.Fatalf("unknown command %q", command)
	}
	return nil
}

func (s *scenario) make(t *testing.T) []string {
	s.in.Generation = s.plan.Generation + 1
	s.in.Previous = nil
	if s.plan.Generation > 0 {
		previous := s.plan
		s.in.Previous = &previous
	}
	p, reasons, err := Make(t.Context(), s.in)
	if err != nil {
		return []string{"error: " + err.Error()}
	}
	checkPlan(t, s.in, p, reasons)
	s.plan = p
	var lines []string
	for _, pipe := range p.Replicas {
		line := fmt.Sprintf("%d+%d", pipe.FirstMicro, pipe.Micros)
		for i, pl := range pipe.Stages {
			line += fmt.Sprintf("  %s/%s[%d,%d)", pl.Peer, pl.Device, pl.Layers.First, pl.Layers.End)
			if pipe.Warmups != nil {
				line += fmt.Sprintf("w%d", pipe.Warmups[i])
			}
			if s.in.Run.Train.Storage == plan.StorageAuto {
				line += " " + pl.Storage.String()
			}
			if pl.Recompute != "" {
				line += " " + string(pl.Recompute)
			}
			if pl.Ahead > 0 {
				line += fmt.Sprintf(" ahead=%d", pl.Ahead)
			}
			if pl.Offload {
				line += " offload"
			}
			if pl.Codec != "" && pl.Codec != "f32" {
				line += " =" + pl.Codec + "="
			}
			if pl.Holder != "" {
				line += "->" + string(pl.Holder)
			}
		}
		if p.Schedule != plan.ScheduleName {
			line += "  " + p.Schedule
		}
		lines = append(lines, line)
	}
	for _, r := range reasons {
		lines = append(lines, fmt.Sprintf("%s: %s", r.Kind, r.Text))
	}
	return lines
}

func (s *scenario) member(t *testing.T, name string) *Member {
	i := slices.IndexFunc(s.in.Members, func(m Member) bool { return m.Peer == plan.PeerID(name) })
	if i < 0 {
		t.Fatalf("no node %q", name)
	}
	return &s.in.Members[i]
}

func measuredDevice(name string, set map[string]int64) plan.DeviceProfile {
	kind := ""
	if set["processor"] > 0 {
		kind = "amd64/avx2"
		if set["bf16_gflops"] > 0 {
			kind = "amd64/avx512bf16"
		}
	}
	return plan.DeviceProfile{
		Name: name, Kind: kind, MatMulFLOPS: set["gflops"] * 1e9, AttentionFLOPS: set["gflops"] * 1e9, MatMulBF16FLOPS: set["bf16_gflops"] * 1e9, MatMulF16FLOPS: set["f16_gflops"] * 1e9,
		MemoryBytesPerS: set["gflops"] * 1e9, MemoryFreeBytes: set["mib"] << 20,
		CopyBytesPerS: set["copies_gb"] * 1e9, HostFreeBytes: set["host_mib"] << 20,
	}
}

// arguments splits names from key=number.
func arguments(t *testing.T, args []string) (names []string, set map[string]int64) {
	set = map[string]int64{}
	for _, a := range args {
		key, value, found := strings.Cut(a, "=")
		if !found {
			names = append(names, a)
			continue
		}
		n, err := strconv.ParseInt(strings.ReplaceAll(value, "_", ""), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		set[key] = n
	}
	return names, set
}
