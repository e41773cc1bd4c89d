package node

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"pnode/swarm/twofold"
)

const (
	// epochFile holds the process epoch of a node's newest start.
	epochFile     = "epoch"
	maxEpochBytes = 32
	// epochRoom is the least distance of two process epochs: a process numbers its messages and proposals from its epoch
	// on, and sends fewer.
	epochRoom = 1 << 32
	// lastEpoch bounds process epochs: numbers up to 2^53 are exact in every JSON reader.
	lastEpoch = 1<<53 - 1
)

// nextEpoch returns the process epoch of a node that starts at time now, and keeps it in the node's folder. It is the
// clock, in microseconds, or more where the clock has been set back since an earlier start: the others take older numbers for
// repeated messages.
func nextEpoch(dir string, now time.Time) (uint64, error) {
	last, err := twofold.Read(dir, epochFile, maxEpochBytes, func(data []byte) (uint64, error) {
		return strconv.ParseUint(strings.TrimSpace(string(data)), 10, 53)
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, twofold.ErrDamaged) { // the clock is mostly right
		return 0, fmt.Errorf("node: read the number of the last start: %w", err)
	}
	epoch := uint64(max(now.UnixMicro(), 1))
	if err == nil {
		epoch = max(epoch, last+epochRoom)
	}
	if epoch > lastEpoch {
		return 0, fmt.Errorf("node: the clock of this machine says %s: set it right, delete the files %s and %s.copy in %s, and start the node again",
			now.Format(time.DateOnly), epochFile, epochFile, dir)
	}
	if err := twofold.Write(dir, epochFile, []byte(strconv.FormatUint(epoch, 10)+"\n")); err != nil {
		return 0, fmt.Errorf("node: keep the number of this start: %w", err)
	}
	return epoch, nil
}
