package ledger

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// fillingDisk takes a few bytes of each write.
type fillingDisk struct{ *os.File }

func (d fillingDisk) Write(b []byte) (int, error) {
	n, err := d.File.Write(b[:min(len(b), 7)])
	return n, errors.Join(err, syscall.ENOSPC)
}

// TestAFullDiskLeavesNoPartOfARecord: once there is room again the audit finds steps that are missing, and no damage.
func TestAFullDiskLeavesNoPartOfARecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	head, entry := appendJSON(nil, kindHead, Head{Run: "run", Peer: "a"}), appendEntry(nil, 7, CommitOf(1, 2, 3))
	if err := appendWhole(f, head); err != nil {
		t.Fatal(err)
	}
	if err := appendWhole(fillingDisk{f}, entry); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("a full disk: %v", err)
	}
	if err := appendWhole(f, head); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if want := append(head, head...); err != nil || string(b) != string(want) {
		t.Errorf("the ledger has %d bytes, %v, want the %d of the records that were written whole", len(b), err, len(want))
	}
}
