package link

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/mux"
	"pnode/swarm/transport"
)

// muxed is a network whose connections are those of package mux, each over one stream of a connection of another
// network: reliable bytes over emulated lines.
type muxed struct {
	Network
	mu    sync.Mutex // guards conns
	conns []*mux.Conn
}

// made notes a connection.
func (m *muxed) made(c *mux.Conn) *mux.Conn {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conns = append(m.conns, c)
	return c
}

// wait blocks until the goroutines of all connections have ended.
func (m *muxed) wait() {
	for _, c := range m.conns {
		c.Close(codeShutdown, "")
		<-c.Done()
	}
}

// byteStream is one stream of a connection of its own.
type byteStream struct {
	transport.Stream
	conn   transport.Conn
	writes sync.Mutex // held by Write
}

func (b *byteStream) LocalAddr() net.Addr  { return nil }
func (b *byteStream) RemoteAddr() net.Addr { return b.conn.RemoteAddr() }

func (b *byteStream) Write(p []byte) (int, error) {
	b.writes.Lock()
	defer b.writes.Unlock()
	return b.Stream.Write(p)
}

// Close lets what was written arrive, as TCP does, and ends a Write.
func (b *byteStream) Close() error {
	b.CancelRead(0)
	time.AfterFunc(time.Second, func() { b.conn.Close(codeSilent, "closed below") })
	if !b.writes.TryLock() {
		b.CancelWrite(0)
		return nil
	}
	defer b.writes.Unlock()
	return b.Stream.Close()
}

func (m *muxed) Transports(plan.PeerID) []plan.Transport { return []plan.Transport{plan.TCP} }

func (m *muxed) Refuses(ctx context.Context, peer plan.PeerID) bool {
	refuser, ok := m.Network.(Refuser)
	return ok && refuser.Refuses(ctx, peer)
}

func (m *muxed) Dial(ctx context.Context, peer plan.PeerID, _ plan.Transport) (transport.Conn, error) {
	conn, err := m.Network.Dial(ctx, peer, "")
	if err != nil {
		return nil, err
	}
	stream, err := conn.OpenStream(ctx)
	if err == nil {
		_, err = stream.Write([]byte{0}) // so that the peer sees it
	}
	if err != nil {
		conn.Close(codeSilent, "no stream")
		return nil, err
	}
	return m.made(mux.New(&byteStream{Stream: stream, conn: conn}, mux.Config{Dialer: true})), nil
}

func (m *muxed) Accept(ctx context.Context) (transport.Conn, plan.PeerID, error) {
	for {
		conn, peer, err := m.Network.Accept(ctx)
		if err != nil {
			return nil, "", err
		}
		stream, err := conn.AcceptStream(ctx)
		if err == nil {
			_, err = io.ReadFull(stream, make([]byte, 1))
		}
		if err == nil {
			return m.made(mux.New(&byteStream{Stream: stream, conn: conn}, mux.Config{})), peer, nil
		}
		if ctx.Err() != nil {
			return nil, "", ctx.Err()
		}
	}
}

// overMux is the prefix of tests whose networks are muxed.
const overMux = "TestOverMux/"

// TestOverMux: the session's protocol is the same over one stream of bytes as over QUIC.
func TestOverMux(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"exchange": TestThreePeersEmulated, "parked": TestNewerGenerationIsParked, "empty": TestAMessageMayBeEmpty,
		"unopened": TestUnopenedSessionIsWaitedFor, "older": TestOlderGenerationIsRefused, "close": TestCloseDeliversWhatIsQueued,
		"closing": TestCloseIsBounded, "unblocks": TestCloseUnblocks, "reconnects": TestCloseConnectsForWhatIsQueued,
		"flush": TestFlushWaitsForASlowLine, "gives up": TestFlushGivesUp,
		"drop": TestLinkDropIsSurvived, "drops": TestRepeatedDrops, "both dial": TestBothDialAtOnce, "lost": TestDropIsLostAfterPeerTimeout,
		"killed": TestKilledProcessIsLostSoon, "restarted": TestRestartedPeerIsLostAtOnce, "replaced": TestStreamsThatWereReplacedEnd,
		"silent": TestSilentPeerIsLost, "unreachable": TestUnreachablePeerIsLost, "generation": TestNextGenerationReconnects,
		"distrust": TestNextGenerationDistrustsTheSilent, "shut down": TestClosedEndpointIsLostAtOnce, "leaves": TestPeerThatLeavesIsLost,
		"moves on": TestPeerThatMovesOnIsNotLost, "corrupt": TestCorruptStreamClosesTheConnection, "wrong": TestWrongFramesAreDropped,
		"pressure": TestBackPressure, "leaver": TestReceiveFromALeaverFails, "gave up": TestReceiveFromOneThatGaveUpFails,
		"told": TestLeavingIsToldAfterADrop, "session leaves": TestClosingSessionSaysThatItLeaves, "draining": TestDrainingSessionIsHeard,
		"life": TestParkedStreamTellsItsLife, "moved": TestMovedTellsSlowFromMute, "inbox": TestInboxIsBoundedInMessages,
		"under way": TestMessagesUnderWayAreBounded, "readers": TestBrokenConnectionsLeaveNoReaders, "control": TestBlockedClassesLetControlPass,
		"missing": TestFetchPassesOverMissingChunks, "refusals": TestFetchRefusals, "limited": TestChunkStreamsAreLimited,
		"request": TestCorruptChunkRequestClosesTheConnection, "fetch": TestFetchBesideASession, "bulk": TestBulkLetsOthersPass,
		"acks": TestAcksPassBulk, "rate": TestQueuedMessagesTellWhatALinkCarries, "goodput": goodputOverMux,
	} {
		t.Run(name, test)
	}
}

// goodputOverMux lets the windows below open for longer than those of QUIC alone take.
func goodputOverMux(t *testing.T) {
	if testing.Short() {
		t.Skip("300 MB through QUIC")
	}
	for _, line := range lines[:2] {
		t.Run(line.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				part, connections := goodput(t, line.shape, line.connections, 12*time.Second, line.during)
				t.Logf("%.1f%% of the line over %d connections", 100*part, connections)
				if part < line.floor {
					t.Errorf("%.1f%% of the line arrive over %d connections, want %.0f%%", 100*part, connections, 100*line.floor)
				}
			})
		})
	}
}

// networkOf returns what an endpoint of a test runs on.
func networkOf(t testing.TB, n Network) Network {
	if strings.HasPrefix(t.Name(), overMux) {
		return &muxed{Network: n}
	}
	return n
}
