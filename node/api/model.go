package api

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
)

// maxChunkBytes bounds a chunk of a run.
const maxChunkBytes = 4 << 20

// Model names the newest checkpoint of a run that goes on: the state of every layer, which begins with its parameters.
type Model struct {
	Step       plan.Step       `json:"step"`
	Generation plan.Generation `json:"generation"`
	// Layers has the layers of the run's model in order.
	Layers []plan.LayerInit `json:"layers"`
}

// Keeping says how far a node is that keeps the newest checkpoint of its run whole.
type Keeping struct {
	// Newest is the step of the run's newest checkpoint, Copy what the node has.
	Newest plan.Step      `json:"newest"`
	Copy   plan.WholeCopy `json:"copy"`
}

// chunkRequest asks for a chunk while the checkpoint of a step is read.
type chunkRequest struct {
	Step plan.Step `json:"step"`
	Hash plan.Hash `json:"hash"`
}

func (s *Server) model(w http.ResponseWriter, _ *http.Request) {
	m, err := s.options.Node.Model()
	s.answer(w, m, err)
}

func (s *Server) keep(w http.ResponseWriter, _ *http.Request) {
	k, err := s.options.Node.KeepWhole()
	s.answer(w, k, err)
}

func (s *Server) chunk(w http.ResponseWriter, r *http.Request) {
	var req chunkRequest
	body, err := io.ReadAll(r.Body) // bounded by authorize
	if err == nil {
		err = strict.Decode(body, &req)
	}
	if err != nil {
		s.reply(w, http.StatusBadRequest, errorReply{fmt.Sprintf("chunk request: %v", err)})
		return
	}
	var data []byte
	err = patiently(w, r, func(ctx context.Context) (err error) {
		data, err = s.options.Node.Chunk(ctx, req.Step, req.Hash)
		return err
	})
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if _, err := w.Write(data); err != nil {
		s.options.Log.Debug("api: chunk not written", "error", err)
	}
}

// Model asks for the newest checkpoint.
func (c *Client) Model(ctx context.Context) (Model, error) {
	var m Model
	err := c.call(ctx, http.MethodPost, "/v1/model", nil, &m)
	return m, err
}

// KeepWhole has the node keep the newest checkpoint whole from now on, and returns how far that is.
func (c *Client) KeepWhole(ctx context.Context) (Keeping, error) {
	var k Keeping
	err := c.call(ctx, http.MethodPost, "/v1/keep", nil, &k)
	return k, err
}

// Chunk asks for a chunk of the run while the checkpoint of a step is read.
func (c *Client) Chunk(ctx context.Context, step plan.Step, h plan.Hash) ([]byte, error) {
	body, err := c.do(ctx, http.MethodPost, "/v1/chunk", chunkRequest{step, h})
	if err != nil {
		return nil, err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, maxChunkBytes+1))
	if err == nil && len(data) > maxChunkBytes {
		err = fmt.Errorf("%w: a chunk of more than %d bytes", ErrUnreachable, maxChunkBytes)
	}
	return data, err
}
