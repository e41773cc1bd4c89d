package alpn

import (
	"fmt"
	"net"
	"testing"
)

func TestRefuses(t *testing.T) {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	addr := addrPort(conn.LocalAddr())
	if refuses(t.Context(), nil, addr) {
		t.Error("a port on which somebody listens refuses")
	}
	conn.Close()
	if !refuses(t.Context(), nil, addr) {
		t.Error("a closed port does not refuse")
	}
}

// TestNobodyListens: all must refuse, on UDP and on TCP.
func TestNobodyListens(t *testing.T) {
	const peer = "/p2p/12D3KooWGzxzKZYveHXtpG6AsrUJBcWxHBFS2HsEoGTxrMLvKXtf"
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	onUDP := fmt.Sprintf("/ip4/127.0.0.1/udp/%d/quic-v1%s", udp.LocalAddr().(*net.UDPAddr).Port, peer)
	onTCP := fmt.Sprintf("/ip4/127.0.0.1/tcp/%d%s", tcp.Addr().(*net.TCPAddr).Port, peer)
	want := func(want bool, addrs ...string) {
		t.Helper()
		if got := NobodyListens(t.Context(), nil, addrs...); got != want {
			t.Errorf("%v silent: %v, want %v", addrs, got, want)
		}
	}
	want(false, onTCP)
	tcp.Close()
	want(true, onTCP)
	want(false, onTCP, onUDP)
	udp.Close()
	want(true, onTCP, onUDP)
	want(false, onUDP, "/ip4/127.0.0.1/tcp/9"+peer+"/p2p-circuit"+peer)
	want(false)
}
