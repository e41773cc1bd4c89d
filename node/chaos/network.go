package chaos

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"

	"pnode/node/config"
	"pnode/swarm/netlab"
)

// Network says where the nodes are.
type Network string

// The networks.
const (
	// Auto is Namespaces where the machine has them, else Loopback.
	Auto Network = "auto"
	// Loopback has all nodes on 127.0.0.1, over which no fault of a network can come.
	Loopback Network = "loopback"
	// Namespaces gives each node a Linux network namespace and a line of its own.
	Namespaces Network = "namespaces"
)

// Networks lists all of them.
var Networks = []Network{Auto, Loopback, Namespaces}

// Set reads a name.
func (n *Network) Set(text string) error {
	if !slices.Contains(Networks, Network(text)) {
		return fmt.Errorf("%q: want one of %v", text, Networks)
	}
	*n = Network(text)
	return nil
}

// String returns the text that Set reads.
func (n *Network) String() string { return string(*n) }

// Type names the values for a flag's help.
func (*Network) Type() string { return "NETWORK" }

// Line limits what a node sends and receives in a namespace. The zero value has no limits.
type Line struct {
	Rate config.Rate `json:"bytes_per_s"`
	// Delay is the time from one node to another; a round trip takes twice as long.
	Delay config.Span `json:"delay_ns"`
}

// Set reads a rate and a delay, such as 100Mbit/s,5ms.
func (l *Line) Set(text string) error {
	rate, delay, both := strings.Cut(text, ",")
	var read Line
	if !both {
		return fmt.Errorf("%q: want a rate and a delay, such as 100Mbit/s,5ms", text)
	}
	if err := errors.Join(read.Rate.Set(rate), read.Delay.Set(delay)); err != nil {
		return err
	}
	*l = read
	return nil
}

// String returns the text that Set reads, "" for no limits.
func (l *Line) String() string {
	if *l == (Line{}) {
		return ""
	}
	return l.Rate.String() + "," + l.Delay.String()
}

// Type names the values for a flag's help.
func (*Line) Type() string { return "RATE,DELAY" }

// machine is where one node runs.
type machine interface {
	start(cmd *exec.Cmd) error
	// dial connects to an address that only the machine itself may reach, and listen opens one.
	dial(network, address string) (net.Conn, error)
	listen() (net.Listener, error)
}

// network holds the machines of a fleet.
type network interface {
	machine(node int) machine
	// listenAt is what a node listens on.
	listenAt() string
	// furnish makes a node's folder. Where Full is possible it is on a disk of its own until close.
	furnish(dir string) error
	// lacks says why a kind of fault cannot be injected here, "" where it can.
	lacks(k Kind) string
	// disturb begins a fault of lines or disks and returns what ends it, nil where it can do nothing about them.
	disturb(x Fault) (end func() error, err error)
	close() error
}

// openNetwork makes the network that is asked for, and returns which one it is.
func openNetwork(o Options) (network, Network, error) {
	if o.Network == Loopback {
		if o.Line != (Line{}) {
			return nil, "", fmt.Errorf("%w: --line needs --network %s", ErrOptions, Namespaces)
		}
		return loopback{}, Loopback, nil
	}
	n, err := openNamespaces(o.Nodes+1, o.Line)
	switch {
	case err == nil:
		return n, Namespaces, nil
	case !errors.Is(err, netlab.ErrUnavailable):
		return nil, "", err
	case o.Network == Namespaces:
		return nil, "", fmt.Errorf("%w: --network %s: %w", ErrOptions, Namespaces, err)
	}
	o.Tell(fmt.Sprintf("on loopback, without faults of the network and emulated lines: %v", err))
	return loopback{}, Loopback, nil
}

// loopback is the network of this machine alone.
type loopback struct{}

func (loopback) machine(int) machine                 { return here{} }
func (loopback) listenAt() string                    { return "127.0.0.1:0" }
func (loopback) disturb(Fault) (func() error, error) { return nil, nil }
func (loopback) close() error                        { return nil }

func (loopback) lacks(k Kind) string {
	switch {
	case k.needsDisk():
		return fmt.Sprintf("nodes share a disk: want --network %s, which needs Linux, root, ip and nft", Namespaces)
	case k.needsLines():
		return fmt.Sprintf("loopback has no lines: want --network %s, which needs Linux, root, ip and nft", Namespaces)
	case (k == Pause || k == Slow) && !pauses:
		return "this system cannot pause processes"
	}
	return ""
}

func (loopback) furnish(dir string) error { return os.MkdirAll(dir, 0o700) }

// here is the machine of this process.
type here struct{}

func (here) start(cmd *exec.Cmd) error                      { return cmd.Start() }
func (here) dial(network, address string) (net.Conn, error) { return net.Dial(network, address) }
func (here) listen() (net.Listener, error)                  { return net.Listen("tcp", "127.0.0.1:0") }
