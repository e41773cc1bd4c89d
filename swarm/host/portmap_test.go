package host

import (
	"net"
	"testing"
	"time"
)

// FuzzPortMapping: whatever a router answers is read as an address and port that lead somewhere, or refused.
func FuzzPortMapping(f *testing.F) {
	pcp := make([]byte, 60)
	copy(pcp, []byte{2, 0x81, 0, 0, 0, 0, 14, 16})
	pcp[36], pcp[40], pcp[41], pcp[42], pcp[43] = 17, 0x0f, 0xa1, 0x9c, 0x65
	pcp[54], pcp[55], pcp[56] = 0xff, 0xff, 45
	f.Add(pcp)
	f.Add([]byte{0, 129, 0, 0, 0, 0, 0, 9, 0x0f, 0xa1, 0x9c, 0x65, 0, 0, 14, 16})
	f.Add([]byte{0, 128, 0, 0, 0, 0, 0, 9, 45, 1, 0, 2})
	f.Fuzz(func(t *testing.T, b []byte) {
		p := socketPort{false, 4001}
		if m, err := readPCP(b, p, [12]byte{}); err == nil && (!m.at.Addr().IsGlobalUnicast() || m.at.Port() == 0) {
			t.Errorf("PCP maps to %s", m.at)
		}
		if m, err := readNATPMP(b, p); err == nil && m.lifetime < 0 {
			t.Errorf("NAT-PMP maps for %s", m.lifetime)
		}
		if ip, err := readNATPMPAddress(b); err == nil && !ip.IsGlobalUnicast() {
			t.Errorf("NAT-PMP says %s", ip)
		}
	})
}

// A router that knows NAT-PMP alone is asked in it, and one that is silent is given up.
func TestMapPort(t *testing.T) {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		b := make([]byte, 1100)
		for {
			n, from, err := conn.ReadFromUDP(b)
			switch {
			case err != nil:
				return
			case b[0] == 2: // unsupported version
				conn.WriteToUDP([]byte{0, 0x81, 0, 1, 0, 0, 0, 9}, from)
			case n == 2:
				conn.WriteToUDP([]byte{0, 128, 0, 0, 0, 0, 0, 9, 45, 1, 0, 2}, from)
			case n == 12:
				answer := []byte{0, 128 + b[1], 0, 0, 0, 0, 0, 9, b[4], b[5], 0x9c, 0x65, 0, 0, 2, 88}
				conn.WriteToUDP(answer, from)
			}
		}
	}()
	client, err := net.DialUDP("udp4", nil, conn.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	r := &router{UDPConn: client}
	for _, tcp := range []bool{false, true} {
		at, lifetime, err := r.mapPort(t.Context(), socketPort{tcp, 4001}, 4001, time.Hour)
		if err != nil || at.String() != "45.1.0.2:40037" || lifetime != 10*time.Minute {
			t.Errorf("mapped to %s for %s, %v", at, lifetime, err)
		}
	}
}
