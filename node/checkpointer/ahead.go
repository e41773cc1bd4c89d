package checkpointer

import (
	"context"
	"io"

	"golang.org/x/sync/errgroup"

	"pnode/pipeline"
)

const (
	// pieceBytes is how much of a state is read at once.
	pieceBytes = 256 << 10
	// aheadPieces bounds what is in memory between the device and the disk: 256 MiB.
	aheadPieces = 1024
)

// readAhead reads the layers of a state in their order, as fast as the device gives them and up to aheadPieces in front of the
// disk: the next update of the parameters waits until they are read, and must not wait for a slow disk. The caller reads the
// returned layers in the same order, and calls stop when it reads no more.
func readAhead(ctx context.Context, layers []pipeline.LayerState) (ahead []pipeline.LayerState, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	room := make(chan struct{}, aheadPieces)
	var pieces []chan piece
	for _, l := range layers {
		p := make(chan piece, aheadPieces)
		pieces = append(pieces, p)
		ahead = append(ahead, pipeline.LayerState{Layer: l.Layer, Reader: &pieceReader{ctx: ctx, pieces: p, room: room}})
	}
	var reading errgroup.Group
	reading.Go(func() error {
		for i, l := range layers {
			for err := error(nil); err == nil; {
				select {
				case room <- struct{}{}:
				case <-ctx.Done():
					return nil
				}
				var p piece
				p, err = readPiece(l.Reader)
				pieces[i] <- p // it has room: there are no more pieces than room
			}
		}
		return nil
	})
	return ahead, func() {
		cancel()
		_ = reading.Wait() // returns no error
	}
}

// piece is a part of a layer's state, and how its reading ended: nil where more follows.
type piece struct {
	data []byte
	err  error
}

func readPiece(r io.Reader) (piece, error) {
	data, n := make([]byte, pieceBytes), 0
	for n < len(data) {
		k, err := r.Read(data[n:])
		if n += k; err != nil {
			return piece{data[:n], err}, err
		}
	}
	return piece{data, nil}, nil
}

// pieceReader reads the pieces of a layer.
type pieceReader struct {
	ctx    context.Context
	pieces <-chan piece
	room   <-chan struct{}
	now    piece
}

func (r *pieceReader) Read(p []byte) (int, error) {
	for len(r.now.data) == 0 {
		if r.now.err != nil {
			return 0, r.now.err
		}
		select {
		case r.now = <-r.pieces:
			<-r.room
		case <-r.ctx.Done():
			return 0, r.ctx.Err()
		}
	}
	n := copy(p, r.now.data)
	r.now.data = r.now.data[n:]
	return n, nil
}
