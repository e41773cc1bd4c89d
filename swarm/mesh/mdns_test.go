package mesh

import (
	"testing"
)

func TestMDNSName(t *testing.T) {
	if a, b := mdnsName("Run"), mdnsName("run"); a == b || len(a) != len("_pnode-01234567._udp") {
		t.Errorf("%s, %s", a, b)
	}
}
