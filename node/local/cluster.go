package local

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"pnode/node/config"
)

// emulationFile is what node index is to look like, in the run's folder.
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
		return err
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

// freeAddresses are addresses on loopback whose UDP ports nobody has now.
func freeAddresses(n int) ([]string, error) {
	var all []string
	for range n {
		conn, err := net.ListenPacket("udp4", loopback)
		if err != nil {
			return nil, fmt.Errorf("local: find a free port: %w", err)
		}
		defer conn.Close() // after all are found: none is found twice
		all = append(all, conn.LocalAddr().String())
	}
	return all, nil
}

// emulateArgs make a node look like its device.
func (s *Supervisor) emulateArgs(index int) []string {
	if !s.emulated {
		return nil
	}
	return []string{"--emulate", s.emulationFile(index)}
}

// listenOf is where a node listens: loopback, any port, unless others know it by an address.
func (s *Supervisor) listenOf(index int) string {
	if len(s.listens) > 0 {
		return s.listens[index]
	}
	return loopback
}
