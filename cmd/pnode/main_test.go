package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pnode/node/api"
	"pnode/node/config"
	"pnode/planner/plan"
)

// pnode carries a command line out within the test and gives the exit code and what was
// printed.
func pnode(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	e := environment{stdin: strings.NewReader(""), stdout: &out, stderr: &err, interrupts: &interrupts{exit: func(int) {}}}
	code = e.run(args)
	return code, out.String(), err.String()
}

func TestPrintConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.yaml")
	if err := os.WriteFile(file, []byte("steps: 7\nseed: 8\nreplicas: 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.Steps, want.Seed, want.Replicas, want.Data = 600, 8, 2, []string{"a,b.txt", "c.txt", "d.txt"}
	code, out, stderr := pnode(t, "train", "--config", file, "--steps", "600", "--data", "a,b.txt", "--data", "c.txt", "d.txt", "--print-config")
	if code != exitOK || stderr != "" {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	printed := filepath.Join(t.TempDir(), "printed.yaml")
	if err := os.WriteFile(printed, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := config.Load(printed)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\n got %+v\nwant %+v", err, got, want)
	}
}

func TestEverySettingHasAFlag(t *testing.T) {
	e := environment{}
	flags := e.trainCommand().Flags()
	def := config.Default()
	for _, key := range config.Keys() {
		f := flags.Lookup(strings.ReplaceAll(key, "_", "-"))
		if f == nil {
			t.Errorf("no flag for %s", key)
		} else if f.Usage == "" {
			t.Errorf("no help for --%s", f.Name)
		}
	}
	if got := flags.Lookup("steps").DefValue; got != strconv.Itoa(def.Steps) {
		t.Errorf("--steps defaults to %s, want %d", got, def.Steps)
	}
}

func TestExitCodesAndMessages(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"train --step 3", exitUsage, "unknown flag: --step: did you mean --steps?; see `pnode train --help`"},
		{"train --bogus", exitUsage, "unknown flag: --bogus; see `pnode train --help`"},
		{"train stray", exitUsage, `unexpected "stray": name text with --data; see`},
		{"train --steps 0", exitUsage, "pnode: --steps is 0: want 1 to"},
		{"train --steps many", exitUsage, "pnode: --steps \"many\": want a whole number; see `pnode train --help`"},
		{"train --steps 99999999999999999999", exitUsage, "pnode: --steps \"99999999999999999999\": want a whole number that is not so large; see"},
		{"train --seed -1", exitUsage, "pnode: --seed \"-1\": want a whole number from 0; see"},
		{"train --lr x", exitUsage, "pnode: --lr \"x\": want a number; see"},
		{"train --json=3", exitUsage, "pnode: --json \"3\": want true or false; see"},
		{"invite --ttl 9", exitUsage, "pnode: --ttl \"9\": want a time such as 90s or 24h; see"},
		{"train --replicas none", exitUsage, "pnode: --replicas \"none\": want auto, or a number from 1; see"},
		{"train --data /no/such", exitUsage, "pnode: data: /no/such: no such file or folder; check the spelling"},
		{"train --data /no/*.such", exitUsage, "the pattern /no/*.such matches nothing"},
		{"train --schedule foo", exitUsage, "auto leaves it to the planner"},
		{"join pnode1-AAAA", exitUsage, "the invite is damaged"},
		{"join /ip4/127.0.0.1/udp/9/quic-v1/p2p/12D3KooWGzxzKZYveHXtpG6AsrUJBcWxHBFS2HsEoGTxrMLvKXtf", exitUnreachable, "this run needs an invite"},
		{"train --preset giant", exitUsage, "pnode: --preset is giant: want one of nano"},
		{"train --config /no/such.yaml", exitUsage, "no such"},
		{"train --resume", exitUsage, "no run found"},
		{"join one two", exitUsage, "accepts at most 1 arg"},
		{"join --log-level loud", exitUsage, "--log-level is loud"},
		{"join --threads all", exitUsage, "--threads \"all\": want a whole number"},
		{"frobnicate", exitUsage, "unknown command \"frobnicate\"; see"},
		{"trian", exitUsage, "unknown command \"trian\": did you mean \"train\"?"},
		{"train --resume --micros 4", exitUsage, "--micros cannot be given with --resume: a run's specification is fixed when it starts; only --steps, --dir"},
		{"train --resume --print-config", exitUsage, "--print-config shows the settings of a new run"},
		{"train --listen 192.0.2.7:0", exitUsage, "pnode: --listen is 192.0.2.7:0: want an address of this machine: none, as in :4001, for every interface"},
		{"train --trace /no/such/t.json", exitUsage, "pnode: --trace is /no/such/t.json: no such file or directory; name a file in a folder that is there"},
		{"join --listen 192.0.2.7:0", exitUsage, "pnode: --listen is 192.0.2.7:0: want an address of this machine: none, as in :4001, for every interface"},
		{"help frobnicate", exitUsage, "unknown command \"frobnicate\"; see"},
		{"help bench frobnicate", exitUsage, "unknown command \"frobnicate\"; see"},
		{"checkpoints frobnicate", exitUsage, "unknown command"},
		{"bench frobnicate", exitUsage, "unknown command"},
		{"completion frobnicate", exitUsage, "unknown command"},
		{"completion bash frobnicate", exitUsage, "unexpected \"frobnicate\""},
		{"checkpoints ls", exitUsage, "no run found"},
		{"status", exitUnreachable, "no node runs"},
		{"status --dir " + dir, exitUnreachable, "no node runs in " + dir},
		{"status --dir /no/such", exitUsage, "no node runs in /no/such: no such file or folder; check the spelling"},
		{"plan --config /no/such.yaml", exitUsage, "no such file or folder; check the spelling"},
		{"leave", exitUnreachable, "no node runs"},
		{"watch", exitUnreachable, "no node runs"},
		{"watch --listen 127.0.0.1", exitUsage, "--listen is for --share: give both"},
		{"watch --http", exitUsage, "--http is for --share: give both"},
		{"watch --share --print", exitUsage, "--print is for the page on this machine: leave it out, --share prints its link"},
		{"watch here", exitUsage, "unexpected \"here\": this command takes flags alone"},
		{"invite", exitUnreachable, "no node runs"},
		{"train --init ../../checkpoint/huggingface/testdata/gpt2 --lora /no/such", exitUsage, "pnode: lora: /no/such: no such file or folder"},
		{"plan --init /no/such", exitUsage, "there is no folder /no/such: check the spelling"},
		{"plan --nodes 5000", exitUsage, "--nodes is 5000: want 1 to 4096"},
		{"samples --step 1", exitUsage, "no run found"},
		{"export " + dir + "/out", exitUsage, "no run found"},
		{"tokenize --tokenizer /no/such --out " + dir + "/out main.go", exitUsage, "no such file or directory; name a tokenizer.json"},
		{"samples", exitUsage, "--step is 0, or missing: want 1 or more"},
		{"samples --step 1 --steps 0", exitUsage, "--steps is 0: want 1 or more"},
		{"join pnode1-AAAA --lan", exitUsage, "an invite and --lan: give one of them"},
		{"join --lan desk", exitUsage, "unexpected \"desk\": the machine of a run stands after =: pnode join --lan=desk"},
		{"join --lan=desk pnode1-AAAA", exitUsage, "an invite and --lan: give one of them"},
		{"tokenize --field body", exitUsage, "unknown flag: --field: did you mean --column?"},
		{"train --field body", exitUsage, "unknown flag: --field: did you mean --column?"},
		{"eval", exitUsage, "name at least one file of text to predict"},
		{"train --lan --listen 127.0.0.1:4001", exitUsage, "pnode: --lan is true: nobody in the local network reaches --listen 127.0.0.1:4001"},
		{"admit", exitUnreachable, "no node runs"},
		{"admit 1 2", exitUsage, "accepts at most 1 arg"},
		{"invite --qr --list", exitUsage, "--qr is for a new invite"},
		{"invite --uses 0", exitUsage, "--uses is 0: want 1 to"},
		{"train --lr 0", exitUsage, "pnode: --lr is 0: want more than 0, up to 10"},
		{"train --dir main.go", exitUsage, "pnode: --dir is main.go, which is a file: name a folder"},
		{"train --dir main.go/run", exitUsage, "not a directory; choose another with --dir"},
		{"status --dir main.go", exitUsage, "which is a file"},
		{"tokenize --tokenizer bytes --out main.go main.go", exitUsage, "--out is main.go, which is a file"},
		{"tokenize --tokenizer main.go --out " + dir + "/out main.go", exitUsage, "not a valid tokenizer file"},
		{"export main.go", exitUsage, "main.go is a file: name a new folder"},
		{"schedule --trace main.go", exitUsage, "bad trace: want a JSON array"},
		{"invite --ttl 1ms", exitUsage, "--ttl is 1ms: want 1s to"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			code, _, stderr := pnode(t, strings.Fields(tt.args)...)
			if code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if !strings.HasPrefix(stderr, "pnode: ") || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, tt.want) {
				t.Errorf("want one line with %q:\n%s", tt.want, stderr)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	e := environment{stdout: io.Discard, stderr: io.Discard}
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		if c.Short == "" {
			t.Errorf("%s: no summary", c.CommandPath())
		}
		if c.Runnable() && !c.HasSubCommands() && c.Example == "" {
			t.Errorf("%s: no example", c.CommandPath())
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if value, _ := pflag.UnquoteUsage(f); strings.Contains(value, " ") {
				t.Errorf("%s: the help calls the value of --%s %q", c.CommandPath(), f.Name, value)
			}
		})
		for _, sub := range c.Commands() {
			check(sub)
		}
	}
	check(e.rootCommand())
	_, out, _ := pnode(t, "help", "exit-codes")
	for _, code := range []int{exitOK, exitFailure, exitUsage, exitUnreachable, exitFinished, exitInterrupted} {
		if !strings.Contains(out, strconv.Itoa(code)+"  ") {
			t.Errorf("exit code %d is not explained:\n%s", code, out)
		}
	}
	if code, out, _ := pnode(t, "completion", "bash"); code != exitOK || !strings.Contains(out, "__start_pnode") {
		t.Errorf("completion: exit code %d", code)
	}
	if code, out, _ := pnode(t, "version"); code != exitOK || !strings.HasPrefix(out, "pnode ") || !strings.Contains(out, "go1.") {
		t.Errorf("version: exit code %d, %q", code, out)
	}
	if _, out, _ := pnode(t, "train", "--help"); strings.Contains(out, "supervised") {
		t.Error("--supervised is shown")
	}
}

// stillNode is a node on which nothing happens.
type stillNode struct {
	api.Hub
	left chan struct{}
}

func (*stillNode) Status() api.Status {
	return api.Status{Run: "the-run", Peer: "p", State: "training", Step: 3, Steps: 9}
}

func (*stillNode) Invite(_ context.Context, r api.InviteRequest) (string, error) {
	return "pnode1-" + r.TTL.String() + "-" + strconv.Itoa(r.Uses) + map[bool]string{true: "-owner"}[r.Owner], nil
}

func (*stillNode) Invites() ([]api.Invite, error) {
	return []api.Invite{{Serial: "3f9a01", Role: "member", Uses: 3, Left: 1, By: "desk", State: "used up", Peers: []string{"ada", "bob (removed)"}}}, nil
}

func (*stillNode) Revoke(_ context.Context, r api.RevokeRequest) (string, error) {
	if r.Target == "desk" {
		return "", errors.New("node: only gaming-pc can revoke: a node of the run's owner")
	}
	return r.Target + " is removed: " + r.Reason, nil
}

func (*stillNode) Recover(context.Context) (api.Recovery, error) { return api.Recovery{}, nil }

func (n *stillNode) Leave(context.Context) error {
	close(n.left)
	return nil
}

func (*stillNode) Profiles() (api.Profiles, error) {
	return api.Profiles{Devices: []api.DeviceProfile{{Node: "desk", CountedPermille: 1000}}}, nil
}

func (*stillNode) Checkpoints() (api.CheckpointList, error) {
	return api.CheckpointList{Checkpoints: []api.StoredCheckpoint{{Step: 77, Generation: 1, Layers: 6, SizeBytes: 5000, Holders: []plan.PeerID{"p"}, HolderNames: []string{"desk"}, Copies: 1}}}, nil
}

func (*stillNode) KeepWhole() (api.Keeping, error) { return api.Keeping{}, api.ErrNotReady }

func (*stillNode) Model() (api.Model, error) { return api.Model{}, api.ErrNotReady }

func (*stillNode) Chunk(context.Context, plan.Step, plan.Hash) ([]byte, error) {
	return nil, api.ErrNotReady
}

func (*stillNode) Stop(context.Context) error { return nil }
func (*stillNode) Schedule(io.Writer) error   { return api.ErrNotReady }

// serveNode answers for a node in a folder until the test ends.
func serveNode(t *testing.T, dir string, node api.Node) {
	t.Helper()
	s, err := api.Listen(api.Options{Dir: dir, Node: node})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
}

func TestCommandsThatSpeakToANode(t *testing.T) {
	dir, node := t.TempDir(), &stillNode{left: make(chan struct{})}
	serveNode(t, dir, node)
	code, out, stderr := pnode(t, "status", "--json", "--dir", dir)
	var st api.Status
	if err := json.Unmarshal([]byte(out), &st); err != nil || code != exitOK || !reflect.DeepEqual(st, node.Status()) {
		t.Errorf("status --json: %d %v %s%s", code, err, out, stderr)
	}
	if code, out, _ := pnode(t, "status", "--dir", dir); code != exitOK || !strings.Contains(out, "3 of 9") {
		t.Errorf("status: %d\n%s", code, out)
	}
	code, out, stderr = pnode(t, "invite", "--dir", dir, "--ttl", "10m", "--uses", "4")
	if code != exitOK || out != "pnode1-10m0s-4\n" || !strings.HasPrefix(stderr, "4 nodes may join with it, until 20") {
		t.Errorf("invite: %d %q %q", code, out, stderr)
	}
	if code, out, stderr := pnode(t, "invite", "--dir", dir, "--owner"); code != exitOK || out != "pnode1-24h0m0s-1-owner\n" || !strings.Contains(stderr, "as owners") {
		t.Errorf("invite --owner: %d %q %q", code, out, stderr)
	}
	if code, out, stderr := pnode(t, "invite", "--dir", dir, "--list"); code != exitOK || !strings.Contains(out, "3f9a01  member  1 of 3  used up  -        desk     ada, bob (removed)") {
		t.Errorf("invite --list: %d %q %q", code, out, stderr)
	}
	if code, out, stderr := pnode(t, "invite", "--dir", dir, "--list", "--json"); code != exitOK || !strings.HasPrefix(out, `{"serial":"3f9a01"`) {
		t.Errorf("invite --list --json: %d %q %q", code, out, stderr)
	}
	if code, out, stderr := pnode(t, "revoke", "ada", "--dir", dir, "--reason", "spam"); code != exitOK || out != "ada is removed: spam\n" {
		t.Errorf("revoke: %d %q %q", code, out, stderr)
	}
	if code, _, stderr := pnode(t, "revoke", "desk", "--dir", dir); code != exitUnreachable || !strings.Contains(stderr, "only gaming-pc can revoke") {
		t.Errorf("revoke elsewhere: %d %q", code, stderr)
	}
	if code, out, stderr := pnode(t, "watch", "--print", "--dir", dir); code != exitOK || !strings.HasPrefix(out, "http://127.0.0.1:") || strings.Count(out, "\n") != 1 {
		t.Errorf("watch: %d %q %q", code, out, stderr)
	}
	if code, out, stderr := pnode(t, "watch", "--share", "--listen", "203.0.113.5", "--dir", dir); code != exitUsage || out != "" || !strings.Contains(stderr, "--listen is 203.0.113.5, which is of no local network") {
		t.Errorf("watch --share with everybody: %d %q %q", code, out, stderr)
	}
	if err := os.WriteFile(filepath.Join(dir, config.MembershipFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, stderr := pnode(t, "checkpoints", "ls", "--dir", dir); code != exitOK || !strings.Contains(out, "77 ") {
		t.Errorf("checkpoints ls: %d %q %q", code, out, stderr)
	}
	list := `[{"dir":"` + dir + `","checkpoints":[{"step":77,"generation":1,"layers":6,"size_bytes":5000,"holders":["p"],"holder_names":["desk"],"copies":1,"here":0}]}]`
	if code, out, stderr := pnode(t, "checkpoints", "ls", "--json", "--dir", dir); code != exitOK || out != list+"\n" {
		t.Errorf("checkpoints ls --json: %d %q %q", code, out, stderr)
	}
	if code, _, stderr := pnode(t, "checkpoints", "verify", "--dir", dir); code != exitFailure || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "pnode leave --dir "+dir) {
		t.Errorf("checkpoints verify: %d %q", code, stderr)
	}
	if code, out, _ := pnode(t, "leave", "--dir", dir); code != exitOK || !strings.Contains(out, dir) {
		t.Errorf("leave: %d %q", code, out)
	}
	<-node.left
}

// TestSupervisedNodesEndWithTheirInput: what is written there does not matter.
func TestSupervisedNodesEndWithTheirInput(t *testing.T) {
	in, out := io.Pipe()
	c := &cobra.Command{SilenceErrors: true, SilenceUsage: true}
	environment{stdin: in, interrupts: &interrupts{}}.runsNode(c, func(ctx context.Context, _ []string) error {
		if _, err := out.Write([]byte("ignored")); err != nil {
			return err
		}
		if ctx.Err() != nil {
			t.Error("cancelled by input")
		}
		out.Close()
		<-ctx.Done()
		return nil
	})
	c.SetArgs([]string{"--supervised"})
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestBenchListsItsMeasurements(t *testing.T) {
	code, out, stderr := pnode(t, "bench")
	if code != exitOK || stderr != "" || !strings.Contains(out, "kernels") || !strings.Contains(out, "step ") {
		t.Errorf("exit code %d: %s\n%s", code, stderr, out)
	}
	for args, want := range map[string]string{
		"kernels --threads 0":       "--threads is 0: take 1 to ",
		"kernels --threads -1":      "--threads is -1: take 1 to ",
		"kernels --rounds -1":       "--rounds is -1: take 1 to 10000",
		"step --model gpt5":         "--model is \"gpt5\": take one of ",
		"generate --model gpt5":     "--model is \"gpt5\": take one of ",
		"generate --tokens 1":       "--tokens is 1: take 2 to 512",
		"generate --batch 0":        "--batch is 0: take 1 to 64",
		"schedules --stage-time 2s": "--stage-time is 2s: take 1ms to 1s",
		"schedules --latency 2s":    "--latency is 2s: take 0s to 1s",
		"devices --rounds -1":       "--rounds is -1: take 1 to 10000",
		"devices --only speed":      "--only is \"speed\": take one of products, ",
		"devices --size huge":       "--size is \"huge\": take one of full, small",

		"protocol-nanogpt --micro-batch 8,3":       "--micro-batch is 3: take parts of 512",
		"protocol-nanogpt --seeds 2":               "name a folder for them with --losses",
		"protocol-nanogpt --codec int8":            "name a folder for them with --losses",
		"protocol-nanogpt --losses x --seeds -1":   "--seeds is -1: take 1 to ",
		"protocol-nanogpt --losses x --steps -5":   "--steps is -5: take 1 to ",
		"protocol-nanogpt --losses x --stages 9":   "--stages is 9: take 2 to 8",
		"protocol-nanogpt --losses x --codec int3": "--codec is \"int3\": take one of f32, ",

		"local-steps --codec int3":         "--codec is \"int3\": take one of f32, ",
		"local-steps --steps 20 --every 0": "--every is 0: take 2 to 20",
		"local-steps --every 9 --delay 9":  "--delay is 9: take 0 to 8",
		"local-steps --replicas 1":         "--replicas is 1: take 2 to 16",
		"local-steps --lr -1":              "--lr is -1: take more than 0",
	} {
		code, _, stderr := pnode(t, append([]string{"bench"}, strings.Fields(args)...)...)
		if code != exitUsage || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, want one line with %q:\n%s", args, code, want, stderr)
		}
	}
}

func (*stillNode) MayInvite() error { return nil }

func (*stillNode) Newcomers() ([]api.Newcomer, error) { return nil, api.ErrNotReady }

func (*stillNode) Admit(context.Context, string) (string, error) { return "", api.ErrNotReady }
func (*stillNode) Refuse(api.Refusal) ([]api.Newcomer, error)    { return nil, api.ErrNotReady }
