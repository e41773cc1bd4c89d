// Package tfevents writes scalars in the form of TensorBoard's event files.
//
// An event file is a sequence of TFRecords, each of which holds a protocol buffer:
//
//	uint64 length, uint32 masked CRC of the length, the bytes, uint32 masked CRC of the bytes   (all little-endian)
//
// The CRC is CRC-32C, and masked by a rotation and a constant, since CRCs of data that holds CRCs are weak
// (tensorflow/core/lib/hash/crc32c.h, and https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details).
// The messages are Event, Summary and SessionLog of tensorflow/core/util/event.proto and tensorflow/core/framework/summary.proto; the
// few fields that are written have their numbers below. A scalar is a simple_value, as TensorFlow 1 and PyTorch write it.
//
// Every file begins with the version of its form. Then follows the start of a session with the first step of what comes: TensorBoard
// drops from there on what older files of the folder say, as those steps are done again (purge_orphaned_data in
// tensorboard/backend/event_processing/event_accumulator.py).
//
// The package keeps no state and does no input or output. It is the only importer of protocol buffers besides the libraries that need
// them.
package tfevents

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Numbers of the fields that are written.
const (
	eventWallTime    = 1 // double, seconds since 1970
	eventStep        = 2 // int64
	eventFileVersion = 3 // string
	eventSummary     = 5 // Summary
	eventSessionLog  = 7 // SessionLog

	summaryValue = 1 // repeated Summary.Value

	valueTag    = 1 // string
	valueSimple = 2 // float

	sessionStatus = 1 // enum
	sessionStart  = 1 // SessionLog.START
)

// fileVersion is the form that TensorBoard expects.
const fileVersion = "brain.Event:2"

// Scalar is a value of a series.
type Scalar struct {
	Tag   string
	Value float64
}

// AppendHeader appends the record that opens a file.
func AppendHeader(dst []byte, at time.Time) []byte {
	event := protowire.AppendTag(appendTime(nil, at), eventFileVersion, protowire.BytesType)
	return appendRecord(dst, protowire.AppendString(event, fileVersion))
}

// AppendStart appends the start of a session: what was written before of this step and later ones does not count any more.
func AppendStart(dst []byte, at time.Time, step uint64) []byte {
	session := protowire.AppendVarint(protowire.AppendTag(nil, sessionStatus, protowire.VarintType), sessionStart)
	event := protowire.AppendTag(appendStep(appendTime(nil, at), step), eventSessionLog, protowire.BytesType)
	return appendRecord(dst, protowire.AppendBytes(event, session))
}

// AppendScalars appends the values of a step in one record.
func AppendScalars(dst []byte, at time.Time, step uint64, scalars []Scalar) []byte {
	var summary []byte
	for _, s := range scalars {
		value := protowire.AppendString(protowire.AppendTag(nil, valueTag, protowire.BytesType), s.Tag)
		value = protowire.AppendFixed32(protowire.AppendTag(value, valueSimple, protowire.Fixed32Type), math.Float32bits(float32(s.Value)))
		summary = protowire.AppendBytes(protowire.AppendTag(summary, summaryValue, protowire.BytesType), value)
	}
	event := protowire.AppendTag(appendStep(appendTime(nil, at), step), eventSummary, protowire.BytesType)
	return appendRecord(dst, protowire.AppendBytes(event, summary))
}

func appendTime(dst []byte, at time.Time) []byte {
	seconds := float64(at.UnixMicro()) / 1e6
	return protowire.AppendFixed64(protowire.AppendTag(dst, eventWallTime, protowire.Fixed64Type), math.Float64bits(seconds))
}

func appendStep(dst []byte, step uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(dst, eventStep, protowire.VarintType), step)
}

// appendRecord appends a TFRecord.
func appendRecord(dst, data []byte) []byte {
	var length [8]byte
	binary.LittleEndian.PutUint64(length[:], uint64(len(data)))
	dst = append(dst, length[:]...)
	dst = binary.LittleEndian.AppendUint32(dst, maskedCRC(length[:]))
	dst = append(dst, data...)
	return binary.LittleEndian.AppendUint32(dst, maskedCRC(data))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// maskedCRC returns the masked CRC-32C of some bytes.
func maskedCRC(data []byte) uint32 {
	crc := crc32.Checksum(data, castagnoli)
	return (crc>>15 | crc<<17) + 0xa282ead8
}
