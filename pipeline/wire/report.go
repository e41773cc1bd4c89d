package wire

import (
	"encoding/binary"
	"fmt"
	"math"

	"pnode/planner/plan"
)

// MaxReportEntries bounds the losses and, separately, the square sums of one report.
const MaxReportEntries = 1 << 17

const (
	reportFront = 4 + 4 + 16 // two counts, zeros
	entryBytes  = 4 + 8      // number, value
)

// MaxReportBytes is the size of the largest report.
const MaxReportBytes = reportFront + 2*MaxReportEntries*entryBytes

// ReportBytes returns the size of a report with so many losses and square sums.
func ReportBytes(losses, squares int) int { return reportFront + entryBytes*(losses+squares) }

// MicroLoss is the mean loss of one micro-batch in nats a token.
type MicroLoss struct {
	Micro plan.Micro
	Loss  float64
}

// PartSquare is the sum of squares of one part of a layer's reduced gradient. Parts are
// numbered layer by layer, as many of each layer whatever the number of replicas.
type PartSquare struct {
	Part int32
	Sum  float64
}

// Report goes from a worker to the coordinator when its gradients of a step are ready.
type Report struct {
	Losses     []MicroLoss
	SumSquares []PartSquare
}

// AppendReport appends the encoded report. What DecodeReport would refuse (too many
// entries, negative numbers) is refused there, by the receiver.
func AppendReport(dst []byte, r Report) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, uint32(len(r.Losses)))
	dst = le.AppendUint32(dst, uint32(len(r.SumSquares)))
	dst = append(dst, make([]byte, 16)...)
	for _, l := range r.Losses {
		dst = le.AppendUint32(dst, uint32(l.Micro))
		dst = le.AppendUint64(dst, math.Float64bits(l.Loss))
	}
	for _, s := range r.SumSquares {
		dst = le.AppendUint32(dst, uint32(s.Part))
		dst = le.AppendUint64(dst, math.Float64bits(s.Sum))
	}
	return dst
}

// DecodeReport reads a report that fills b exactly.
func DecodeReport(b []byte) (Report, error) {
	if len(b) < reportFront {
		return Report{}, fmt.Errorf("%w: report of %d bytes, want %d or more", ErrLength, len(b), reportFront)
	}
	le := binary.LittleEndian
	losses, squares := le.Uint32(b), le.Uint32(b[4:])
	if losses > MaxReportEntries || squares > MaxReportEntries {
		return Report{}, fmt.Errorf("%w: report of %d losses and %d square sums, at most %d are accepted",
			ErrLength, losses, squares, MaxReportEntries)
	}
	if want := ReportBytes(int(losses), int(squares)); len(b) != want {
		return Report{}, fmt.Errorf("%w: report of %d bytes, want %d", ErrLength, len(b), want)
	}
	if zeros := b[8:reportFront]; [16]byte(zeros) != [16]byte{} {
		return Report{}, fmt.Errorf("%w: report has %x in place of zeros", ErrValue, zeros)
	}
	var r Report
	b = b[reportFront:]
	for range losses {
		number, value, err := decodeEntry(b)
		if err != nil {
			return Report{}, err
		}
		r.Losses = append(r.Losses, MicroLoss{Micro: plan.Micro(number), Loss: value})
		b = b[entryBytes:]
	}
	for range squares {
		number, value, err := decodeEntry(b)
		if err != nil {
			return Report{}, err
		}
		r.SumSquares = append(r.SumSquares, PartSquare{Part: number, Sum: value})
		b = b[entryBytes:]
	}
	return r, nil
}

func decodeEntry(b []byte) (number int32, value float64, err error) {
	n := binary.LittleEndian.Uint32(b)
	if n > math.MaxInt32 {
		return 0, 0, fmt.Errorf("%w: report names number %d", ErrValue, n)
	}
	return int32(n), math.Float64frombits(binary.LittleEndian.Uint64(b[4:])), nil
}
