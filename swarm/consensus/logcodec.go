package consensus

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/hashicorp/raft"

	"pnode/swarm/version"
)

// A log record: checksum (4 bytes, CRC-32C of the rest), version, type, index, term,
// time of append in ns, length of the data, data, extensions. Little-endian.
const (
	recordVersion = 1
	recordHeader  = 4 + 1 + 1 + 8 + 8 + 8 + 4
	// maxRecordBytes bounds a record: an entry, or raft's own configuration entry.
	maxRecordBytes = recordHeader + MaxEntryBytes + 64<<10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encodeLog(l *raft.Log) []byte {
	b := make([]byte, recordHeader, recordHeader+len(l.Data)+len(l.Extensions))
	b[4], b[5] = recordVersion, byte(l.Type)
	le := binary.LittleEndian
	le.PutUint64(b[6:], l.Index)
	le.PutUint64(b[14:], l.Term)
	if !l.AppendedAt.IsZero() {
		le.PutUint64(b[22:], uint64(l.AppendedAt.UnixNano()))
	}
	le.PutUint32(b[30:], uint32(len(l.Data)))
	b = append(append(b, l.Data...), l.Extensions...)
	le.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
	return b
}

// decodeLog reads a record into l, which keeps nothing of b.
func decodeLog(b []byte, l *raft.Log) error {
	if len(b) < recordHeader || len(b) > maxRecordBytes {
		return fmt.Errorf("%w log record: %d bytes", ErrMalformed, len(b))
	}
	le := binary.LittleEndian
	if got, want := crc32.Checksum(b[4:], castagnoli), le.Uint32(b); got != want {
		return fmt.Errorf("%w: log record has checksum %08x, want %08x", ErrCorrupt, got, want)
	}
	if b[4] != recordVersion {
		return fmt.Errorf("%w: %w", ErrMalformed, version.Unknown("a log record", int(b[4]), recordVersion))
	}
	body, n := b[recordHeader:], le.Uint32(b[30:])
	if uint64(n) > uint64(len(body)) {
		return fmt.Errorf("%w log record: data of %d bytes in %d", ErrMalformed, n, len(body))
	}
	*l = raft.Log{Type: raft.LogType(b[5]), Index: le.Uint64(b[6:]), Term: le.Uint64(b[14:])}
	if ns := le.Uint64(b[22:]); ns != 0 {
		l.AppendedAt = time.Unix(0, int64(ns))
	}
	l.Data = append(l.Data, body[:n]...)
	l.Extensions = append(l.Extensions, body[n:]...)
	return nil
}
