package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"
)

func TestSentence(t *testing.T) {
	inner := errors.New("swarm: listen on [::]:1: taken")
	for _, tt := range []struct {
		err  error
		want string
	}{
		{errors.New("plain"), "plain"},
		{fmt.Errorf("%w: devices names cuda:9", errors.New("devices: no such device")), "no such device: devices names cuda:9"},
		{fmt.Errorf("bench devices: %w", fmt.Errorf("%w: devices names cuda:9", errors.New("devices: no such device"))), "bench devices: no such device: devices names cuda:9"},
		{fmt.Errorf("dataset: read text a.go: %w", context.Canceled), "interrupted before it was done"},
		{fmt.Errorf("node: join: %w", inner), "join: listen on [::]:1: taken"},
		{fmt.Errorf("node: swarm: join: %w", inner), "join: listen on [::]:1: taken"},
		{errors.Join(inner, errors.New("node: close"), inner), "listen on [::]:1: taken; close"},
		{fmt.Errorf("%w: %w", errors.New("node: no way in"), inner), "no way in: listen on [::]:1: taken"},
		{fmt.Errorf("node: read: %w", &fs.PathError{Op: "open", Path: "swarm", Err: fs.ErrNotExist}), "read: open swarm: file does not exist"},
		{fmt.Errorf("dataset: node: %w", fs.ErrNotExist), "file does not exist"}, // as good as it gets: the file's error names it
		{fmt.Errorf("shard: make s: %w", &fs.PathError{Op: "open", Path: "s", Err: syscall.EACCES}), "make s: open s: permission denied; give this user the right to it, or name another"},
		{fmt.Errorf("config: %w; ask its user", syscall.EACCES), "permission denied; ask its user"},
		{fmt.Errorf("shard: write s: %w", syscall.ENOSPC), "write s: no space left on device; free space on that disk, or name a folder on another one"},
		{fmt.Errorf("checkpoint: disk full: 3 wanted: %w", syscall.ENOSPC), "disk full: 3 wanted: no space left on device"},
		{&fs.PathError{Op: "mkdir", Path: "s", Err: syscall.EROFS}, "mkdir s: read-only file system; name a folder on a disk that can be written to"},
		{errors.New("local: one:\n  * two\n  * two\n"), "one:; * two"},
	} {
		if got := sentence(tt.err); got != tt.want {
			t.Errorf("%q\n got %q\nwant %q", tt.err, got, tt.want)
		}
	}
}
