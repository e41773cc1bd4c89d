package swarm

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pnode/pipeline/link"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/netlab"
	"pnode/swarm/transport"
)

// How much of a line a link carries over each transport, with the kernel's own TCP: run as root with
//
//	go test ./swarm -run - -bench Goodput -benchtime 1x -timeout 30m
//
// Three processes in network namespaces: a member that sends messages of 1 MB to another one over a line of 100 Mbit/s
// and 20 ms one way, and a third that may relay. %line counts payload against all of the line's bytes, %payload against
// what fits of them between the headers of IP and TCP.
const (
	goodputRole   = "PNODE_GOODPUT_ROLE"
	goodputFolder = "PNODE_GOODPUT_FOLDER"
	goodputOver   = "PNODE_GOODPUT_OVER"
	goodputLine   = 100e6 // bits a second
	goodputSettle = 6 * time.Second
	goodputTime   = 8 * time.Second
	// goodputMessage is a message's size in bytes.
	goodputMessage = 1 << 20
)

func BenchmarkGoodput(b *testing.B) {
	ideal := netlab.Line{Rate: goodputLine, Delay: 20 * time.Millisecond}
	with := func(change func(*netlab.Line)) netlab.Line {
		l := ideal
		change(&l)
		return l
	}
	lines := []struct {
		name string
		line netlab.Line
	}{
		{"no loss", ideal},
		{"0.5% loss", with(func(l *netlab.Line) { l.Loss = 0.005 })},
		{"5% loss", with(func(l *netlab.Line) { l.Loss = 0.05 })},
		{"MTU 1280", with(func(l *netlab.Line) { l.MTU = 1280 })},
		{"reordering", with(func(l *netlab.Line) { l.Reorder = 0.05 })},
	}
	for _, line := range lines {
		for _, how := range []struct {
			name string
			over plan.Transport
			tcp  string
			kind netlab.Kind // of the two ends' networks
		}{
			{"quic", plan.QUIC, "", netlab.Public},
			{"tcp bbr", plan.TCP, "bbr", netlab.Public},
			{"tcp cubic", plan.TCP, "cubic", netlab.Public},
			{"hole bbr", plan.TCP, "bbr", netlab.UDPBlocked},
			{"relay", plan.Relay, "bbr", netlab.Public},
			{"relay over tcp bbr", plan.Relay, "bbr", netlab.UDPBlocked},
			{"chosen", "", "bbr", netlab.Public},
		} {
			b.Run(line.name+"/"+how.name, func(b *testing.B) {
				allowed, err := os.ReadFile("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
				if how.tcp != "" && (err != nil || !slices.Contains(strings.Fields(string(allowed)), how.tcp)) {
					b.Skipf("namespaces may not use it: sysctl -w net.ipv4.tcp_allowed_congestion_control=\"%s %s\"", strings.TrimSpace(string(allowed)), how.tcp)
				}
				for range b.N {
					measureGoodput(b, line.line, how.over, how.tcp, how.kind)
				}
			})
		}
	}
}

func measureGoodput(b *testing.B, line netlab.Line, over plan.Transport, congestion string, kind netlab.Kind) {
	folder := b.TempDir()
	if _, err := admission.CreateOwner(folder); err != nil {
		b.Fatal(err)
	}
	lab := netlab.New(b)
	var lines <-chan string
	for _, role := range []struct {
		name string
		host *netlab.Host
	}{
		{"relay", lab.Host("relay", netlab.Public)},
		{"receiver", lab.Host("receiver", kind)},
		{"sender", lab.Host("sender", kind, line)},
	} {
		if congestion != "" {
			role.host.Sysctl("net/ipv4/tcp_congestion_control", congestion)
		}
		out := startGoodputRole(b, role.host, role.name, folder, over)
		addrs := ask(b, out)
		if err := os.WriteFile(filepath.Join(folder, role.name), []byte(addrs), 0o600); err != nil {
			b.Fatal(err)
		}
		if role.name == "receiver" {
			lines = out
		}
	}
	var payload, connections float64
	said := ask(b, lines)
	if _, err := fmt.Sscan(said, &payload, &connections); err != nil {
		b.Fatalf("%q: %v", said, err)
	}
	mtu := 1500.0
	if line.MTU > 0 {
		mtu = float64(line.MTU)
	}
	const headers = 52 // of IPv4, and TCP with timestamps
	part := payload * 8 / goodputLine
	b.ReportMetric(100*part, "%line")
	b.ReportMetric(100*part*mtu/(mtu-headers), "%payload")
	b.ReportMetric(connections, "connections")
	b.ReportMetric(0, "ns/op")
}

// startGoodputRole starts this program on a host, and returns what it says.
func startGoodputRole(b *testing.B, h *netlab.Host, name, folder string, over plan.Transport) <-chan string {
	b.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestGoodputRole$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), goodputRole+"="+name, goodputFolder+"="+folder, goodputOver+"="+string(over))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = h.Start(cmd)
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := make(chan string, 16)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			if text, ours := strings.CutPrefix(s.Text(), "> "); ours {
				lines <- text
			}
		}
		_, _ = io.Copy(io.Discard, out)
	}()
	return lines
}

func ask(b *testing.B, lines <-chan string) string {
	b.Helper()
	select {
	case l, ok := <-lines:
		if ok {
			return l
		}
	case <-time.After(2 * time.Minute):
	}
	b.Fatal("a process of the benchmark says nothing")
	return ""
}

// oneTransport restricts a network to one transport, if one is given.
type oneTransport struct {
	link.Network
	over plan.Transport
}

func (n oneTransport) Dial(ctx context.Context, p plan.PeerID, over plan.Transport) (transport.Conn, error) {
	if n.over != "" {
		over = n.over
	}
	return n.Network.Dial(ctx, p, over)
}

func (n oneTransport) Transports(p plan.PeerID) []plan.Transport {
	if n.over != "" {
		return []plan.Transport{n.over}
	}
	return n.Network.Transports(p)
}

// TestGoodputRole is one of the processes of BenchmarkGoodput, which kills it.
func TestGoodputRole(t *testing.T) {
	name, folder := os.Getenv(goodputRole), os.Getenv(goodputFolder)
	if name == "" {
		t.Skip("a part of BenchmarkGoodput")
	}
	owner, err := admission.LoadOwner(folder)
	if err != nil {
		t.Fatal(err)
	}
	cfg := testMember(t, owner, testRun)
	cfg.Listen, cfg.RelayBytesPerS = []string{":4001"}, 1e9
	peers := map[string]plan.PeerID{}
	for _, other := range []string{"relay", "receiver"} {
		if text, err := os.ReadFile(filepath.Join(folder, other)); err == nil {
			id, addrs, _ := strings.Cut(string(text), " ")
			peers[other] = plan.PeerID(id)
			cfg.Bootstrap = append(cfg.Bootstrap, strings.Fields(addrs)...)
		}
	}
	s := start(t, cfg)
	say("%s %s", s.ID(), strings.Join(s.Addrs(), " "))
	if name == "relay" {
		<-t.Context().Done()
		select {}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	waitMembers(t, ctx, s, 2)
	e := link.NewEndpoint(oneTransport{s.Data(), plan.Transport(os.Getenv(goodputOver))}, link.Options{})
	go func() { _ = e.Run(ctx) }()
	ids := []plan.PeerID{s.ID()}
	for _, m := range s.Members() {
		if m.Peer != peers["relay"] {
			ids = append(ids, m.Peer)
		}
	}
	other := ids[1]
	slices.Sort(ids)
	session := e.Session(1, ids)
	tag := func(step int) wire.Tag {
		return wire.Tag{Kind: wire.Activation, Generation: 1, Step: plan.Step(step)}
	}
	if name == "sender" {
		message := make([]byte, goodputMessage)
		for i := 0; ctx.Err() == nil; i++ {
			if err := session.Send(ctx, other, wire.Frame{Tag: tag(i), Payload: message}); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	var began time.Time // of the first message that counts: time runs from the end of one to the end of another
	var settled time.Time
	for i, counted := 0, 0; ; i++ {
		if _, err := session.Receive(ctx, other, tag(i)); err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		switch {
		case i == 0:
			settled = now.Add(goodputSettle)
		case now.Before(settled):
		case began.IsZero():
			began = now
		default:
			counted += goodputMessage
		}
		if took := now.Sub(began); counted > 0 && took > goodputTime {
			say("%f %d", float64(counted)/took.Seconds(), session.Stats()[0].Connections)
			<-ctx.Done()
			return
		}
	}
}
