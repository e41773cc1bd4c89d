package swarm

import (
	"net"
	"testing"
)

func TestRefuses(t *testing.T) {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	addr := addrPort(conn.LocalAddr())
	if refuses(t.Context(), addr) {
		t.Error("a port on which somebody listens refuses")
	}
	conn.Close()
	if !refuses(t.Context(), addr) {
		t.Error("a closed port does not refuse")
	}
}
