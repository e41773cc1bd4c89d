package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/netlab"
)

// networksEnv names the file for the table of all pairs, which .ci/networks makes.
const networksEnv = "PNODE_NETWORKS"

// networksLogsEnv names a folder for what the members of each pair wrote, with their goroutines where they did not train.
const networksLogsEnv = "PNODE_NETWORKS_LOGS"

const (
	// pairSteps leave the members some seconds to find a better way than the first; pairStepsLossy are enough where most
	// packets have to be sent again. pairStepsPatient are the most on a busy machine: a way that failed rests for up to 32 s.
	pairSteps, pairStepsLossy, pairStepsPatient = 40, 10, 500
	// pairTimeout is when a pair counts as one that does not train, lossyTimeout the same where most packets have to be
	// sent again.
	pairTimeout, lossyTimeout = 60 * time.Second, 3 * time.Minute
	// pairsAtOnce of the matrix run side by side: most of their time is waiting.
	pairsAtOnce = 3
)

// place is where a member may be: a kind of network, and the line to it.
type place struct {
	name string
	kind netlab.Kind
	line []netlab.Line
}

// places lists the matrix's rows.
var places = []place{
	{"public", netlab.Public, nil},
	{"full-cone", netlab.FullCone, nil},
	{"port-restricted", netlab.PortRestricted, nil},
	{"symmetric", netlab.Symmetric, nil},
	{"cgnat", netlab.CGNAT, nil},
	{"udp-blocked", netlab.UDPBlocked, nil},
	{"tcp-443", netlab.TCP443, nil},
	{"one-port", netlab.OnePort, nil},
	{"runpod", netlab.RunPod, nil},
	{"vast", netlab.Vast, nil},
	{"ipv6", netlab.IPv6, nil},
	{"proxy", netlab.Proxy, nil},
	{"mtu-1280", netlab.MTU1280, nil},
	{"mtu-1280-silent", netlab.MTU1280Silent, nil},
	{"loss-5", netlab.Public, []netlab.Line{{Rate: 100e6, Delay: 20 * time.Millisecond, Loss: 0.05}}},
	{"reordering", netlab.Public, []netlab.Line{{Rate: 100e6, Delay: 20 * time.Millisecond, Reorder: 0.05}}},
}

func placeNamed(name string) place {
	return places[slices.IndexFunc(places, func(p place) bool { return p.name == name })]
}

// flags returns how a member there listens: where others can reach it, on a port that the networks let them use.
func (p place) flags(host *netlab.Host) []string {
	switch p.kind {
	case netlab.Public, netlab.IPv6, netlab.MTU1280, netlab.MTU1280Silent:
		return []string{"--listen", ":443"}
	case netlab.OnePort: // nobody tells the node of its port
		return []string{"--announce", "tcp/" + host.Announce()}
	}
	return nil
}

// ways returns what data from a member there to one elsewhere may go over, by what the two networks let through: QUIC, TCP
// or both; else a WebSocket, where a proxy leads to a port 443; else a relay alone.
func (p place) ways(to place) (all []plan.Transport) {
	if p.udp() && to.udp() && (p.dials(to) || to.dials(p) || p.mapped() && to.mapped()) {
		all = append(all, plan.QUIC)
	}
	// A path that drops large packets without a word takes nothing from TCP, unless the sender's own router says that
	// packets are too big for another path.
	narrow := p.kind == netlab.MTU1280Silent || to.kind == netlab.MTU1280Silent && p.kind != netlab.MTU1280
	open := p.dials(to) || to.dials(p)
	switch {
	case narrow:
	case p.kind != netlab.Proxy && to.kind != netlab.Proxy && (open || p.mapped() && to.mapped()):
		all = append(all, plan.TCP)
	case open && all == nil:
		all = append(all, plan.WebSocket)
	}
	if all == nil {
		all = append(all, plan.Relay)
	}
	return all
}

// dials reports whether members there can open a connection to those elsewhere at an address that these tell: over UDP and
// TCP, as far as both have them.
func (p place) dials(to place) bool {
	switch to.kind {
	case netlab.Public, netlab.MTU1280, netlab.MTU1280Silent: // on port 443, over IPv4 and IPv6
		return true
	case netlab.IPv6: // from those that have it
		return p.kind == netlab.Public || p.kind == netlab.IPv6 || p.kind == netlab.MTU1280 || p.kind == netlab.MTU1280Silent
	case netlab.OnePort, netlab.RunPod, netlab.Vast, netlab.FullCone: // from those that reach any port over IPv4
		return p.kind != netlab.IPv6 && p.kind != netlab.TCP443 && p.kind != netlab.Proxy
	}
	return false
}

// mapped reports whether what members there send to different places comes from one port of a NAT that also lets answers in
// from where something was sent to: two such members, which dial each other at the same moment, punch a hole. A symmetric
// NAT has other ports; a firewall that lets port 443 out alone, or a proxy, lets nothing out to a hole.
func (p place) mapped() bool {
	switch p.kind {
	case netlab.FullCone, netlab.PortRestricted, netlab.CGNAT, netlab.UDPBlocked, netlab.OnePort, netlab.RunPod, netlab.Vast:
		return true
	}
	return false
}

// udp reports whether UDP gets out of the place.
func (p place) udp() bool {
	switch p.kind {
	case netlab.UDPBlocked, netlab.TCP443, netlab.OnePort, netlab.RunPod, netlab.Proxy:
		return false
	}
	return true
}

// lossy reports whether the line there loses packets.
func (p place) lossy() bool { return p.line != nil && p.line[0].Loss > 0 }

// outcome says what became of a pair.
type outcome struct {
	a, b    place
	trained bool
	over    plan.Transport // from the first to the second, "" where nobody tells
	first   float64        // seconds from the start of the later one to the first step
	reason  string         // for the transport, or against training
}

// fault returns what is wrong with the outcome, "" for nothing.
func (o outcome) fault() string {
	if !o.trained {
		return "no training"
	}
	if ways := o.a.ways(o.b); !slices.Contains(ways, o.over) {
		return fmt.Sprintf("over %q, though the networks let %v through", o.over, ways)
	}
	if o.over != plan.QUIC && o.reason == "" { // the cause of what is worse than QUIC, or how much faster it is
		return fmt.Sprintf("over %q without a reason", o.over)
	}
	return ""
}

// letter stands for over what data goes: H for TCP through a punched hole, where neither can dial the other.
func (o outcome) letter() string {
	switch {
	case !o.trained:
		return "–"
	case o.over == plan.TCP && !o.a.dials(o.b) && !o.b.dials(o.a):
		return "H"
	}
	return strings.ToUpper(string(o.over + "?")[:1])
}

func (o outcome) String() string {
	return fmt.Sprintf("| %s | %s | %s | %s | %.1f | %s |", o.a.name, o.b.name,
		map[bool]string{true: "yes", false: "**no**"}[o.trained], o.over, o.first, o.reason)
}

// trainPair trains with a public founder that computes nothing and one member at either place, for pairSteps at least, and
// until all is as expected or the steps or the time are over.
func trainPair(t *testing.T, a, b place, steps int, patience time.Duration) (o outcome) {
	t.Helper()
	o = outcome{a: a, b: b}
	lab := netlab.New(t)
	file := smallRun(t, steps)
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	founder, full, half := lab.Host("founder", netlab.Public), smallDevice(t, "1MB"), smallDevice(t, "88MB")
	deadline := time.Now().Add(patience)
	p := launchBy(t, founder.Start, binary, nil, "train", "--config", file, "--dir", t.TempDir(), "--json", "--name", "founder",
		"--replicas", "1", "--stages", "2", "--min-nodes", "3", "--listen", ":443", "--emulate", full, "--log-level", "info")
	invite, ok := p.stderr.soon(`pnode join (pnode1-\S+)`, deadline)
	if !ok {
		t.Fatalf("no invite:\n%s", p.stderr)
	}
	members, hosts, dirs := []*process{p}, []*netlab.Host{founder}, []string{""}
	begin := time.Now()
	for i, at := range []place{a, b} {
		name, dir := string(rune('a'+i)), t.TempDir()
		host := lab.Host(name, at.kind, at.line...)
		args := append([]string{"join", invite[1], "--dir", dir, "--name", name, "--emulate", half, "--log-level", "info"}, at.flags(host)...)
		begin = time.Now()
		members, hosts, dirs = append(members, launchBy(t, host.Start, binary, nil, args...)), append(hosts, host), append(dirs, dir)
	}
	defer func() {
		for i, m := range members {
			if dir := os.Getenv(networksLogsEnv); dir != "" {
				m.writeLog(filepath.Join(dir, fmt.Sprintf("%s_x_%s.%d.log", a.name, b.name, i)), !o.trained)
			}
			_ = m.cmd.Process.Kill()
		}
	}()
	ended := make(chan struct{}, len(members))
	for _, m := range members[1:] {
		go func() {
			for range m.steps { // they print none
			}
			ended <- struct{}{}
		}()
	}
	wanted := min(steps, pairSteps)
	for p.last.Step < steps && (p.last.Step < wanted || !slices.Contains(a.ways(b), o.over)) {
		s, ok := p.nextStep(deadline, ended)
		if !ok {
			o.reason = fmt.Sprintf("step %d of %d: %s", p.last.Step, steps, lastLine(members))
			return o
		}
		if o.first == 0 {
			o.first = time.Since(begin).Seconds()
		}
		if at := s.Step - wanted*9/10; at < 0 || at%2 != 0 || s.Step == steps || slices.Contains(a.ways(b), o.over) {
			continue
		}
		o.over, o.reason = spoke(t, hosts[1], members[1], dirs[1])
	}
	o.trained = true
	reference := alone(t, file, steps)
	for s, loss := range p.losses {
		if reference[s] != loss {
			o.trained, o.reason = false, fmt.Sprintf("step %d has loss %s, alone %s", s, loss, reference[s])
		}
	}
	return o
}

// smallRun is a runFile whose gradients need no room beside those of one micro-batch.
func smallRun(t testing.TB, steps int) string {
	t.Helper()
	file := runFile(t, steps)
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, append(text, "sum_groups: 1\n"...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// smallDevice describes a device for --emulate with this much memory: the run's model takes 95 MB on one, 80 MB on
// each of two.
func smallDevice(t testing.TB, memory string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "device.yaml")
	yaml := fmt.Sprintf("device: {matmul: 20GFLOP/s, bandwidth: 8GB/s, memory: %s}\n", memory)
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// writeLog writes what the process has written to a file, and with stacks, which end the process, its goroutines.
func (p *process) writeLog(file string, stacks bool) {
	if stacks && p.cmd.Process.Signal(syscall.SIGQUIT) == nil {
		_ = p.cmd.Wait()
	}
	_ = os.WriteFile(file, []byte(p.stderr.String()), 0o600)
}

// soon is await up to a time.
func (w *watched) soon(pattern string, deadline time.Time) ([]string, bool) {
	re, late := regexp.MustCompile(pattern), time.After(time.Until(deadline))
	for {
		if m := re.FindStringSubmatch(w.String()); m != nil {
			return m, true
		}
		select {
		case <-w.fresh:
		case <-late:
			return nil, false
		}
	}
}

// nextStep takes a step in; false at the end of the process, of the time, or of another member before that.
func (p *process) nextStep(deadline time.Time, ended <-chan struct{}) (step, bool) {
	late := time.After(time.Until(deadline))
	for {
		select {
		case s, ok := <-p.steps:
			if ok {
				p.note(s)
			}
			return s, ok
		case <-ended: // with the run, if its steps are all here
			ended = nil
			late = time.After(min(time.Until(deadline), 5*time.Second))
		case <-late:
			return step{}, false
		}
	}
}

// lastLine gives what the members said last, shortly.
func lastLine(members []*process) string {
	var said []string
	for _, m := range members {
		lines := strings.Split(strings.TrimSpace(m.stderr.String()), "\n")
		last := lines[len(lines)-1]
		said = append(said, last[:min(len(last), 160)])
	}
	return strings.Join(said, " / ")
}

// dataLink matches what a member logs of the transport that its messages take, unless that is QUIC from the start.
var dataLink = regexp.MustCompile(`msg="data link" peer=\w+ transport=(\w+)(?:.* reason="?([^"\n]*))?`)

// spoke returns over which transport the member's messages go to the other one, and why it is that one, as its log tells;
// "" where the log has yet to tell, since status itself may still show how the link was measured, and where the plan joins
// the two no link.
func spoke(t *testing.T, host *netlab.Host, member *process, dir string) (over plan.Transport, reason string) {
	t.Helper()
	p := launchBy(t, host.Start, member.cmd.Path, nil, "status", "--json", "--dir", dir)
	p.finish(0)
	var said struct {
		Peer  string
		Plan  []struct{ Peer string }
		Links []struct {
			From      string
			Transport plan.Transport
			Reason    string `json:"transport_reason"`
		}
	}
	if err := json.Unmarshal(p.stdout.Bytes(), &said); err != nil {
		t.Errorf("status: %v", err)
	}
	for _, l := range said.Links {
		if l.From != said.Peer {
			continue
		}
		if logged := dataLink.FindAllStringSubmatch(member.stderr.String(), -1); logged != nil {
			last := logged[len(logged)-1]
			return plan.Transport(strings.ToLower(last[1])), cmp.Or(last[2], l.Reason)
		}
		if l.Transport == plan.QUIC {
			return plan.QUIC, ""
		}
		return "", "the log does not tell yet"
	}
	return "", fmt.Sprint("the plan does not join the two: ", said.Plan)
}

// TestNetworks trains across telling pairs of places, two at a time: the whole matrix in small.
func TestNetworks(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes take minutes")
	}
	t.Parallel()
	pairs := [][2]string{
		{"port-restricted", "cgnat"},     // through a hole
		{"udp-blocked", "cgnat"},         // through a hole over TCP, with control
		{"symmetric", "mtu-1280-silent"}, // over QUIC, which alone gets through
		{"public", "udp-blocked"},        // over TCP
		{"runpod", "udp-blocked"},        // over TCP, to the port that is mapped
		{"proxy", "public"},              // over a WebSocket
		{"symmetric", "symmetric"},       // through a relay, as the rest
		{"tcp-443", "proxy"},
		{"ipv6", "port-restricted"},
	}
	var names []string
	for _, pair := range pairs {
		names = append(names, pair[0]+" and "+pair[1])
	}
	inLanes(t, names, func(t *testing.T, i int) {
		o := trainPair(t, placeNamed(pairs[i][0]), placeNamed(pairs[i][1]), pairStepsPatient, endToEndTimeout)
		t.Log(o)
		if f := o.fault(); f != "" {
			t.Error(f)
		}
	})
}

// TestEveryPairOfNetworks makes the table of docs/networks.md.
func TestEveryPairOfNetworks(t *testing.T) {
	file := os.Getenv(networksEnv)
	if file == "" {
		t.Skip("takes most of an hour: run .ci/networks")
	}
	var mu sync.Mutex // guards all
	var all []outcome
	slots := make(chan struct{}, pairsAtOnce)
	t.Run("pairs", func(t *testing.T) {
		for i, a := range places {
			for _, b := range places[i:] {
				t.Run(a.name+" and "+b.name, func(t *testing.T) {
					t.Parallel()
					slots <- struct{}{}
					defer func() { <-slots }()
					steps, patience := pairSteps, pairTimeout
					if a.lossy() || b.lossy() {
						steps, patience = pairStepsLossy, lossyTimeout
					}
					o := trainPair(t, a, b, steps, patience)
					mu.Lock()
					defer mu.Unlock()
					all = append(all, o)
					t.Log(o)
					if f := o.fault(); f != "" {
						t.Error(f)
					}
				})
			}
		}
	})
	if err := os.WriteFile(file, []byte(table(all)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// grid shows all pairs as a square of the transports' first letters, small where a way that the networks allow was not
// found, and a dash where a pair did not train.
func grid(all []outcome) string {
	cell := map[[2]string]string{}
	for _, o := range all {
		letter := o.letter()
		if o.trained && o.fault() != "" {
			letter = strings.ToLower(letter)
		}
		cell[[2]string{o.a.name, o.b.name}], cell[[2]string{o.b.name, o.a.name}] = letter, letter
	}
	var out strings.Builder
	out.WriteString("| |")
	for i := range places {
		fmt.Fprintf(&out, " %d |", i+1)
	}
	fmt.Fprintf(&out, "\n| --- |%s\n", strings.Repeat(" - |", len(places)))
	for i, a := range places {
		fmt.Fprintf(&out, "| %d %s |", i+1, a.name)
		for _, b := range places {
			fmt.Fprintf(&out, " %s |", cell[[2]string{a.name, b.name}])
		}
		out.WriteString("\n")
	}
	return out.String()
}

// table shows outcomes in Markdown, after a line that sums them up.
func table(all []outcome) string {
	slices.SortFunc(all, func(x, y outcome) int { return strings.Compare(x.a.name+" "+x.b.name, y.a.name+" "+y.b.name) })
	var out strings.Builder
	var first []float64
	over, good := map[string]int{}, 0
	for _, o := range all {
		over[o.letter()]++
		if o.trained {
			first = append(first, o.first)
		}
		if o.fault() == "" {
			good++
		}
	}
	if slices.Sort(first); len(first) > 0 {
		fmt.Fprintf(&out, "%d of %d pairs train, %d as expected, over %v; seconds from `pnode join` to the first step: p50 %.1f, p95 %.1f, longest %.1f\n\n",
			len(first), len(all), good, over, first[len(first)/2], first[len(first)*95/100], first[len(first)-1])
	}
	out.WriteString(grid(all))
	out.WriteString("\n| member | member | trains | transport | seconds to the first step | why |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, o := range all {
		fmt.Fprintln(&out, o)
	}
	return out.String()
}
