package checkpoint

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"lukechampine.com/blake3"
)

func BenchmarkPutChunk(b *testing.B) {
	s := openStore(b, b.TempDir(), Options{})
	data := noise(1, ChunkBytes)
	b.SetBytes(ChunkBytes)
	for i := uint64(0); b.Loop(); i++ {
		binary.LittleEndian.PutUint64(data, i)
		put(b, s, data)
	}
}

// BenchmarkPutBehind puts chunks as a change of plan does, which waits for no disk.
func BenchmarkPutBehind(b *testing.B) {
	s := openStore(b, b.TempDir(), Options{})
	w := s.BeginBehind()
	defer w.Abort()
	data := noise(1, ChunkBytes)
	b.SetBytes(ChunkBytes)
	for i := uint64(0); b.Loop(); i++ {
		binary.LittleEndian.PutUint64(data, i)
		if _, err := w.PutChunk(data); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPlainFile writes and syncs a file, as PutChunk does among other things.
func BenchmarkPlainFile(b *testing.B) {
	dir := b.TempDir()
	data := noise(1, ChunkBytes)
	b.SetBytes(ChunkBytes)
	for i := 0; b.Loop(); i++ {
		f, err := os.Create(filepath.Join(dir, strconv.Itoa(i)))
		if err != nil {
			b.Fatal(err)
		}
		_, err = f.Write(data)
		if err == nil {
			err = f.Sync()
		}
		if e := f.Close(); err != nil || e != nil {
			b.Fatal(err, e)
		}
	}
}

func BenchmarkChunk(b *testing.B) {
	s := openStore(b, b.TempDir(), Options{})
	h := put(b, s, noise(1, ChunkBytes))
	b.SetBytes(ChunkBytes)
	for b.Loop() {
		if _, err := s.Chunk(h); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHash(b *testing.B) {
	data := noise(1, ChunkBytes)
	b.SetBytes(ChunkBytes)
	for b.Loop() {
		blake3.Sum256(data)
	}
}

func BenchmarkBucketWrite(b *testing.B) {
	s := openStore(b, b.TempDir(), Options{})
	bucket := s.Bucket("log")
	value := noise(1, 200)
	for i := uint64(0); b.Loop(); i++ {
		if err := bucket.Write([]Op{{Key: binary.BigEndian.AppendUint64(nil, i), Value: value}}); err != nil {
			b.Fatal(err)
		}
	}
}
