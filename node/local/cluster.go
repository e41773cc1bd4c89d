package local

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"pnode/node/config"
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
	for range s.options.Nodes {
		conn, err := net.ListenPacket("udp4", loopback)
		if err != nil {
			return fmt.Errorf("local: find a free port: %w", err)
		}
		defer conn.Close() // after all are found: none is found twice
		s.listens = append(s.listens, conn.LocalAddr().String())
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

// listenOf returns where a node listens: loopback, any port, unless others know it by an address.
func (s *Supervisor) listenOf(index int) string {
	if len(s.listens) > 0 {
		return s.listens[index]
	}
	return loopback
}
