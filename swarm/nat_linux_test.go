package swarm

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/netlab"
	"pnode/swarm/streams"
)

// A member of a NAT test is a process of this test's program, on a host of its own. It reads commands, one a line, and
// answers each with one line of JSON.
const (
	natFolder    = "PNODE_NAT_FOLDER" // has the owner's keys
	natBootstrap = "PNODE_NAT_BOOTSTRAP"
	natPort      = 4001
)

// natAnswer answers any command.
type natAnswer struct {
	Err string `json:",omitempty"`
	// Peer and Addrs are the member's own; Invite those of an invite.
	Peer          plan.PeerID `json:",omitempty"`
	Addrs, Invite []string    `json:",omitempty"`
	// Direct says of each connected member whether it is connected without a relay.
	Direct map[plan.PeerID]bool `json:",omitempty"`
	// Link is what a probe measured.
	Link plan.LinkProfile
	// Why is why data goes over the transport that it does.
	Why string
	// Over is what control goes over.
	Over plan.Transport `json:",omitempty"`
	// Took is how long the command was at work.
	Took time.Duration
}

// natMember is such a process.
type natMember struct {
	t     *testing.T
	name  string
	peer  plan.PeerID
	addrs []string
	cmd   *exec.Cmd
	mu    sync.Mutex
	stdin io.WriteCloser
	lines chan string
}

// natOwner makes the run's owner in a folder that the members read.
func natOwner(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if _, err := admission.CreateOwner(folder); err != nil {
		t.Fatal(err)
	}
	return folder
}

// natStart starts a member on a host.
func natStart(t *testing.T, h *netlab.Host, folder string, bootstrap ...string) *natMember {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestNATMember$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), natFolder+"="+folder, natBootstrap+"="+strings.Join(bootstrap, " "))
	log, err := os.Create(filepath.Join(t.TempDir(), h.Name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Start(cmd); err != nil {
		t.Fatal(err)
	}
	m := &natMember{t: t, name: h.Name, cmd: cmd, stdin: stdin, lines: make(chan string, 64)}
	t.Cleanup(func() {
		stdin.Close()
		if t.Failed() {
			cmd.Process.Kill() // what it said until now is enough
		}
		if text, err := os.ReadFile(log.Name()); err == nil && (t.Failed() || os.Getenv("SWARM_TEST_LOG") != "") {
			t.Logf("%s says:\n%s", h.Name, text)
		}
		log.Close()
	})
	go func() {
		defer close(m.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			if text, ours := strings.CutPrefix(s.Text(), "> "); ours {
				m.lines <- text
			}
		}
	}()
	a := m.do("self")
	m.peer, m.addrs = a.Peer, a.Addrs
	return m
}

// do carries out a command, which must work.
func (m *natMember) do(command string, args ...any) natAnswer {
	m.t.Helper()
	a := m.try(command, args...)
	if a.Err != "" {
		m.t.Fatalf("%s: %s %v: %s", m.name, command, args, a.Err)
	}
	return a
}

// try carries out a command, which may fail.
func (m *natMember) try(command string, args ...any) (a natAnswer) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	fmt.Fprintln(m.stdin, append([]any{command}, args...)...)
	select {
	case line, open := <-m.lines:
		if !open {
			m.t.Fatalf("%s has ended", m.name)
		}
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			m.t.Fatalf("%s: %q: %v", m.name, line, err)
		}
	case <-time.After(2 * time.Minute):
		m.t.Fatalf("%s: no answer to %s", m.name, command)
	}
	return a
}

// crash ends the process without a word to the others.
func (m *natMember) crash() {
	m.t.Helper()
	if err := m.cmd.Process.Kill(); err != nil {
		m.t.Fatal(err)
	}
}

// TestNATMember is one of the processes. It ends with its standard input.
func TestNATMember(t *testing.T) {
	folder := os.Getenv(natFolder)
	if folder == "" {
		t.Skip("a part of the tests on networks with NATs")
	}
	owner, err := admission.LoadOwner(folder)
	if err != nil {
		t.Fatal(err)
	}
	cfg := testMember(t, owner, testRun)
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg.Listen = []string{fmt.Sprintf("0.0.0.0:%d", natPort)}
	cfg.RelayBytesPerS = 2 << 20
	cfg.Bootstrap = strings.Fields(os.Getenv(natBootstrap))
	s := start(t, cfg)
	serveEcho(s)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		words := strings.Fields(in.Text())
		if len(words) == 0 {
			continue
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		a, err := natCommand(ctx, s, words[0], words[1:])
		cancel()
		if err != nil {
			a.Err = err.Error()
		}
		a.Took = time.Since(began)
		line, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("> %s\n", line)
	}
}

// natCommand carries out a command.
func natCommand(ctx context.Context, s *Swarm, command string, args []string) (a natAnswer, err error) {
	direct := func() map[plan.PeerID]bool {
		out := map[plan.PeerID]bool{}
		for _, c := range s.Members() {
			out[c.Peer] = s.host.Direct(c.ID())
		}
		return out
	}
	// until waits for a condition that nothing announces.
	until := func(f func() bool) error {
		for !f() {
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return fmt.Errorf("not in time: %v", direct())
			}
		}
		return nil
	}
	switch command {
	case "self":
		a.Peer, a.Addrs, a.Invite = s.ID(), s.Addrs(), s.InviteAddrs()
	case "members": // that others are connected, and which directly
		err = until(func() bool {
			have := direct()
			for _, p := range args {
				if _, connected := have[plan.PeerID(p)]; !connected {
					return false
				}
			}
			return true
		})
	case "direct": // that a member is connected without a relay
		err = until(func() bool { return direct()[plan.PeerID(args[0])] })
		a.Over = s.ReachedBy(plan.PeerID(args[0]))
	case "circuit": // that this node has an address through a relay
		err = until(func() bool { return strings.Contains(fmt.Sprint(s.Addrs()), "/p2p-circuit") })
		a.Addrs, a.Invite = s.Addrs(), s.InviteAddrs()
	case "mapped": // that this node has a public address over UDP and over TCP
		have := func(code int) bool {
			return slices.ContainsFunc(s.host.Addrs(), func(a ma.Multiaddr) bool {
				_, err := a.ValueForProtocol(code)
				_, circuit := a.ValueForProtocol(ma.P_CIRCUIT)
				return err == nil && circuit != nil && manet.IsPublicAddr(a)
			})
		}
		err = until(func() bool { return have(ma.P_UDP) && have(ma.P_TCP) })
		a.Addrs = s.Addrs()
	case "echo":
		var st streams.Stream
		if st, err = s.Open(ctx, plan.PeerID(args[0]), echoProtocol); err == nil {
			defer st.Close()
			if _, err = st.Write([]byte("hello")); err == nil {
				_, err = io.ReadFull(st, make([]byte, 5))
			}
		}
	case "probe":
		if a.Link, err = s.Probe(ctx, plan.PeerID(args[0])); err == nil {
			a.Why, err = natWhy(ctx, s, plan.PeerID(args[0]))
		}
	case "block":
		s.Block(plan.PeerID(args[0]), admission.Removed("test"))
	default:
		err = fmt.Errorf("unknown command %q", command)
	}
	a.Direct = direct()
	return a, err
}

// natWhy connects to a peer for data, and returns why the connection goes over what it does.
func natWhy(ctx context.Context, s *Swarm, p plan.PeerID) (string, error) {
	conn, err := s.Data().Dial(ctx, p, "")
	if err != nil {
		return "", err
	}
	defer conn.Close(0, "")
	return s.Data().Why(p, conn.Transport()), nil
}

// sooner is between the 5 s in which members notice that a relay gives no sign of life and the 35 s in which libp2p does.
const sooner = 15 * time.Second

// Two members behind NATs that no hole goes through are connected through a third from the start, and through a fourth
// when the third is gone.
func TestControlBehindSymmetricNATs(t *testing.T) {
	lab := netlab.New(t)
	folder := natOwner(t)
	public := natStart(t, lab.Host("public", netlab.Public), folder)
	second := natStart(t, lab.Host("second", netlab.Public), folder, public.addrs...)
	a := natStart(t, lab.Host("a", netlab.Symmetric), folder, public.addrs...)
	b := natStart(t, lab.Host("b", netlab.Symmetric), folder, public.addrs...)
	if got := a.do("members", public.peer, second.peer, b.peer); true {
		t.Logf("a is connected to all after %s: %v", got.Took, got.Direct)
	}
	got := b.do("members", public.peer, second.peer, a.peer)
	t.Logf("b is connected to all after %s: %v", got.Took, got.Direct)
	if got.Direct[a.peer] {
		t.Error("a hole was punched where none can be")
	}
	t.Logf("a says something to b: %s", a.do("echo", b.peer).Took)
	link := a.do("probe", b.peer).Link
	t.Logf("link through the relay: %+v", link)
	if link.Transport != plan.Relay || link.BytesPerS > 4<<20 {
		t.Error("data does not go through a relay at its rate")
	}
	t.Logf("a is invited to at %v", a.do("circuit").Invite)
	if testing.Short() {
		return // that the relay is gone is known after some seconds
	}
	public.crash()
	began := time.Now()
	for {
		if got := a.try("echo", b.peer); got.Err == "" {
			break
		} else if time.Since(began) > time.Minute {
			t.Fatal("a and b are apart since their relay is gone: ", got.Err)
		}
	}
	took := time.Since(began)
	t.Logf("connected again %s after the relay has crashed", took)
	if took > sooner {
		t.Errorf("a and b meet again %s after their relay has crashed: nobody but libp2p, in 35 s, notices that it is gone", took)
	}
}

// Pairs of members get a direct connection where the NAT of either allows it, and data goes the same way: mostly over QUIC
// through the punched port. Elsewhere a relay carries both.
func TestPairsOfNATs(t *testing.T) {
	kinds := []netlab.Kind{netlab.FullCone, netlab.PortRestricted, netlab.Symmetric, netlab.CGNAT}
	if testing.Short() {
		kinds = kinds[1:3]
	}
	lab := netlab.New(t)
	folder := natOwner(t)
	public := natStart(t, lab.Host("public", netlab.Public), folder)
	for i, x := range kinds {
		for _, y := range kinds[i:] {
			t.Run(fmt.Sprintf("%s/%s", x, y), func(t *testing.T) {
				a := natStart(t, lab.Host(fmt.Sprintf("a-%s-%s", x, y), x), folder, public.addrs...)
				b := natStart(t, lab.Host(fmt.Sprintf("b-%s-%s", x, y), y), folder, public.addrs...)
				connected := a.do("members", b.peer)
				// A symmetric NAT has another port for each destination, which nobody can tell the other end.
				want, took := []plan.Transport{plan.Relay}, time.Duration(0)
				if y != netlab.Symmetric && x != netlab.Symmetric || x == netlab.FullCone {
					hole := a.do("direct", b.peer)
					want, took = []plan.Transport{plan.QUIC, hole.Over}, hole.Took // TCP, where a busy machine has no QUIC in 0.4 s
				}
				link := a.do("probe", b.peer).Link
				t.Logf("connected after %s, directly after %s more, then %s at %d Mbit/s",
					connected.Took.Round(time.Millisecond), took.Round(time.Millisecond), link.Transport, link.BytesPerS/125_000)
				if !slices.Contains(want, link.Transport) {
					t.Errorf("data goes over %s, want %v", link.Transport, want)
				}
			})
		}
	}
}

// Where UDP is blocked, members behind NATs are connected directly over TCP, and their data goes through the same hole.
func TestHolePunchingOverTCP(t *testing.T) {
	lab := netlab.New(t)
	folder := natOwner(t)
	public := natStart(t, lab.Host("public", netlab.Public), folder)
	a := natStart(t, lab.Host("a", netlab.UDPBlocked), folder, public.addrs...)
	b := natStart(t, lab.Host("b", netlab.UDPBlocked), folder, public.addrs...)
	t.Logf("connected after %s", a.do("members", b.peer).Took)
	t.Logf("directly after %s more", a.do("direct", b.peer).Took)
	for _, ends := range [][2]*natMember{{a, b}, {b, a}} {
		got := ends[0].do("probe", ends[1].peer)
		t.Logf("%s at %d Mbit/s after %s: %s", got.Link.Transport, got.Link.BytesPerS/125_000, got.Took.Round(time.Millisecond), got.Why)
		if got.Link.Transport != plan.TCP {
			t.Errorf("data goes over %s", got.Link.Transport)
		}
	}
}
