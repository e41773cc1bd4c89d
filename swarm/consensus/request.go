package consensus

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"pnode/planner/plan"
)

// A request: streamRequest, operation, hops left, length (4 bytes, little-endian), body.
// A response: code, length (4 bytes), body.
const (
	opPropose = 1 // body: an entry. Carried out by the leader
	opApplied = 2 // no body. The response holds the index applied last, 8 bytes
	opVouch   = 3 // body: a voucher without signatures. The response holds the peer's VoterMark
	opLook    = 4 // no body. The response holds the peer's Look
	opRecover = 5 // body: a Recovery without signatures. The response holds the peer's VoterMark
	opAdopt   = 6 // body: a Recovery, which the peer is to change over to
	opLineage = 7 // no body. The response holds the Recovery of the peer's lineage, null for the first

	codeDone     = 1
	codeRejected = 2 // body: the reason
	codeStale    = 3 // as rejected, with ErrStale
	codeRetry    = 4 // body: why it may work later

	maxResponseBytes = maxRecoveryBytes
	requestTimeout   = 5 * time.Second
)

type request struct {
	op, hops byte
	body     []byte
}

type response struct {
	code byte
	body []byte
}

// errRetry marks failures after which the proposal is tried again.
var errRetry = errors.New("not answered by a leader")

// answer turns an outcome into a response.
func answer(err error) response {
	switch {
	case err == nil:
		return response{code: codeDone}
	case errors.Is(err, errIncarnation):
		return response{codeRetry, []byte(err.Error())}
	case errors.Is(err, ErrStale):
		return response{codeStale, []byte(err.Error())}
	case errors.Is(err, ErrRejected):
		return response{codeRejected, []byte(err.Error())}
	}
	return response{codeRetry, []byte(err.Error())}
}

// err turns a response back into the outcome.
func (r response) err() error {
	text := plan.Clip(string(r.body), maxResponseBytes)
	switch r.code {
	case codeDone:
		return nil
	case codeStale:
		return &remoteError{text, []error{ErrRejected, ErrStale}}
	case codeRejected:
		return &remoteError{text, []error{ErrRejected}}
	}
	return &remoteError{text, []error{errRetry}}
}

// remoteError is another node's error, with the sentinels it wraps.
type remoteError struct {
	text string
	is   []error
}

func (e *remoteError) Error() string   { return e.text }
func (e *remoteError) Unwrap() []error { return e.is }

func appendRequest(b []byte, r request) []byte {
	b = append(b, r.op, r.hops)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.body)))
	return append(b, r.body...)
}

// readRequest reads a request after its streamRequest byte.
func readRequest(r io.Reader) (request, error) {
	var h [2]byte
	if _, err := io.ReadFull(r, h[:1]); err != nil {
		return request{}, fmt.Errorf("consensus: read request: %w", err)
	}
	most := map[byte]uint32{opPropose: MaxEntryBytes + maxProposalHeader, opVouch: maxVoucherBytes, opRecover: maxRecoveryBytes, opAdopt: maxRecoveryBytes}
	body, err := readMessage(r, h[1:], most[h[0]])
	if err == nil && (h[0] < opPropose || h[0] > opLineage || h[1] > 1) {
		err = fmt.Errorf("%w request: operation %d, %d hops", ErrMalformed, h[0], h[1])
	}
	return request{op: h[0], hops: h[1], body: body}, err
}

func appendResponse(b []byte, r response) []byte {
	return appendSized(append(b, r.code), r.body[:min(len(r.body), maxResponseBytes)])
}

// appendSized appends what readMessage reads: a length and so many bytes.
func appendSized(b, body []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(body))), body...)
}

func readResponse(r io.Reader) (response, error) {
	var h [1]byte
	body, err := readMessage(r, h[:], maxResponseBytes)
	if err == nil && (h[0] < codeDone || h[0] > codeRetry) {
		err = fmt.Errorf("%w response: code %d", ErrMalformed, h[0])
	}
	return response{h[0], body}, err
}

// readMessage fills header and reads the body after it, of at most so many bytes, allocating as
// they come.
func readMessage(r io.Reader, header []byte, most uint32) (body []byte, err error) {
	var size uint32
	if _, err = io.ReadFull(r, header); err == nil {
		err = binary.Read(r, binary.LittleEndian, &size)
	}
	if err == nil && size > most {
		return nil, fmt.Errorf("%w message: %d bytes, at most %d", ErrMalformed, size, most)
	}
	if err == nil {
		body, err = io.ReadAll(io.LimitReader(r, int64(size)))
	}
	if err == nil && len(body) != int(size) {
		return nil, fmt.Errorf("%w message: %d of %d bytes", ErrMalformed, len(body), size)
	}
	if err != nil {
		return nil, fmt.Errorf("consensus: read message: %w", err)
	}
	return body, nil
}

// ask sends one request to a peer, within requestTimeout.
func (n *Node) ask(ctx context.Context, peer plan.PeerID, q request) (response, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	s, err := n.config.Transport.Open(ctx, peer)
	if err != nil {
		return response{}, fmt.Errorf("consensus: ask %s: %w", peer, err)
	}
	defer s.Close()
	stop := context.AfterFunc(ctx, func() { s.Reset() })
	defer stop()
	if _, err := s.Write(appendRequest([]byte{streamRequest}, q)); err != nil {
		return response{}, fmt.Errorf("consensus: ask %s: %w", peer, err)
	}
	r, err := readResponse(s)
	if err != nil {
		return response{}, fmt.Errorf("consensus: ask %s: %w", peer, err)
	}
	return r, nil
}
