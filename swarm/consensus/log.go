package consensus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"

	"github.com/hashicorp/go-hclog"
)

// slogSink passes on what raft logs, quieter: a peer that is away is for the roster to deal
// with, and raft repeats it with every heartbeat.
type slogSink struct{ logger *slog.Logger }

// Accept is called with each record, whatever its level.
func (s slogSink) Accept(_ string, level hclog.Level, msg string, args ...any) {
	to := slog.LevelDebug
	if level >= hclog.Error && !slices.ContainsFunc(args, aboutPeer) {
		to = slog.LevelInfo // a stream that broke, mostly; what matters comes back as an error
	}
	args = slices.Clone(args)
	for i, a := range args {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			args[i] = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
		}
	}
	s.logger.Log(context.Background(), to, "raft: "+msg, args...)
}

// aboutPeer recognises the keys under which raft names the peer that did not answer, and
// its stream layer's word for a stream that broke.
func aboutPeer(arg any) bool {
	switch arg {
	case "peer", "target", "server-id":
		return true
	}
	err, ok := arg.(error)
	return ok && (errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrDeadlineExceeded))
}
