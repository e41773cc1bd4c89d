package local

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"pnode/node/config"
	"pnode/swarm/listen"
)

// emulationFile returns the file in the run's folder that describes how node index is to look.
func (s *Supervisor) emulationFile(index int) string {
	return filepath.Join(s.options.Dir, fmt.Sprintf("emulate-%d.yaml", index))
}

// emulate describes the nodes of a cluster, each in a file of its own, and gives them
// addresses by which the links between them are known. Resumed without a cluster, they look
// as before and listen where they did.
func (s *Supervisor) emulate() error {
	c := s.options.Config
	if c.Cluster == "" {
		_, err := os.Stat(s.emulationFile(0))
		s.emulated = c.Resume && err == nil
		return nil
	}
	cluster, err := config.LoadCluster(c.Cluster)
	if err != nil {
		return err
	}
	if s.listens, err = freeAddresses(s.options.Nodes); err != nil {
		return fmt.Errorf("local: find free ports: %w", err)
	}
	for i, e := range cluster.Emulations(s.listens) {
		var b bytes.Buffer
		if err := e.Print(&b); err != nil {
			return err
		}
		if err := os.WriteFile(s.emulationFile(i), b.Bytes(), 0o600); err != nil {
			return fmt.Errorf("local: describe node %d: %w", i, err)
		}
	}
	s.emulated = true
	return nil
}

// Ports of nodes that others know by an address are below those that systems give to outgoing connections, from 32768 on Linux and from
// 49152 by RFC 6335: until the node listens there no such connection takes its port.
const (
	firstPort = 20000
	portCount = 32768 - firstPort
)

// freeAddresses returns so many different addresses on loopback that nobody has over UDP or TCP.
func freeAddresses(count int) (addrs []string, err error) {
	const tries = 64
	for range count + tries {
		if len(addrs) == count {
			return addrs, nil
		}
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(firstPort+rand.N(portCount)))
		if slices.Contains(addrs, at.String()) {
			continue
		}
		if _, err = listen.Free([]netip.AddrPort{at}); err == nil {
			addrs = append(addrs, at.String())
		}
	}
	return nil, cmp.Or(err, listen.ErrPortInUse)
}

// listenOf returns where a node listens: loopback, any port, unless others know it by an address.
func (s *Supervisor) listenOf(index int) string {
	if len(s.listens) > 0 {
		return s.listens[index]
	}
	return loopback
}
