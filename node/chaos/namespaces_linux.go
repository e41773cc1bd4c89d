package chaos

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"time"

	"pnode/swarm/netlab"
)

// narrower is by how much a slow node's line is.
const narrower = 10

// namespaces is a network with a namespace for each node.
type namespaces struct {
	owner *netlab.Program
	lab   *netlab.Lab
	hosts []*netlab.Host
	line  netlab.Line
	disks []disk
}

// openNamespaces makes the namespaces of so many nodes. The error wraps netlab.ErrUnavailable where this machine has none.
func openNamespaces(nodes int, line Line) (network, error) {
	n := &namespaces{owner: &netlab.Program{}, line: netlab.Line{Rate: float64(line.Rate) * 8, Delay: time.Duration(line.Delay) / 2}}
	err := n.owner.Try(func() {
		n.lab = netlab.New(n.owner)
		var drawn []netlab.Line // one without limits is a pair of interfaces
		if line != (Line{}) {
			drawn = append(drawn, n.line)
		}
		for i := range nodes {
			n.hosts = append(n.hosts, n.lab.Host(fmt.Sprint(i), netlab.Public, drawn...))
		}
	})
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func (n *namespaces) machine(node int) machine { return space{n.owner, n.hosts[node]} }
func (n *namespaces) listenAt() string         { return fmt.Sprintf("0.0.0.0:%d", netlab.Port) }
func (n *namespaces) lacks(Kind) string        { return "" }

func (n *namespaces) furnish(dir string) error {
	d, err := mountDisk(dir)
	if err == nil {
		n.disks = append(n.disks, d)
	}
	return err
}

func (n *namespaces) close() error {
	n.owner.Close()
	var errs []error
	for _, d := range n.disks {
		errs = append(errs, d.keep())
	}
	return errors.Join(errs...)
}

func (n *namespaces) disturb(x Fault) (end func() error, err error) {
	if x.Kind == Full {
		return n.disks[x.Node].empty, n.disks[x.Node].fill()
	}
	host := n.hosts[x.Node]
	var begin, mend func()
	switch {
	case x.Kind == Cut:
		begin = func() { n.lab.Cut(host, nil); n.lab.Cut(nil, host) }
		mend = func() { n.lab.Mend(host, nil); n.lab.Mend(nil, host) }
	case x.Kind == OneWay:
		begin = func() { n.lab.Cut(host, n.hosts[x.To]) }
		mend = func() { n.lab.Mend(host, n.hosts[x.To]) }
	case x.Kind == Slow && n.line.Rate > 0 && x.Draw%2 == 0:
		slow := n.line
		slow.Rate /= narrower
		begin = func() { host.Redraw(slow) }
		mend = func() { host.Redraw(n.line) }
	default:
		return nil, nil
	}
	return func() error { return n.owner.Try(mend) }, n.owner.Try(begin)
}

// space is a node's namespace.
type space struct {
	owner *netlab.Program
	host  *netlab.Host
}

func (s space) start(cmd *exec.Cmd) error { return s.host.Start(cmd) }

func (s space) dial(network, address string) (conn net.Conn, err error) {
	if entered := s.owner.Try(func() { conn, err = s.host.Dial(network, address) }); entered != nil {
		return nil, entered
	}
	return conn, err
}

func (s space) listen() (l net.Listener, err error) {
	if entered := s.owner.Try(func() { s.host.Do(func() { l, err = net.Listen("tcp", "127.0.0.1:0") }) }); entered != nil {
		return nil, entered
	}
	return l, err
}
