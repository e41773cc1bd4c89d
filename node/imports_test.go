package node

import (
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// home says which directories may import a dependency.
type home struct {
	dependency string
	dirs       []string
	reason     string
}

// homes lists for each dependency the only directories that may import it, with the
// reason that a second one would be a mistake.
var homes = []home{
	{"github.com/libp2p/", []string{"swarm"}, "one room knows libp2p; the rest speaks of plan.PeerID"},
	{"github.com/quic-go/", []string{"swarm", "pipeline/link"}, "swarm shares the UDP port, link carries the data; nobody else sees a connection"},
	{"github.com/dgraph-io/badger/", []string{"checkpoint"}, "one store holds everything that must commit atomically"},
	{"github.com/hashicorp/", []string{"swarm/consensus"}, "the log is an implementation detail of the replicated state"},
	{"github.com/goreleaser/nfpm/", []string{"deploy/release"}, "only who makes packages for Linux needs it, and all that it brings"},
	{"github.com/spf13/", []string{"cmd/pnode"}, "flags are the command line's; packages take configs"},
	{"github.com/prometheus/", []string{"node/metrics"}, "one room exports to Prometheus; others give it a status"},
	{"google.golang.org/protobuf/", []string{"node/export/tfevents"}, "one form of file needs it; what pnode sends has forms of its own"},
	{"charm.land/bubbletea/", []string{"node/screen"}, "one room draws on a whole terminal; others give it a status"},
	{"github.com/charmbracelet/x/term", []string{"node/screen"}, "how wide a terminal is matters to who draws on it, and tells others"},
	{"github.com/mattn/go-runewidth", []string{"node/screen"}, "how wide text is matters on a whole terminal alone"},
	{"github.com/skip2/go-qrcode", []string{"node/qrcode"}, "one room draws codes for cameras"},
	{"github.com/goccy/go-yaml", []string{"node/config"}, "one reader of run files, strict about unknown keys"},
	{"pnode/checkpoint/journal", []string{"checkpoint"}, "one store holds everything that must commit atomically"},
	{"pnode/checkpoint/disk", []string{"checkpoint"}, "who changes a store's files asks the store"},
	{"lukechampine.com/blake3", []string{"checkpoint"}, "chunks get their names in one place"},
	{"github.com/klauspost/cpuid/", []string{"kernels/cpu"}, "the CPU's features matter to its backend alone"},
	{"github.com/parquet-go/", []string{"node/dataset/source"}, "documents come out of files in one place"},
	{"github.com/klauspost/compress/", []string{"node/dataset/source", "deploy/image"}, "documents come out of files in one place, and this program out of its own file in another"},
	{"golang.org/x/net/", []string{"swarm/tcp"}, "proxies of the environment are one place's business"},
	{"golang.org/x/text/", []string{"node/dataset/tokenizer"}, "normal forms matter to tokenizers alone"},
	{"github.com/mmcloughlin/avo", []string{"kernels/cpu/asm"}, "only the generator of the assembly needs it"},
	{"github.com/ebitengine/purego", []string{"kernels/native"}, "a binary that opens libraries is not static: one directory does, and whoever imports it knows"},
	{"pnode/kernels/native", []string{"kernels/opencl", "kernels/cuda"}, "drivers are foreign code, which backends keep to themselves"},
	{"pnode/kernels/cuda", []string{"kernels/devices", "kernels/cuda"}, "backends are chosen in one explicit list"},
	{"pnode/kernels/opencl", []string{"kernels/devices", "kernels/opencl"}, "backends are chosen in one explicit list"},
	{"pnode/kernels/devices", []string{"node", "cmd/pnode", "kernels/devices"}, "what runs on a device is told which"},
	{"pnode/node", []string{"node", "cmd/pnode"}, "imports go one way: commands call the node, nothing below does"},
	{"pnode/pipeline/link", []string{"node", "pipeline/link"}, "the runner takes an Exchange, so that tests need no network"},
	{"pnode/swarm", []string{"node", "swarm"}, "only the node knows that there is a network"},
	{"pnode/swarm/netlab", []string{"node/chaos", "node/bench"}, "it needs root and changes the machine's network namespaces: for tests, and where faults or slow lines are asked for"},
	{"pnode/swarm/memory", []string{"swarm/virtual"}, "it proves no identity and keeps no secret: for tests of many nodes in one process"},
	{"pnode/swarm/transport", []string{"swarm", "pipeline/link"}, "the data plane runs over connections of any kind; who makes them does not matter to it"},
	{"pnode/kernels/cpu", []string{"node", "kernels/cpu", "kernels/devices"}, "backends are chosen in one explicit list"},
	{"pnode/planner/layout", []string{"planner"}, "devices are numbers there: who speaks of peers asks the planner"},
	{"pnode/planner/cost", []string{"planner", "node/bench"}, "there is one cost model, and the planner speaks for it: planner.Timing"},
	{"pnode/planner/order", []string{"planner"}, "devices are numbers there: who speaks of peers asks the planner"},
	{"pnode/planner/neighbours", []string{"planner"}, "devices are numbers there: who speaks of peers asks the planner"},
	{"pnode/planner/optimum", []string{"planner"}, "devices are numbers there: who speaks of peers asks the planner"},
	{"pnode/planner/change", []string{"planner"}, "the planner speaks for it: planner.Change"},
	{"pnode/planner/measure", []string{"planner"}, "the planner speaks for it: planner.Measured"},
	{"pnode/planner/sharding", []string{"planner"}, "what replicas hold is what the plan says, not what it might have said"},
}

// forTests lists packages that no program contains, with the reason.
var forTests = map[string]string{
	"pnode/swarm/virtual": "its sockets lead nowhere",
}

// rooms lists for each room of node the only packages that import it, with the reason. A room gets
// what it needs of another one through the values and small interfaces of its own door.
var rooms = []struct {
	room   string
	dirs   []string
	reason string
}{
	{"pnode/node/leader", []string{"node", "cmd/pnode"}, "others read what the leader wants in its heartbeats; pnode plan asks for its input"},
	{"pnode/node/leader/witness", []string{"node", "node/leader"}, "coordinators are asked for the leader; the node says how"},
	{"pnode/node/leader/blame", []string{"node/leader", "node/leader/witness"}, "the log says whose fault it was; who rules on it is one place's business"},
	{"pnode/node/leader/grace", []string{"node/leader"}, "the log says who is left out; who decides it is one place's business"},
	{"pnode/node/leader/slowlines", []string{"node/leader"}, "plans count on slow lines; others read the plans"},
	{"pnode/node/generation", []string{"node"}, "a plan is carried out in one place; the loop says which"},
	{"pnode/node/checkpointer", []string{"node", "node/generation"}, "workers save and load through it; others get chunks through a function"},
	{"pnode/node/monitor", []string{"node"}, "nothing depends on what people see"},
	{"pnode/node/textsamples", []string{"node"}, "nothing depends on what people see"},
	{"pnode/node/export", []string{"cmd/pnode"}, "nothing depends on where people keep numbers"},
	{"pnode/node/metrics", []string{"node"}, "nothing depends on what people see"},
	{"pnode/node/ingest", []string{"node", "cmd/pnode"}, "who needs the text or the model gets them opened; pnode plan asks for the model"},
	{"pnode/node/screen", []string{"cmd/pnode"}, "nothing depends on what people see"},
	{"pnode/node/inventory", []string{"node", "node/progress", "cmd/pnode"}, "a node does not depend on what else runs here; it says what its folder holds"},
	{"pnode/node/hardware", []string{"node", "node/generation", "cmd/pnode"}, "workers get devices there; others get a profile; pnode plan and bench measure"},
	{"pnode/node/replayer", []string{"node", "node/generation"}, "whoever replays asks for messages there; others read in heartbeats what is kept"},
	{"pnode/node/notice", []string{"node", "node/config", "cmd/pnode"}, "a node leaves for one reason: others hear of it in the log"},
	{"pnode/node/hearsay", []string{"node"}, "what others told is in the ledger for whoever reads it"},
	{"pnode/node/listening", []string{"node"}, "who asks for a silence gets a function"},
	{"pnode/node/outersteps", []string{"node", "node/generation", "node/leader/witness"}, "workers of a local plan see the log there; heartbeats get its words, and the leader what shows them"},
	{"pnode/node/gossip", []string{"node", "node/generation", "node/leader", "node/leader/blame", "node/leader/grace", "node/monitor", "node/outersteps"}, "heartbeats are the nouns that the leader, a generation and the views have in common"},
}

// TestDependenciesHaveOneHome parses every non-test file of the module.
func TestDependenciesHaveOneHome(t *testing.T) {
	files, imports := 0, map[string]bool{}
	eachGoFile(t, func(file string) {
		if strings.HasSuffix(file, "_test.go") {
			return
		}
		files++
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", file), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range f.Imports {
			imported := strings.Trim(imp.Path.Value, `"`)
			imports[imported] = true
			if reason, ok := forTests[imported]; ok {
				t.Errorf("%s imports %s, which is for tests: %s", file, imported, reason)
			}
			checkHome(t, path.Dir(file), path.Base(file), imp.Path.Value)
			checkRoom(t, path.Dir(file), path.Base(file), imp.Path.Value)
		}
	})
	if files < 20 {
		t.Fatalf("looked at %d files only: is the test in the right folder?", files)
	}
	for _, h := range homes {
		used := false
		for imported := range imports {
			used = used || matches(imported, h.dependency)
		}
		if !used {
			t.Errorf("nothing imports %s: remove it from homes", h.dependency)
		}
	}
}

func checkHome(t *testing.T, dir, file, quoted string) {
	t.Helper()
	imported, err := strconv.Unquote(quoted)
	if err != nil {
		t.Fatal(err)
	}
	rule := -1 // the one that says most
	for i, h := range homes {
		if matches(imported, h.dependency) && (rule < 0 || len(h.dependency) > len(homes[rule].dependency)) {
			rule = i
		}
	}
	if rule < 0 {
		return
	}
	h := homes[rule]
	allowed := slices.ContainsFunc(h.dirs, func(home string) bool { return dir == home || strings.HasPrefix(dir, home+"/") })
	if !allowed {
		t.Errorf("%s/%s imports %s, whose only homes are %v: %s", dir, file, imported, h.dirs, h.reason)
	}
}

func checkRoom(t *testing.T, dir, file, quoted string) {
	t.Helper()
	for _, r := range rooms {
		if quoted == strconv.Quote(r.room) && !slices.Contains(r.dirs, dir) {
			t.Errorf("%s/%s imports %s, which only %v import: %s", dir, file, r.room, r.dirs, r.reason)
		}
	}
}

func matches(imported, dependency string) bool {
	if strings.HasSuffix(dependency, "/") {
		return strings.HasPrefix(imported, dependency)
	}
	return imported == dependency || strings.HasPrefix(imported, dependency+"/")
}
