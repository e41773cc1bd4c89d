package link

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The line of BenchmarkKernelLine: what the kernel lets through, counted with Ethernet's, IP's
// and UDP's headers, 42 bytes a packet, and the delay that is put in front of it.
const (
	kernelRate  = 12_500_000
	kernelDelay = 20 * time.Millisecond
)

// namespace is a network of its own, held by a thread: what do runs there.
type namespace struct{ do chan func() }

// newNamespace needs the rights of root; without them it skips.
func newNamespace(b *testing.B) namespace {
	n, begun := namespace{make(chan func())}, make(chan error, 1)
	b.Cleanup(func() { close(n.do) })
	go func() {
		runtime.LockOSThread() // for good: the thread ends with its goroutine, and is no other's
		begun <- syscall.Unshare(syscall.CLONE_NEWNET)
		for f := range n.do {
			f()
		}
	}()
	if err := <-begun; err != nil {
		b.Skipf("no network namespace: %v", err)
	}
	return n
}

// run executes commands, one a line, and skips where they are not to be had.
func (n namespace) run(b *testing.B, script string) {
	b.Helper()
	for line := range strings.Lines(script) {
		words := strings.Fields(line)
		done := make(chan error, 1)
		n.do <- func() {
			out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%s: %w: %s", strings.TrimSpace(line), err, out)
			}
			done <- err
		}
		if err := <-done; err != nil {
			b.Skip(err)
		}
	}
}

// listen opens a socket that stays in the namespace.
func (n namespace) listen(b *testing.B, ip string) net.PacketConn {
	b.Helper()
	var conn net.PacketConn
	done := make(chan error, 1)
	n.do <- func() {
		var err error
		conn, err = net.ListenPacket("udp4", net.JoinHostPort(ip, "4242"))
		done <- err
	}
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	return conn
}

// thread is where the namespace is to be found.
func (n namespace) thread() string {
	id := make(chan int)
	n.do <- func() { id <- syscall.Gettid() }
	return fmt.Sprintf("/proc/self/task/%d/ns/net", <-id)
}

// kernelLine makes two sockets in namespaces joined by a pair of interfaces, each of which lets
// kernelRate bytes a second through and holds 100 ms of them.
func kernelLine(b *testing.B) []net.PacketConn {
	near, far := newNamespace(b), newNamespace(b)
	path := strings.Replace(far.thread(), "self", fmt.Sprint(syscall.Getpid()), 1)
	near.run(b, "ip link add pnode0 type veth peer name pnode1\nip link set pnode1 netns "+path)
	var conns []net.PacketConn
	for i, n := range []namespace{near, far} {
		ip := fmt.Sprintf("10.77.0.%d", i+1)
		n.run(b, fmt.Sprintf(`ip addr add %s/24 dev pnode%d
			ip link set pnode%[2]d up
			tc qdisc add dev pnode%[2]d root tbf rate %dbit burst 32kb latency 100ms`, ip, i, 8*kernelRate))
		conns = append(conns, NewNetemConn(n.listen(b, ip), NetemOptions{Conditions: LinkConditions{Delay: kernelDelay}}))
	}
	return conns
}

// BenchmarkKernelLine measures, in real time, how much of a line of 100 Mbit/s that the kernel
// emulates arrives through a session, and how much over a bare QUIC stream, in turns. The 40 ms
// there and back are Shaped's, since not every kernel can delay packets.
func BenchmarkKernelLine(b *testing.B) {
	const settle, during, rounds = 3 * time.Second, 3 * time.Second, 3
	parts := map[string]float64{}
	for range rounds {
		for _, how := range []struct {
			name string
			rate func(*testing.B, []*quicNetwork, time.Duration, time.Duration) float64
		}{{"session", sessionRate}, {"quic", streamRate}} {
			part := how.rate(b, networksOn(b, kernelLine(b)), settle, during) / kernelRate
			b.Logf("%s: %.1f%% of the line", how.name, 100*part)
			parts[how.name] += part / rounds
		}
	}
	b.ReportMetric(100*parts["session"], "%session")
	b.ReportMetric(100*parts["quic"], "%quic")
	b.ReportMetric(0, "ns/op")
}

// sessionRate returns how many payload bytes a second arrive through a session.
func sessionRate(b *testing.B, networks []*quicNetwork, settle, during time.Duration) float64 {
	c := run(b, networks, Options{})
	defer c.close()
	sessions := c.sessions(1)
	sessions[0].Warm(warmBytes, c.ids[1])
	sessions[1].Warm(warmBytes, c.ids[0])
	ctx, cancel := context.WithCancel(b.Context())
	wait := stream(ctx, c, sessions)
	defer wait()
	defer cancel()
	time.Sleep(settle)
	return rate(sessions[1], during)
}

// streamRate returns how many bytes a second arrive over one stream of one connection.
func streamRate(b *testing.B, networks []*quicNetwork, settle, during time.Duration) float64 {
	defer networks[0].close()
	defer networks[1].close()
	from := bareStream(b, networks, payload(goodputBytes, 1))
	begin, counted := time.Now(), 0
	buffer := make([]byte, 64<<10)
	for time.Since(begin) < settle+during {
		n, err := io.ReadFull(from, buffer)
		if err != nil {
			b.Fatal(err)
		}
		if time.Since(begin) > settle {
			counted += n
		}
	}
	return float64(counted) / during.Seconds()
}
