package traffic

import (
	"slices"
	"testing"

	"github.com/libp2p/go-libp2p/core/protocol"
)

// TestMeterTellsKindsApart: what is written and read is counted with the kind of its protocol, whatever the protocol's version is.
func TestMeterTellsKindsApart(t *testing.T) {
	var m Meter
	for proto, size := range map[protocol.ID]int64{
		"/pnode/raft/4": 100, "/meshsub/1.2.0": 20, "/meshsub/1.1.0": 1, "/pnode/commit/1": 7, "/pnode/commits/2": 8, "/pnode/lastcommit/1": 9,
		"/pnode/alive/1": 3, "/pnode/committee/1": 1000, "": 10_000,
	} {
		m.LogSentMessageStream(size, proto, "")
		m.LogSentMessage(size)
		m.LogRecvMessageStream(2*size, proto, "")
		m.LogRecvMessage(2 * size)
	}
	want := []Count{{Log, 100, 1, 200}, {Gossip, 21, 2, 42}, {Commits, 24, 3, 48}, {Alive, 3, 1, 6}, {Other, 11_000, 2, 22_000}}
	if got := m.Counts(); !slices.Equal(got, want) {
		t.Errorf("counts %+v, want %+v", got, want)
	}
	if total := m.GetBandwidthTotals(); total.TotalOut != 11_148 || total.TotalIn != 22_296 {
		t.Errorf("totals %+v", total)
	}
	if one := m.GetBandwidthForProtocol("/pnode/raft/4"); one.TotalOut != 100 || one.TotalIn != 200 {
		t.Errorf("the log's %+v", one)
	}
}
