package swarm

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/quic-go/quic-go"
	"golang.org/x/sys/unix"

	"pnode/swarm/admission"
)

// The figures of a member under attack: run as root with
//
//	go test ./swarm -run - -bench Hostile -benchtime 1x
//
// Each part is a process of its own, in a network namespace of its own: a member that computes, four attackers with 250
// connections each, that dial again what was closed 5 s before, and one machine whose nodes join.
//
// PNODE_HOSTILE_REDIAL is another time for the 5 s, PNODE_HOSTILE_KIND the number of one kind of attack, from 0, and
// PNODE_HOSTILE_PROFILE a file for a profile of the attacked member.
const (
	hostileRole   = "PNODE_HOSTILE_ROLE"
	hostileFolder = "PNODE_HOSTILE_FOLDER"
	attackers     = 4
	connsEach     = 250
	quietTime     = 20 * time.Second
	rampTime      = 5 * time.Second
	attackTime    = 40 * time.Second
	memberAddr    = "10.77.0.1"
	joinAddrs     = 250
)

// reading holds one report of the attacked member.
type reading struct {
	Steps           int64
	CPUNanos        int64 // of the process
	StepNanos       int64 // of its computing threads
	RSSBytes, Alive uint64
}

func BenchmarkHostileConnections(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("network namespaces need root")
	}
	if out, err := exec.Command("ip", "netns").CombinedOutput(); err != nil {
		b.Skipf("ip netns, of iproute2, does not work here: %v: %s", err, out)
	}
	for range b.N {
		measureHostile(b)
	}
}

func measureHostile(b *testing.B) {
	folder := b.TempDir()
	if _, err := admission.CreateOwner(folder); err != nil {
		b.Fatal(err)
	}
	connectNamespaces(b, attackers+2)
	member := startRole(b, 0, "member", folder)
	id := member.line(b)
	if err := os.WriteFile(filepath.Join(folder, "member"), []byte(id), 0o600); err != nil {
		b.Fatal(err)
	}
	calmJoins := startRole(b, attackers+1, "joiner", folder, "PNODE_HOSTILE_FIRST=0")
	quiet := member.watch(b, quietTime)
	joinsBefore := calmJoins.stop(b)
	var hostiles []*role
	for i := range attackers {
		hostiles = append(hostiles, startRole(b, 1+i, "attacker", folder))
	}
	member.watch(b, rampTime)
	joiner := startRole(b, attackers+1, "joiner", folder, "PNODE_HOSTILE_FIRST=80")
	attacked := member.watch(b, attackTime)
	joins := joiner.stop(b)
	for i, h := range hostiles {
		lines := h.stop(b)
		if len(lines) > 0 {
			b.Logf("attacker %d: %s", i, lines[len(lines)-1])
		}
	}
	member.stop(b)
	report(b, quiet, attacked)
	reportJoins(b, "calm", joinsBefore)
	reportJoins(b, "attacked", joins)
}

// report prints what the attack cost.
func report(b *testing.B, quiet, attacked []reading) {
	own := func(r []reading) (step, rest float64) {
		first, last := r[0], r[len(r)-1]
		steps := float64(last.Steps - first.Steps)
		all, computing := float64(last.CPUNanos-first.CPUNanos), float64(last.StepNanos-first.StepNanos)
		return computing / steps / 1e6, (all - computing) / steps / 1e6
	}
	peak := func(r []reading, of func(reading) uint64) (m float64) {
		for _, x := range r {
			m = max(m, float64(of(x))/1e6)
		}
		return m
	}
	rss, alive := func(r reading) uint64 { return r.RSSBytes }, func(r reading) uint64 { return r.Alive }
	calm, calmRest := own(quiet)
	step, rest := own(attacked)
	b.ReportMetric(peak(attacked, rss)-peak(quiet, rss), "MB-RSS-more")
	b.ReportMetric(peak(attacked, alive)-peak(quiet, alive), "MB-heap-more")
	b.ReportMetric(100*(rest-calmRest)/(calm+calmRest), "%-cpu/step-more")
	b.Logf("processor time of a step: %.1f + %.1f ms of everything else; attacked %.1f + %.1f ms", calm, calmRest, step, rest)
	b.Logf("resident %.1f MB, attacked %.1f MB", peak(quiet, rss), peak(attacked, rss))
}

// reportJoins prints how long joins took, in ms, and how many failed.
func reportJoins(b *testing.B, when string, lines []string) {
	var took []float64
	failed := 0
	for _, l := range lines {
		ms, err := strconv.ParseFloat(l, 64)
		if err != nil {
			b.Logf("%s: join: %s", when, l)
			failed++
			continue
		}
		took = append(took, ms)
	}
	if len(took) == 0 {
		b.Fatalf("%s: no join worked, %d failed", when, failed)
	}
	slices.Sort(took)
	b.Logf("%s: %d joins, %d failed, p50 %.0f ms, p95 %.0f ms, longest %.0f ms", when, len(took), failed,
		took[len(took)/2], took[(len(took)*95-1)/100], took[len(took)-1])
	if when == "attacked" {
		b.ReportMetric(took[(len(took)*95-1)/100], "ms-join-p95")
		b.ReportMetric(float64(failed), "joins-failed")
	}
}

// connectNamespaces makes namespaces pnode-hostile-0.. with addresses 10.77.0.1.., on one bridge in a namespace of its own.
func connectNamespaces(t testing.TB, n int) {
	ip := func(arg string) {
		t.Helper()
		if out, err := exec.Command("ip", strings.Fields(arg)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", arg, err, out)
		}
	}
	const bridge = "pnode-hostile-br"
	names := []string{bridge}
	for i := range n {
		names = append(names, fmt.Sprintf("pnode-hostile-%d", i))
	}
	for _, name := range names {
		_ = exec.Command("ip", "netns", "del", name).Run() // of a run that was killed
		ip("netns add " + name)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	}
	ip("-n " + bridge + " link add br0 type bridge")
	ip("-n " + bridge + " link set br0 up")
	for i, name := range names[1:] {
		ip(fmt.Sprintf("-n %s link add v%d type veth peer name eth0 netns %s", bridge, i, name))
		ip(fmt.Sprintf("-n %s link set v%d master br0 up", bridge, i))
		ip(fmt.Sprintf("-n %s addr add 10.77.0.%d/16 dev eth0", name, i+1))
		ip(fmt.Sprintf("-n %s link set eth0 up", name))
		ip(fmt.Sprintf("-n %s link set lo up", name))
	}
	for i := range joinAddrs { // the last one's nodes come from an address each
		ip(fmt.Sprintf("-n %s addr add 10.77.1.%d/16 dev eth0", names[n], i+1))
	}
}

// role is a process of this test's program in a namespace.
type role struct {
	cmd   *exec.Cmd
	stdin io.Closer
	lines chan string
}

func startRole(t testing.TB, namespace int, name, folder string, more ...string) *role {
	t.Helper()
	cmd := exec.Command("ip", "netns", "exec", fmt.Sprintf("pnode-hostile-%d", namespace), os.Args[0], "-test.run=^TestHostileRole$", "-test.timeout=10m")
	cmd.Env = append(append(os.Environ(), hostileRole+"="+name, hostileFolder+"="+folder), more...)
	if name == "attacker" { // this machine's processors are the member's first
		cmd.Args = append([]string{"nice", "-n", "19"}, cmd.Args...)
		cmd.Path, _ = exec.LookPath("nice")
	}
	if name == "member" && os.Getenv("PNODE_HOSTILE_PROFILE") != "" {
		cmd.Args = append(cmd.Args, "-test.cpuprofile="+os.Getenv("PNODE_HOSTILE_PROFILE"))
	}
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := &role{cmd: cmd, stdin: stdin, lines: make(chan string, 4096)}
	go func() {
		defer close(r.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			if text, ours := strings.CutPrefix(s.Text(), "> "); ours {
				r.lines <- text
			}
		}
	}()
	t.Cleanup(func() { stdin.Close(); cmd.Process.Kill() })
	return r
}

func (r *role) line(t testing.TB) string {
	t.Helper()
	select {
	case l := <-r.lines:
		return l
	case <-time.After(time.Minute):
		t.Fatal("a process of the test says nothing")
	}
	return ""
}

// watch returns the member's readings of some time.
func (r *role) watch(t testing.TB, d time.Duration) (out []reading) {
	t.Helper()
	for end := time.After(d); ; {
		select {
		case l := <-r.lines:
			var x reading
			if err := json.Unmarshal([]byte(l), &x); err != nil {
				t.Fatalf("%q: %v", l, err)
			}
			out = append(out, x)
		case <-end:
			return out
		}
	}
}

// stop ends the process and returns what it said last.
func (r *role) stop(t testing.TB) (lines []string) {
	r.stdin.Close()
	for l := range r.lines {
		lines = append(lines, l)
	}
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("%v: %v", r.cmd.Env[len(r.cmd.Env)-2:], err)
	}
	return lines
}

func say(format string, args ...any) { fmt.Printf("> "+format+"\n", args...) }

// TestHostileRole is one of the processes of BenchmarkHostileConnections. It ends with its standard input.
func TestHostileRole(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	switch os.Getenv(hostileRole) {
	case "":
		cancel()
		t.Skip("a part of BenchmarkHostileConnections")
	case "member":
		memberRole(t, ctx)
	case "attacker":
		attackerRole(t, ctx)
	case "joiner":
		joinerRole(t, ctx)
	}
}

func hostileOwner(t *testing.T) admission.Owner {
	t.Helper()
	o, err := admission.LoadOwner(os.Getenv(hostileFolder))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// memberRole computes steps beside a swarm, and says each second what it costs.
func memberRole(t *testing.T, ctx context.Context) {
	cfg := testMember(t, hostileOwner(t), testRun)
	cfg.Listen = []string{"0.0.0.0:4001"}
	s := start(t, cfg)
	say("%s", s.ID())
	var steps atomic.Int64
	computing := make([]atomic.Int64, runtime.NumCPU()) // processor time of each thread
	for i := range computing {
		go func() {
			runtime.LockOSThread()
			for ctx.Err() == nil {
				step()
				steps.Add(1)
				computing[i].Store(cpuNanos(unix.RUSAGE_THREAD))
			}
		}()
	}
	total := func() (sum int64) {
		for i := range computing {
			sum += computing[i].Load()
		}
		return sum
	}
	for tick := time.Tick(time.Second); ctx.Err() == nil; {
		select {
		case <-tick:
		case <-ctx.Done():
			return
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b, err := json.Marshal(reading{steps.Load(), cpuNanos(unix.RUSAGE_SELF), total(), residentBytes(t), m.HeapAlloc + m.StackInuse})
		if err != nil {
			t.Fatal(err)
		}
		say("%s", b)
	}
}

// step is some 100 ms of arithmetic on a quiet core.
func step() {
	x := 0.0
	for i := range 60_000_000 {
		x = x*0.999 + float64(i&7)
	}
	runtime.KeepAlive(x)
}

func cpuNanos(who int) int64 {
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		panic(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

func residentBytes(t *testing.T) uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseUint(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * uint64(os.Getpagesize())
}

// attackerRole holds its connections, a part of each kind, and dials again what is closed.
func attackerRole(t *testing.T, ctx context.Context) {
	debug.SetGCPercent(400)
	text, err := os.ReadFile(filepath.Join(os.Getenv(hostileFolder), "member"))
	if err != nil {
		t.Fatal(err)
	}
	id, err := peer.Decode(string(text))
	if err != nil {
		t.Fatal(err)
	}
	socket, err := net.ListenUDP("udp4", nil)
	if err != nil {
		t.Fatal(err)
	}
	h := hostile{to: id, udp: &net.UDPAddr{IP: net.ParseIP(memberAddr), Port: 4001}, tcp: memberAddr + ":4001", quic: &quic.Transport{Conn: socket}}
	defer h.quic.Close()
	redialAfter := 5 * time.Second
	if text := os.Getenv("PNODE_HOSTILE_REDIAL"); text != "" {
		if redialAfter, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	var tries, open atomic.Int64
	chosen := attacks
	if k := os.Getenv("PNODE_HOSTILE_KIND"); k != "" {
		n, err := strconv.Atoi(k)
		if err != nil {
			t.Fatal(err)
		}
		chosen = attacks[n : n+1]
	}
	var all sync.WaitGroup
	for i := range connsEach {
		all.Go(func() {
			for ctx.Err() == nil {
				tries.Add(1)
				open.Add(1)
				chosen[i%len(chosen)](h, ctx)
				open.Add(-1)
				select {
				case <-time.After(redialAfter/2 + rand.N(redialAfter)):
				case <-ctx.Done():
				}
			}
		})
	}
	<-ctx.Done()
	say("%d tries, %d open at the end", tries.Load(), open.Load())
	all.Wait()
}

// joinerRole has one new node after the other join, and says how long each took, in ms.
func joinerRole(t *testing.T, ctx context.Context) {
	o := hostileOwner(t)
	text, err := os.ReadFile(filepath.Join(os.Getenv(hostileFolder), "member"))
	if err != nil {
		t.Fatal(err)
	}
	first, err := strconv.Atoi(os.Getenv("PNODE_HOSTILE_FIRST"))
	if err != nil {
		t.Fatal(err)
	}
	for n := first; ctx.Err() == nil; n++ {
		cfg := testMember(t, o, testRun)
		cfg.Listen = []string{"0.0.0.0:0"}
		route := fmt.Sprintf("route replace 10.77.0.0/16 dev eth0 src 10.77.1.%d", 1+n%joinAddrs)
		if out, err := exec.Command("ip", strings.Fields(route)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", route, err, out)
		}
		began := time.Now()
		s, err := New(ctx, cfg)
		if err != nil {
			return
		}
		err = s.Connect(ctx, fmt.Sprintf("/ip4/%s/udp/4001/quic-v1/p2p/%s", memberAddr, text), fmt.Sprintf("/ip4/%s/tcp/4001/p2p/%s", memberAddr, text))
		switch {
		case err == nil:
			say("%.1f", float64(time.Since(began).Microseconds())/1000)
		case ctx.Err() == nil:
			say("failed: %s", strings.ReplaceAll(err.Error(), "\n", " "))
		}
		s.Close()
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}
