package alpn

import (
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"pnode/planner/plan"
	"pnode/swarm/transport"
)

// lateTime is how long a connection that came too late for its dial is kept for the next one, which comes after a second at most. The
// other end may use it meanwhile, and gets no answer.
const lateTime = 1500 * time.Millisecond

// lateConns keeps connections that came when their caller had given up, one for each peer.
type lateConns struct {
	mu    sync.Mutex
	conns map[peer.ID]transport.Conn
}

// keep keeps a connection for the next dial to p, in place of one that is kept.
func (l *lateConns) keep(p peer.ID, conn transport.Conn) {
	l.mu.Lock()
	old := l.conns[p]
	if l.conns == nil {
		l.conns = map[peer.ID]transport.Conn{}
	}
	l.conns[p] = conn
	l.mu.Unlock()
	if old != nil {
		old.Close(codeClosed, "another came later")
	}
	time.AfterFunc(lateTime, func() {
		l.mu.Lock()
		kept := l.conns[p] == conn
		if kept {
			delete(l.conns, p)
		}
		l.mu.Unlock()
		if kept {
			conn.Close(codeClosed, "not used")
		}
	})
}

// take returns the connection over a transport, "" for any, that was kept for a dial to p; nil without a live one.
func (l *lateConns) take(p peer.ID, over plan.Transport) transport.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	conn := l.conns[p]
	if conn == nil || over != "" && conn.Transport() != over {
		return nil
	}
	delete(l.conns, p)
	if conn.Context().Err() != nil {
		return nil
	}
	return conn
}
