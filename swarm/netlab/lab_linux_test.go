package netlab

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// enough is when an answer counts as missing where one is not expected, and patience where one is.
	enough   = 300 * time.Millisecond
	patience = 20 * time.Second
)

// mirror answers each packet and each connection with the address that it came from.
type mirror struct {
	udp  net.PacketConn
	addr string
}

func newMirror(t *testing.T, h *Host, addr netip.Addr, port int) *mirror {
	t.Helper()
	m := &mirror{addr: netip.AddrPortFrom(addr, uint16(port)).String()}
	var tcp net.Listener
	var err error
	h.Do(func() {
		if m.udp, err = net.ListenPacket("udp", m.addr); err == nil {
			tcp, err = net.Listen("tcp", m.addr)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.udp.Close()
		tcp.Close()
	})
	go func() {
		buffer := make([]byte, 2000)
		for {
			_, from, err := m.udp.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = m.udp.WriteTo([]byte(from.String()), from)
		}
	}()
	go func() {
		for {
			conn, err := tcp.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(conn, conn.RemoteAddr())
			conn.Close()
		}
	}()
	return m
}

// socket opens a UDP socket on the host.
func socket(t *testing.T, h *Host, network string, port int) net.PacketConn {
	t.Helper()
	var conn net.PacketConn
	var err error
	h.Do(func() { conn, err = net.ListenPacket(network, fmt.Sprintf(":%d", port)) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func address(t *testing.T, text string) net.Addr {
	t.Helper()
	addr, err := net.ResolveUDPAddr("udp", text)
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// ask returns how a mirror sees the socket; "" where it gives no answer.
func ask(t *testing.T, conn net.PacketConn, mirror string, wait time.Duration) string {
	t.Helper()
	buffer := make([]byte, 2000)
	for end := time.Now().Add(wait); time.Now().Before(end); {
		_, _ = conn.WriteTo([]byte("?"), address(t, mirror))
		_ = conn.SetReadDeadline(time.Now().Add(enough))
		if n, from, err := conn.ReadFrom(buffer); err == nil && from.String() == mirror {
			return string(buffer[:n])
		}
	}
	return ""
}

// reaches reports whether a packet from one socket arrives at another.
func reaches(t *testing.T, from net.PacketConn, to string, at net.PacketConn, wait time.Duration) bool {
	t.Helper()
	buffer := make([]byte, 2000)
	for end := time.Now().Add(wait); time.Now().Before(end); {
		_, _ = from.WriteTo([]byte("knock"), address(t, to))
		_ = at.SetReadDeadline(time.Now().Add(enough))
		for {
			n, _, err := at.ReadFrom(buffer)
			if err != nil {
				break
			}
			if string(buffer[:n]) == "knock" {
				return true
			}
		}
	}
	return false
}

// TestNATsDoWhatTheirKindsSay compares mappings for two destinations, and knocks from one that was not written to.
func TestNATsDoWhatTheirKindsSay(t *testing.T) {
	for _, tt := range []struct {
		kind           Kind
		udp, same, any bool // UDP works, one mapping for all destinations, whoever knows it comes in
	}{
		{Public, true, true, true},
		{MTU1280, true, true, true},
		{FullCone, true, true, true},
		{PortRestricted, true, true, false},
		{Symmetric, true, false, false},
		{CGNAT, true, true, false},
		{Vast, true, true, false},
		{UDPBlocked, false, false, false},
		{TCP443, false, false, false},
		{OnePort, false, false, false},
		{RunPod, false, false, false},
		{Proxy, false, false, false},
	} {
		t.Run(string(tt.kind), func(t *testing.T) {
			t.Parallel()
			lab := New(t)
			a, b, h := lab.Host("a", Public), lab.Host("b", Public), lab.Host("h", tt.kind)
			first, second := newMirror(t, a, a.Addr(), 700), newMirror(t, b, b.Addr(), 700)
			conn := socket(t, h, "udp4", 5555)
			wait := enough
			if tt.udp {
				wait = patience
			}
			seen := ask(t, conn, first.addr, wait)
			if (seen != "") != tt.udp {
				t.Fatalf("UDP is seen from %q", seen)
			}
			if !tt.udp {
				return
			}
			if addr := netip.MustParseAddrPort(seen); addr.Addr() != h.Addr() {
				t.Errorf("seen from %v, the host's address is %v", addr, h.Addr())
			}
			if again := ask(t, conn, second.addr, patience); (again == seen) != tt.same {
				t.Errorf("mappings %s and %s", seen, again)
			}
			wait = enough
			if tt.any {
				wait = patience
			}
			if got := reaches(t, socket(t, b, "udp4", 0), seen, conn, wait); got != tt.any {
				t.Errorf("a packet from an address that was not written to: arrives %v", got)
			}
			if tt.any || !tt.same {
				return
			}
			// Its own knock has changed no mapping: written to, the other is heard.
			other := socket(t, b, "udp4", 6666)
			reaches(t, other, seen, conn, enough)
			if _, err := conn.WriteTo([]byte("?"), address(t, b.Addr().String()+":6666")); err != nil {
				t.Fatal(err)
			}
			if !reaches(t, other, seen, conn, patience) {
				t.Error("a hole cannot be punched")
			}
		})
	}
}

// seenTCP returns how a mirror sees a connection from the host.
func seenTCP(h *Host, mirror string, wait time.Duration) (string, error) {
	var conn net.Conn
	var err error
	h.Do(func() { conn, err = net.DialTimeout("tcp", mirror, wait) })
	if err != nil {
		return "", err
	}
	defer conn.Close()
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line), err
}

// TestTCPWhereKindsSay tries two ports outward, and for containers the mapped one inward.
func TestTCPWhereKindsSay(t *testing.T) {
	for _, tt := range []struct {
		kind               Kind
		https, any, mapped bool
	}{
		{Public, true, true, false},
		{MTU1280, true, true, false},
		{MTU1280Silent, true, true, false},
		{FullCone, true, true, false},
		{PortRestricted, true, true, false},
		{Symmetric, true, true, false},
		{CGNAT, true, true, false},
		{UDPBlocked, true, true, false},
		{TCP443, true, false, false},
		{OnePort, true, true, true},
		{RunPod, true, true, true},
		{Vast, true, true, true},
		{Proxy, false, false, false},
	} {
		t.Run(string(tt.kind), func(t *testing.T) {
			t.Parallel()
			lab := New(t)
			a, h := lab.Host("a", Public), lab.Host("h", tt.kind)
			https, other := newMirror(t, a, a.Addr(), 443), newMirror(t, a, a.Addr(), 4001)
			for _, port := range []struct {
				mirror string
				works  bool
			}{{https.addr, tt.https}, {other.addr, tt.any}} {
				wait := enough
				if port.works {
					wait = patience
				}
				if seen, err := seenTCP(h, port.mirror, wait); (err == nil) != port.works {
					t.Errorf("%s: seen from %q: %v", port.mirror, seen, err)
				}
			}
			if (h.Announce() != "") != tt.mapped {
				t.Fatalf("announces %q", h.Announce())
			}
			if tt.mapped {
				newMirror(t, h, netip.IPv4Unspecified(), Port)
				if _, err := seenTCP(a, h.Announce(), patience); err != nil {
					t.Errorf("the mapped port: %v", err)
				}
			}
		})
	}
}

func TestIPv6Alone(t *testing.T) {
	lab := New(t)
	a, h := lab.Host("a", Public), lab.Host("h", IPv6)
	m := newMirror(t, a, a.Addr6(), 443)
	seen, err := seenTCP(h, m.addr, patience)
	if err != nil || netip.MustParseAddrPort(seen).Addr() != h.Addr6() {
		t.Errorf("seen from %q: %v", seen, err)
	}
	if _, err := h.Dial("tcp4", a.Addr().String()+":443"); err == nil || h.Addr().IsValid() {
		t.Error("IPv4 works, too")
	}
}

func TestProxyConnectsToPort443Alone(t *testing.T) {
	lab := New(t)
	a, h := lab.Host("a", Public), lab.Host("h", Proxy)
	https, other := newMirror(t, a, a.Addr(), 443), newMirror(t, a, a.Addr(), 4001)
	proxy := strings.TrimPrefix(strings.Join(h.Env(), ""), "HTTPS_PROXY=http://")
	for mirror, want := range map[string]int{https.addr: http.StatusOK, other.addr: http.StatusForbidden} {
		conn, err := h.Dial("tcp4", proxy)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", mirror)
		r := bufio.NewReader(conn)
		resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
		if err != nil || resp.StatusCode != want {
			t.Fatalf("%s: %v %v", mirror, resp, err)
		}
		if want == http.StatusOK {
			if line, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(line, h.Addr().String()+":") {
				t.Errorf("%s: %q %v", mirror, line, err)
			}
		}
		conn.Close()
	}
}

// TestNarrowLinksTellOrDoNot sends packets of 1,400 bytes that must not be fragmented.
func TestNarrowLinksTellOrDoNot(t *testing.T) {
	for kind, told := range map[Kind]bool{MTU1280: true, MTU1280Silent: false} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			lab := New(t)
			a, h := lab.Host("a", Public), lab.Host("h", kind)
			m := newMirror(t, a, a.Addr(), 700)
			var conn net.Conn
			var err error
			h.Do(func() { conn, err = net.Dial("udp4", m.addr) })
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			raw, err := conn.(*net.UDPConn).SyscallConn()
			if err == nil {
				_ = raw.Control(func(fd uintptr) {
					err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_MTU_DISCOVER, syscall.IP_PMTUDISC_DO)
				})
			}
			if err != nil {
				t.Fatal(err)
			}
			var refused bool
			wait := enough
			if told {
				wait = patience
			}
			for end := time.Now().Add(wait); time.Now().Before(end) && !refused; time.Sleep(time.Millisecond) {
				_, err := conn.Write(make([]byte, 1400-28))
				refused = errors.Is(err, syscall.EMSGSIZE)
			}
			if refused != told {
				t.Errorf("the kernel was told of the size: %v", refused)
			}
			buffer := make([]byte, 2000)
			_ = conn.SetReadDeadline(time.Now().Add(enough))
			if n, err := conn.Read(buffer); err == nil {
				t.Errorf("a packet of 1400 bytes was answered: %q", buffer[:n])
			}
			for end := time.Now().Add(patience); ; {
				_, err = conn.Write(make([]byte, 1200))
				_ = conn.SetReadDeadline(time.Now().Add(enough))
				if _, err = conn.Read(buffer); err == nil {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("1228 bytes: %v", err)
				}
			}
		})
	}
}

// TestNATsForgetWhatIsQuiet: after 3 s an answer comes in through a NAT that remembers for 30 s, and none through one that
// remembers for 1 s.
func TestNATsForgetWhatIsQuiet(t *testing.T) {
	lab := New(t)
	outside := lab.Host("outside", Public)
	mirror := newMirror(t, outside, outside.Addr(), 700)
	short, long := lab.Host("short", PortRestricted), lab.Host("long", PortRestricted)
	short.Remember(time.Second, time.Second)
	inside := map[*Host]net.PacketConn{short: socket(t, short, "udp4", 700), long: socket(t, long, "udp4", 700)}
	seen := map[*Host]string{}
	for h, conn := range inside {
		if seen[h] = ask(t, conn, mirror.addr, patience); seen[h] == "" {
			t.Fatalf("%s has no way out", h.Name)
		}
	}
	time.Sleep(3 * time.Second) // it is the time that is tested
	if reaches(t, mirror.udp, seen[short], inside[short], enough) {
		t.Error("a NAT that remembers for 1 s lets an answer in after 3 s")
	}
	if !reaches(t, mirror.udp, seen[long], inside[long], patience) {
		t.Error("a NAT that remembers for 30 s lets no answer in after 3 s")
	}
}

// TestDetourTakesEachDirectionElsewhere: a host is reached and answered, though neither of its interfaces lets both ways through.
func TestDetourTakesEachDirectionElsewhere(t *testing.T) {
	lab := New(t)
	a, h := lab.Host("a", Public), lab.Host("h", Public)
	h.Detour()
	for _, ends := range [][2]*Host{{a, h}, {h, a}} {
		m := newMirror(t, ends[1], ends[1].Addr(), 700)
		conn, err := ends[0].Dial("tcp4", m.addr)
		if err != nil {
			t.Fatalf("%s to %s: %v", ends[0].Name, ends[1].Name, err)
		}
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.HasPrefix(line, ends[0].Addr().String()+":") {
			t.Errorf("%s is seen as %q: %v", ends[0].Name, line, err)
		}
		conn.Close()
	}
}

// TestLineTakesItsTime sends a megabyte over TCP and packets over UDP; what is asserted holds on a busy machine, too.
func TestLineTakesItsTime(t *testing.T) {
	lab := New(t)
	a, h := lab.Host("a", Public), lab.Host("h", Public, Line{Rate: 40e6, Delay: 20 * time.Millisecond})
	var listener net.Listener
	var err error
	a.Do(func() { listener, err = net.Listen("tcp4", ":700") })
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	got := make(chan int64, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		n, _ := io.Copy(io.Discard, conn)
		got <- n
	}()
	begin := time.Now()
	conn, err := h.Dial("tcp4", a.Addr().String()+":700")
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < 40*time.Millisecond {
		t.Errorf("a handshake took %v", took)
	}
	if _, err := conn.Write(make([]byte, 1e6)); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if n := <-got; n != 1e6 {
		t.Errorf("%d bytes arrived", n)
	}
	if took := time.Since(begin); took < 200*time.Millisecond {
		t.Errorf("a megabyte took %v", took)
	} else {
		t.Logf("a megabyte at 40 Mbit/s and 20 ms: %v", took)
	}
}

// TestPassOfLines looks at one direction of a line with a clock of its own.
func TestPassOfLines(t *testing.T) {
	now := time.Now()
	w := newWay(Line{Rate: 8e6, Delay: 5 * time.Millisecond, Queue: 3000}, 0, nil)
	for i, want := range []time.Duration{6, 7, 8} {
		if due, ok := w.pass(now, 1000); !ok || due.Sub(now) != want*time.Millisecond {
			t.Errorf("packet %d arrives after %v %v", i, due.Sub(now), ok)
		}
	}
	if _, ok := w.pass(now, 1000); ok {
		t.Error("a full queue takes a packet")
	}
	if _, ok := w.pass(now.Add(time.Millisecond), 1000); !ok {
		t.Error("a queue with room takes none")
	}
	w = newWay(Line{Loss: 0.05, Reorder: 0.1}, 0, nil)
	lost, late := 0, 0
	for range 10000 {
		due, ok := w.pass(now, 100)
		if !ok {
			lost++
		} else if due.After(now) {
			late++
		}
	}
	if lost < 400 || lost > 600 || late < 800 || late > 1100 {
		t.Errorf("of 10000 packets %d are lost and %d are late", lost, late)
	}
}

// TestCutAndMend drops packets of one direction, then of all of a host, and lets them through again. Outside of a test a
// lab belongs to a Program.
func TestCutAndMend(t *testing.T) {
	var owner Program
	var lab *Lab
	var a, b *Host
	defer owner.Close()
	err := owner.Try(func() {
		lab = New(&owner)
		a, b = lab.Host("a", Public, Line{}), lab.Host("b", Public)
	})
	if errors.Is(err, ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	one, other := socket(t, a, "udp4", 700), socket(t, b, "udp4", 700)
	there, back := b.Addr().String()+":700", a.Addr().String()+":700"
	for i, c := range []struct {
		change      func()
		there, back bool
	}{
		{func() {}, true, true},
		{func() { lab.Cut(a, b) }, false, true},
		{func() { lab.Cut(nil, a) }, false, false},
		{func() { lab.Mend(a, b) }, true, false},
		{func() { a.Redraw(Line{Loss: 1}) }, false, false},
		{func() { a.Redraw(Line{}); lab.Mend(nil, a) }, true, true},
	} {
		if err := owner.Try(c.change); err != nil {
			t.Fatal(err)
		}
		if got := delivers(one, there, other, fmt.Sprintf("%d, there", i), c.there); got != c.there {
			t.Errorf("%d: packets from a reach b: %v", i, got)
		}
		if got := delivers(other, back, one, fmt.Sprintf("%d, back", i), c.back); got != c.back {
			t.Errorf("%d: packets from b reach a: %v", i, got)
		}
	}
	if err := owner.Try(func() { a.IP("nonsense") }); err == nil {
		t.Error("a command that ip does not have is taken")
	}
}

// delivers reports whether a packet of this text arrives. It waits for longer where one is expected.
func delivers(from net.PacketConn, to string, at net.PacketConn, text string, expected bool) bool {
	wait := enough
	if expected {
		wait = patience
	}
	address, err := net.ResolveUDPAddr("udp4", to)
	if err != nil {
		return false
	}
	buffer := make([]byte, 2000)
	for end := time.Now().Add(wait); time.Now().Before(end); {
		_, _ = from.WriteTo([]byte(text), address)
		for _ = at.SetReadDeadline(time.Now().Add(enough)); ; {
			n, _, err := at.ReadFrom(buffer)
			if err != nil {
				break
			}
			if string(buffer[:n]) == text {
				return true
			}
		}
	}
	return false
}

// TestNothingIsLeft ends a lab with a process in it.
func TestNothingIsLeft(t *testing.T) {
	var cmd *exec.Cmd
	var name string
	t.Run("lab", func(t *testing.T) {
		lab := New(t)
		h := lab.Host("h", CGNAT, Line{})
		cmd, name = exec.Command("sleep", "1000"), lab.name
		if err := h.Start(cmd); err != nil {
			t.Fatal(err)
		}
		if found, _ := filepath.Glob("/run/netns/" + name + "*"); len(found) != 4 {
			t.Errorf("namespaces %v", found)
		}
	})
	if cmd == nil {
		t.Skip("no lab")
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != -1 {
		t.Errorf("the process ended with %v", err)
	}
	if found, _ := filepath.Glob("/run/netns/" + name + "*"); found != nil {
		t.Errorf("%v are left", found)
	}
}

// TestWhatACrashLeftIsRemoved makes a namespace with the number of a process that has ended.
func TestWhatACrashLeftIsRemoved(t *testing.T) {
	New(t)
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("%s%d-1-x", prefix, gone.Process.Pid)
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	New(t)
	if _, err := os.Stat("/run/netns/" + name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v", name, err)
	}
}
