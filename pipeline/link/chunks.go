package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
	"pnode/swarm/transport"
)

// ChunkFunc returns a stored chunk of at most wire.MaxChunkBytes.
type ChunkFunc func(plan.Hash) ([]byte, error)

// chunkSlice is how much of a chunk is written under one deadline.
const chunkSlice = 64 << 10

// ServeChunks answers Fetch of admitted peers with f from now on; nil ends it. It answers a chunk for
// which f fails as missing, but says that it is busy where f's error wraps ErrBusy: the chunk may well be here. It calls f from several goroutines.
func (e *Endpoint) ServeChunks(f func(plan.Hash) ([]byte, error)) {
	if f == nil {
		e.chunks.Store(nil)
		return
	}
	e.chunks.Store((*ChunkFunc)(&f))
}

// answer serves one chunk stream.
func (e *Endpoint) answer(p incoming) {
	chunk := e.chunks.Load()
	e.mu.Lock()
	peer := e.peer(p.from)
	busy := chunk == nil || peer.serving >= e.opt.ChunkStreams
	if !busy {
		peer.serving++
	}
	e.mu.Unlock()
	if busy {
		e.counts.busyChunks.Add(1)
		cut(p.stream, streamBusy)
		return
	}
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		peer.serving--
	}()
	defer context.AfterFunc(e.ctx, func() { cut(p.stream, streamCut) })()
	p.stream.SetUrgency(urgency[wire.Chunks])
	rw := paced{stream: p.stream, timeout: e.opt.ChunkTimeout}
	hashes, err := readRequest(rw)
	rw.pace = func(n int) int { return e.pace(p.from, p.conn, n) }
	for _, h := range hashes {
		if err != nil {
			break
		}
		err = e.answerOne(rw, *chunk, h)
	}
	switch {
	case err == nil:
		p.stream.Close()
	case undecodable(err):
		e.corrupt(p, err)
	case errors.Is(err, ErrBusy):
		e.log.Warn("a chunk is not served", "cause", err)
		cut(p.stream, streamBusy)
	default:
		cut(p.stream, streamCut)
	}
}

func readRequest(r io.Reader) ([]plan.Hash, error) {
	var count [wire.ChunkCountBytes]byte
	if _, err := io.ReadFull(r, count[:]); err != nil {
		return nil, err
	}
	n, err := wire.DecodeChunkCount(count[:])
	if err != nil {
		return nil, err
	}
	b := make([]byte, n*len(plan.Hash{}))
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("link: end of a chunk request: %w", cmp.Or(err, wire.ErrLength))
	}
	return wire.DecodeChunkHashes(b)
}

func (e *Endpoint) answerOne(w io.Writer, chunk ChunkFunc, h plan.Hash) error {
	data, err := chunk(h)
	if errors.Is(err, ErrBusy) {
		return err
	}
	if err == nil && len(data) > wire.MaxChunkBytes {
		err = fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(data), wire.MaxChunkBytes)
	}
	if err != nil {
		e.log.Debug("chunk is not served", "chunk", h, "reason", err)
		_, err = w.Write(wire.AppendChunkHeader(nil, wire.ChunkMissing, 0))
		return err
	}
	if _, err := w.Write(wire.AppendChunkHeader(nil, wire.ChunkFound, len(data))); err != nil {
		return err
	}
	_, err = w.Write(data)
	if err == nil {
		e.counts.sent[0].Add(uint64(len(data)))
	}
	return err
}

// Fetch asks a peer for chunks and hands each to store, in the given order and from the calling
// goroutine; store verifies the hash. It connects when there is no connection. It passes over chunks that
// the peer does not have; the error then wraps ErrMissing and the others were stored. Any other error,
// such as store's own, ends it at once.
func (e *Endpoint) Fetch(ctx context.Context, from plan.PeerID, hashes []plan.Hash, store func(plan.Hash, []byte) error) error {
	e.mu.Lock()
	slots := e.peer(from).fetching
	e.mu.Unlock()
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return fmt.Errorf("link: fetch from %s: %w", from, ctx.Err())
	}
	missing := 0
	for len(hashes) > 0 {
		n := min(len(hashes), wire.MaxChunkHashes)
		m, err := e.fetchBatch(ctx, from, hashes[:n], store)
		if err != nil {
			return fmt.Errorf("link: fetch from %s: %w", from, err)
		}
		missing += m
		hashes = hashes[n:]
	}
	if missing > 0 {
		return fmt.Errorf("link: fetch from %s: %w: %d in number", from, ErrMissing, missing)
	}
	return nil
}

// fetchBatch makes one request and returns how many chunks are missing.
func (e *Endpoint) fetchBatch(
	ctx context.Context, from plan.PeerID, hashes []plan.Hash, store func(plan.Hash, []byte) error,
) (missing int, err error) {
	conn, err := e.connect(ctx, from)
	if err != nil {
		return 0, err
	}
	stream, err := conn.OpenStream(ctx)
	if err != nil {
		return 0, err
	}
	defer context.AfterFunc(ctx, func() { cut(stream, streamCut) })()
	defer stream.CancelRead(streamCut) // of no effect after the end
	stream.SetUrgency(urgency[wire.Chunks])
	rw := paced{stream: stream, timeout: e.opt.ChunkTimeout}
	request := wire.AppendChunkRequest(wire.AppendOpen(nil, wire.Open{Class: wire.Chunks, From: e.epoch}), hashes)
	if _, err := rw.Write(request); err != nil {
		stream.CancelWrite(streamCut)
		return 0, refused(ctx, err)
	}
	stream.Close()
	for _, h := range hashes {
		found, data, err := readChunk(rw)
		if err != nil {
			return missing, fmt.Errorf("chunk %v: %w", h, refused(ctx, err))
		}
		if !found {
			missing++
			continue
		}
		e.counts.received[0].Add(uint64(len(data)))
		if err := store(h, data); err != nil {
			return missing, fmt.Errorf("store chunk %v: %w", h, err)
		}
	}
	return missing, nil
}

func readChunk(r io.Reader) (found bool, data []byte, err error) {
	var head [wire.ChunkHeaderBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return false, nil, err
	}
	status, n, err := wire.DecodeChunkHeader(head[:])
	if err != nil || status == wire.ChunkMissing {
		return false, nil, err
	}
	data = make([]byte, n)
	_, err = io.ReadFull(r, data)
	return true, data, err
}

// refused returns the reason of a request that failed.
func refused(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if code, ok := transport.CutBy(err); ok && code == streamBusy {
		return fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return err
}

// paced gives every read, and every slice of a write, its own deadline, and lets messages of the session
// pass where it has a pace.
type paced struct {
	stream  transport.Stream
	timeout time.Duration
	// pace blocks until the next slice of n bytes may be written and returns how long it may be; nil where
	// little is written.
	pace func(n int) int
}

func (p paced) Read(b []byte) (int, error) {
	p.stream.SetReadDeadline(time.Now().Add(p.timeout))
	return p.stream.Read(b)
}

func (p paced) Write(b []byte) (int, error) {
	done := 0
	for {
		slice := min(chunkSlice, len(b)-done)
		if p.pace != nil {
			slice = p.pace(slice)
		}
		p.stream.SetWriteDeadline(time.Now().Add(p.timeout))
		n, err := p.stream.Write(b[done : done+slice])
		if done += n; err != nil || done == len(b) {
			return done, err
		}
	}
}
