package hub

import (
	"context"
	"crypto/sha1" //nolint:gosec // git's own sums are to be checked, not secrets
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// partSuffix is behind the name of a file that is not whole.
const partSuffix = ".part"

var sha256Pattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// download is one file on its way.
type download struct {
	client *Client
	ref    Ref // with a commit
	file   file
	path   string // when it is whole
	// came is told of bytes over the network, had of those that were here; negative ones are given up.
	came, had func(bytes int64)

	part *os.File
	have int64 // bytes in part
	kept int64 // of them of an earlier call
	most int64 // that have ever been: only more than that is progress
	sum  hash.Hash
	ever bool // a request was answered: the checksum is known if there is one
}

// fetch makes the file, out of what is there of it and the rest. The error wraps ErrChecksum, ErrBadAnswer, or is that of the connection
// or the disk.
func (d *download) fetch(ctx context.Context) (err error) {
	if st, err := os.Lstat(d.path); err == nil && st.Mode().IsRegular() && st.Size() == d.file.size { // checked before it got its name
		d.had(d.file.size)
		return nil
	}
	d.part, err = os.OpenFile(d.path+partSuffix, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.part.Close()) }()
	for attempt := 1; ; attempt++ {
		if err := d.resume(); err != nil {
			return err
		}
		if err := d.client.again(ctx, d.ask); err != nil {
			return d.client.explain(d.ref, err)
		}
		err := d.check()
		if err == nil {
			break
		}
		if e := d.restart(); e != nil {
			return e
		}
		if attempt == 2 { // not what an earlier call left
			return err
		}
	}
	if err := d.part.Sync(); err != nil {
		return err
	}
	return os.Rename(d.path+partSuffix, d.path)
}

// resume adds up what is there.
func (d *download) resume() error {
	d.sum = d.newSum()
	if _, err := d.part.Seek(0, io.SeekStart); err != nil {
		return err
	}
	n, err := io.Copy(d.sum, d.part)
	if err == nil && n > d.file.size {
		return d.restart() // nothing is counted yet
	}
	d.have, d.kept = n, n
	d.had(n)
	return err
}

// newSum begins the checksum that is known of the file.
func (d *download) newSum() hash.Hash {
	if d.file.sha256 == "" && d.file.sha1 != "" {
		h := sha1.New() //nolint:gosec // as git does
		fmt.Fprintf(h, "blob %d\x00", d.file.size)
		return h
	}
	return sha256.New()
}

// restart gives up what is there.
func (d *download) restart() error {
	d.had(-d.kept)
	d.came(d.kept - d.have)
	d.have, d.kept, d.sum = 0, 0, d.newSum()
	if err := d.part.Truncate(0); err != nil {
		return err
	}
	_, err := d.part.Seek(0, io.SeekStart)
	return err
}

// ask asks once for what is missing, and reports whether something came.
func (d *download) ask(ctx context.Context) (brought bool, err error) {
	if d.have == d.file.size && (d.have > 0 || d.ever) {
		return false, nil
	}
	ctx, body, stop := watch(ctx)
	defer stop()
	at := d.client.endpoint.JoinPath(d.ref.Repo, "resolve", d.ref.Revision, d.file.name)
	a, err := d.client.get(ctx, at, d.have)
	no := (*refusal)(nil)
	if errors.As(err, &no) && no.status == http.StatusRequestedRangeNotSatisfiable {
		return false, errors.Join(errors.New("there is no rest of the file to get: again from its beginning"), d.restart())
	}
	if err != nil {
		return false, cause(ctx, err)
	}
	defer func() { _ = a.Body.Close() }()
	if err := d.accept(a); err != nil {
		return false, err
	}
	n, err := io.Copy(io.MultiWriter(diskWriter{d.part}, d.sum, counting(d.came)), io.LimitReader(body(a.Body), d.file.size-d.have+1))
	d.have += n
	switch {
	case d.have > d.file.size:
		return false, final{errors.Join(fmt.Errorf("%w: %s is longer than the %d bytes that it should have", ErrBadAnswer, d.file.name, d.file.size), d.restart())}
	case err == nil && d.have < d.file.size:
		err = fmt.Errorf("%s: the connection ended after %d of %d bytes", d.file.name, d.have, d.file.size)
	}
	brought = d.have > d.most
	d.most = max(d.most, d.have)
	return brought, cause(ctx, err)
}

// cause adds why a request was ended from here.
func cause(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errSilent) {
		return fmt.Errorf("%w (%v)", errSilent, err) //nolint:errorlint // it says that this end has cancelled, which is no one's wish
	}
	return err
}

// accept looks at an answer before its body: that it is of the commit, and where it begins.
func (d *download) accept(a answer) error {
	if a.commit != "" && a.commit != d.ref.Revision {
		return final{fmt.Errorf("%w: %s of commit %.50q, want %s", ErrBadAnswer, d.file.name, a.commit, d.ref.Revision)}
	}
	if d.file.sha256 == "" && d.file.sha1 == "" && !d.ever { // the list had none
		switch {
		case sha256Pattern.MatchString(a.sum):
			d.file.sha256 = a.sum
		case commitPattern.MatchString(a.sum):
			d.file.sha1 = a.sum
		default:
			return final{d.unchecked()}
		}
		d.ever = true
		if d.have > 0 { // its sum may have been of another kind
			if err := d.resumeSilently(); err != nil {
				return final{err}
			}
		} else {
			d.sum = d.newSum()
		}
	}
	d.ever = true
	if d.have == 0 {
		return nil
	}
	if a.StatusCode == http.StatusOK { // the server knows no ranges
		if err := d.restart(); err != nil {
			return final{err}
		}
		return nil
	}
	if want := fmt.Sprintf("bytes %d-%d/%d", d.have, d.file.size-1, d.file.size); a.Header.Get("Content-Range") != want {
		return final{errors.Join(fmt.Errorf("%w: range %.60q of %s, want %q", ErrBadAnswer, a.Header.Get("Content-Range"), d.file.name, want), d.restart())}
	}
	return nil
}

// resumeSilently is resume for bytes that have been told of.
func (d *download) resumeSilently() error {
	d.had(-d.kept)
	d.came(d.kept - d.have)
	d.have, d.kept = 0, 0
	return d.resume()
}

// check compares the size and the checksum.
func (d *download) check() error {
	got, want := hex.EncodeToString(d.sum.Sum(nil)), d.file.sha256
	if want == "" {
		want = d.file.sha1
	}
	if want == "" { // an earlier call left all of it, so that no answer has named a sum
		return d.unchecked()
	}
	if !strings.EqualFold(got, want) {
		return fmt.Errorf("%w: %s is %s, want %s: it was changed on its way; try another network, or without %s", ErrChecksum, d.file.name, got, want, EndpointEnv)
	}
	return nil
}

// unchecked is the error for a file of which nobody says what it has to be.
func (d *download) unchecked() error {
	return fmt.Errorf("%w: %s says no checksum of %s: name another mirror in %s, or none", ErrBadAnswer, d.client.endpoint, d.file.name, EndpointEnv)
}

// counting tells of bytes that are written to it.
type counting func(bytes int64)

func (c counting) Write(p []byte) (int, error) {
	c(int64(len(p)))
	return len(p), nil
}

// diskWriter marks errors of the disk: to ask again would not help.
type diskWriter struct{ file *os.File }

func (w diskWriter) Write(p []byte) (int, error) {
	n, err := w.file.Write(p)
	if err != nil {
		err = final{err}
	}
	return n, err
}

// readSmall reads a file that was fetched.
func readSmall(dir, name string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}
