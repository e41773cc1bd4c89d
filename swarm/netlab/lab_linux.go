package netlab

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// prefix begins the names of all labs' namespaces; the number of the process and that of the lab follow.
const prefix = "netlab-"

var labs atomic.Int64

// Lab owns an internet: a router, to which hosts are connected.
type Lab struct {
	t       Owner
	name    string
	router  *space
	hosts   int
	cables  int
	dropped []flow // in the order in which they were cut
}

// New makes an empty internet, which ends with its owner. It skips the owner's test where it cannot work.
func New(t Owner) *Lab {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skipf("skipped: needs root, ip, nft")
	}
	for _, program := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("skipped: needs root, ip, nft: %v", err)
		}
	}
	removeStale()
	probe := fmt.Sprintf("%s%d-probe-%d", prefix, os.Getpid(), labs.Add(1))
	if out, err := exec.Command("ip", "netns", "add", probe).CombinedOutput(); err != nil {
		t.Skipf("skipped: no network namespaces here, as in containers without the right to: %s", out)
	}
	removeSpace(probe)
	l := &Lab{t: t, name: fmt.Sprintf("%s%d-%d", prefix, os.Getpid(), labs.Add(1))}
	l.router = l.newSpace("internet")
	return l
}

// removeStale removes what processes that are no more have left.
func removeStale() {
	names, _ := filepath.Glob("/run/netns/" + prefix + "*")
	for _, path := range names {
		name := filepath.Base(path)
		pid, _, _ := strings.Cut(strings.TrimPrefix(name, prefix), "-")
		if n, err := strconv.Atoi(pid); err == nil && unix.Kill(n, 0) == unix.ESRCH {
			removeSpace(name)
		}
	}
}

// removeSpace kills the processes of a namespace and removes it.
func removeSpace(name string) {
	out, _ := exec.Command("ip", "netns", "pids", name).Output()
	for pid := range strings.FieldsSeq(string(out)) {
		if n, err := strconv.Atoi(pid); err == nil && n != os.Getpid() {
			_ = unix.Kill(n, unix.SIGKILL)
		}
	}
	_ = exec.Command("ip", "netns", "del", name).Run()
}

// space is a network namespace and a thread in it, from which processes are started: the kernel kills them when the
// thread ends.
type space struct {
	t    Owner
	name string
	do   chan func()
}

func (l *Lab) newSpace(name string) *space {
	l.t.Helper()
	s := &space{l.t, l.name + "-" + name, make(chan func())}
	if out, err := exec.Command("ip", "netns", "add", s.name).CombinedOutput(); err != nil {
		l.t.Fatalf("netlab: make namespace %s: %v: %s", s.name, err, out)
	}
	begun := make(chan error, 1)
	go func() {
		err := s.enter()
		begun <- err
		for f := range s.do {
			f()
		}
	}()
	l.t.Cleanup(func() {
		close(s.do)
		removeSpace(s.name)
	})
	if err := <-begun; err != nil {
		l.t.Fatalf("netlab: enter namespace %s: %v", s.name, err)
	}
	s.sysctl("net/ipv4/ip_forward", "1")
	s.sysctl("net/ipv6/conf/all/forwarding", "1")
	s.sysctl("net/ipv6/conf/default/accept_dad", "0") // addresses work at once
	s.ip("link set lo up")
	return s
}

// enter moves the calling goroutine into the namespace, for good: its thread ends with it.
func (s *space) enter() error {
	runtime.LockOSThread()
	f, err := os.Open("/run/netns/" + s.name)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
}

// run calls f on a thread of its own in the namespace.
func (s *space) run(f func()) error {
	done := make(chan error, 1)
	go func() {
		err := s.enter()
		defer func() { done <- err }() // also where f ends the goroutine, as t.FailNow does
		if err == nil {
			f()
		}
	}()
	if err := <-done; err != nil {
		return fmt.Errorf("netlab: enter namespace %s: %w", s.name, err)
	}
	return nil
}

// start begins a process that ends with the namespace's thread.
func (s *space) start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &unix.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	done := make(chan error)
	s.do <- func() { done <- cmd.Start() }
	return <-done
}

// command runs a program to its end, with this input.
func (s *space) command(input string, args ...string) {
	s.t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &out
	err := s.start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		s.t.Fatalf("netlab: %s in %s: %v: %s%s", strings.Join(args, " "), s.name, err, out.String(), input)
	}
}

// ip carries out commands of ip, without its name.
func (s *space) ip(commands ...string) {
	s.t.Helper()
	s.command(strings.Join(commands, "\n")+"\n", "ip", "-batch", "-")
}

func (s *space) nft(rules string) {
	s.t.Helper()
	s.command(rules, "nft", "-f", "-")
}

// sysctl sets a value of the namespace by its path below /proc/sys.
func (s *space) sysctl(path, value string) {
	s.t.Helper()
	var err error
	entered := s.run(func() { err = os.WriteFile("/proc/sys/"+path, []byte(value), 0) })
	if err = errors.Join(entered, err); err != nil {
		s.t.Fatalf("netlab: sysctl in %s: %v", s.name, err)
	}
}

// wire is a connection of two namespaces: the outer end's interface and addresses, and the inner end's. The inner
// end sends everything else through the outer one.
type wire struct {
	outer, inner         *space
	outerName, innerName string
	net4, net6           netip.Prefix // the outer end has the first address, the inner one the second; zero for none
	mtu                  int
}

func (w wire) addrs() (outer, inner []netip.Prefix) {
	for _, p := range []netip.Prefix{w.net4, w.net6} {
		if p.IsValid() {
			first := p.Addr().Next()
			outer = append(outer, netip.PrefixFrom(first, p.Bits()))
			inner = append(inner, netip.PrefixFrom(first.Next(), p.Bits()))
		}
	}
	return outer, inner
}

// connect joins the namespaces by a line, or, with none, by a pair of interfaces. It returns both directions of the line.
func (l *Lab) connect(w wire, line *Line) (ways []*way) {
	l.t.Helper()
	if line == nil || line.Kernel {
		w.outer.ip(fmt.Sprintf("link add %s type veth peer name %s netns %s", w.outerName, w.innerName, w.inner.name))
		if line != nil {
			w.shape(*line)
		}
	} else {
		ways = l.draw(w, *line)
	}
	outer, inner := w.addrs()
	commands := func(name string, addrs []netip.Prefix) (lines []string) {
		lines = append(lines, "link set "+name+" up")
		if w.mtu > 0 {
			lines = append(lines, fmt.Sprintf("link set %s mtu %d", name, w.mtu))
		}
		for _, a := range addrs {
			nodad := ""
			if a.Addr().Is6() {
				nodad = " nodad"
			}
			lines = append(lines, fmt.Sprintf("addr add %s dev %s%s", a, name, nodad))
		}
		return lines
	}
	w.outer.ip(commands(w.outerName, outer)...)
	lines := commands(w.innerName, inner)
	for _, a := range outer {
		lines = append(lines, fmt.Sprintf("route add default via %s dev %s", a.Addr(), w.innerName))
	}
	w.inner.ip(lines...)
	return ways
}

// Cable joins two hosts by a local network of their own, with multicast, and returns their addresses in it.
func (l *Lab) Cable(a, b *Host) (atA, atB netip.Addr) {
	l.t.Helper()
	l.cables++
	name, net4 := fmt.Sprintf("cable%d", l.cables), netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(l.cables), 0}), 24)
	atA, atB = net4.Addr().Next(), second(net4)
	a.IP(fmt.Sprintf("link add %s type veth peer name %[1]s netns %s", name, b.space.name), "link set "+name+" up", fmt.Sprintf("addr add %s/%d dev %s", atA, net4.Bits(), name))
	b.IP("link set "+name+" up", fmt.Sprintf("addr add %s/%d dev %s", atB, net4.Bits(), name))
	return atA, atB
}
