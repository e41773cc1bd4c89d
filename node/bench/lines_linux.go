package bench

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"pnode/swarm/netlab"
)

// averageLine describes a peer's line, the same in both directions.
type averageLine struct {
	bitsPerS float64
	delay    time.Duration
	loss     float64 // share of packets
}

// lines is a network of peers, each on a line of its own.
type lines struct {
	owner *netlab.Program
	hosts []*netlab.Host
}

// openLines makes a network. The error says what it needs where this machine has none.
func openLines(peers int, line averageLine) (*lines, error) {
	n := &lines{owner: &netlab.Program{}}
	err := n.owner.Try(func() {
		lab := netlab.New(n.owner)
		for i := range peers {
			n.hosts = append(n.hosts, lab.Host(fmt.Sprint(i), netlab.Public, netlab.Line{
				Rate: line.bitsPerS, Delay: line.delay, Loss: line.loss, Seed: uint64(i + 1), Kernel: line.delay == 0 && line.loss == 0,
			}))
		}
	})
	if err != nil {
		n.close()
		return nil, fmt.Errorf("make lines: %w", err)
	}
	return n, nil
}

// address returns the address of a peer.
func (n *lines) address(peer int) string { return n.hosts[peer].Addr().String() }

// start starts a program at a peer.
func (n *lines) start(peer int, cmd *exec.Cmd) (err error) {
	tried := n.owner.Try(func() { err = n.hosts[peer].Start(cmd) })
	return errors.Join(tried, err)
}

// control returns the kernel's congestion control, which new namespaces begin with.
func (n *lines) control() string {
	text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
	if err != nil {
		return "an unknown congestion control"
	}
	return strings.TrimSpace(string(text))
}

func (n *lines) close() { n.owner.Close() }
