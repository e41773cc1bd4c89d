package seals

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"pnode/pipeline/compress"
	"pnode/pipeline/meeting"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// MaxExhibitBytes bounds an encoded Exhibit.
const MaxExhibitBytes = 4 + wire.MaxOuterReportBytes + wire.SealBytes + wire.MaxOuterHaveBytes

// Exhibit has what a coordinator shows of a replica's messages of a round.
type Exhibit struct {
	// Report is the encoded wire.OuterReport, Seal the one under it.
	Report []byte
	Seal   wire.Seal
	// Layers are of the layers that have messages, in order.
	Layers []wire.Sealed
}

// Sum returns plan.Part.Sum of what is shown.
func (e Exhibit) Sum() plan.Hash {
	hashes := make([]plan.Hash, len(e.Layers))
	for i, s := range e.Layers {
		hashes[i] = s.Hash
	}
	return meeting.Sum(e.Report, hashes)
}

// SealSum returns plan.Contradiction.Seal of what is shown.
func (e Exhibit) SealSum() plan.Hash { return sha256.Sum256(e.Seal[:]) }

// Append appends the exhibit: the length of the report, 32 bits, the report and its seal, and the layers as in wire.OuterHave.
func (e Exhibit) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(e.Report)))
	dst = append(append(dst, e.Report...), e.Seal[:]...)
	return wire.AppendOuterHave(dst, e.Layers)
}

// Decode reads an exhibit that fills b exactly, and keeps parts of b.
func Decode(b []byte) (e Exhibit, err error) {
	if len(b) < 4 {
		return e, fmt.Errorf("seals: %w: an exhibit of %d bytes", wire.ErrLength, len(b))
	}
	n, b := binary.LittleEndian.Uint32(b), b[4:]
	if n > wire.MaxOuterReportBytes || len(b) < int(n)+wire.SealBytes {
		return e, fmt.Errorf("seals: %w: a report of %d bytes in %d, want at most %d and a seal", wire.ErrLength, n, len(b), wire.MaxOuterReportBytes)
	}
	e.Report, b = b[:n:n], b[n:]
	e.Seal, b = wire.Seal(b), b[wire.SealBytes:]
	e.Layers, err = wire.DecodeOuterHave(b)
	return e, err
}

// Shows returns why an exhibit does not show what a replica's coordinator has told the log of a replica; nil if it does.
func (r Round) Shows(k Keys, e Exhibit, of plan.Replica, said plan.Part) error {
	report, err := wire.DecodeOuterReport(e.Report)
	switch layers := r.layers(); {
	case err != nil:
		return fmt.Errorf("seals: %w", err)
	case report.Steps() != said.Steps || len(e.Layers) != len(layers):
		return fmt.Errorf("seals: %d steps and %d layers are shown, of %d and %d", report.Steps(), len(e.Layers), said.Steps, len(layers))
	case e.Sum() != said.Sum:
		return fmt.Errorf("seals: the log has another sum than that of what is shown")
	default:
		for i, layer := range layers {
			if err := r.Check(k, Message{of, layer}, e.Layers[i]); err != nil {
				return fmt.Errorf("layer %d: %w", layer, err)
			}
		}
	}
	return r.Check(k, Message{of, Losses}, wire.Sealed{Hash: sha256.Sum256(e.Report), Seal: e.Seal})
}

// Twofold returns the members that have sealed two different messages of one name, in the order of their stages: what two exhibits of a replica prove
// that both show what the log has.
func (r Round) Twofold(a, b Exhibit, of plan.Replica) (peers []plan.PeerID) {
	add := func(m Message) {
		if p := r.Sender(m).Peer; !slices.Contains(peers, p) {
			peers = append(peers, p)
		}
	}
	for i, layer := range r.layers() {
		if a.Layers[i].Hash != b.Layers[i].Hash {
			add(Message{of, layer})
		}
	}
	if !slices.Equal(a.Report, b.Report) {
		add(Message{of, Losses})
	}
	return peers
}

// layers returns those of the model that have messages.
func (r Round) layers() (numbers []int) {
	codec, err := compress.Parse(r.Plan.Local.Codec)
	for l := range r.Run.Model.Layers() {
		if err == nil && meeting.MessageBytes(r.Run.Model, codec, l) > 0 { // the log has no plan with another codec
			numbers = append(numbers, l)
		}
	}
	return numbers
}
