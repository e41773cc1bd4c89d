package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"pnode/checkpoint"
	"pnode/checkpoint/disk"
)

const (
	// recordFile is in a folder that Pull makes, and says of which commit.
	recordFile = "hub.json"
	// partialSuffix is behind the name of a folder that is being made.
	partialSuffix  = ".partial"
	maxRecordBytes = 64 << 10
)

// record is the content of recordFile.
type record struct {
	Repo   string `json:"repo"`
	Commit string `json:"commit"`
}

// Progress is how far a download is.
type Progress struct {
	File string
	// DoneBytes of TotalBytes, ResumedBytes of them by an earlier call.
	DoneBytes, TotalBytes, ResumedBytes int64
}

// Options of Pull.
type Options struct {
	// Dir is the folder to make; empty is one for the commit under Cache.
	Dir string
	// Cache is where downloaded models are.
	Cache string
	// Config, if any, is shown config.json before the weights are fetched. Its error ends the download.
	Config func(text []byte) error
	// Progress, if any, is told now and then.
	Progress func(Progress)
	// Retrying, if any, is told before each wait for another try.
	Retrying func(Retry)
}

// Retry says why the hub is asked again, and after which time.
type Retry struct {
	Why  error
	Wait time.Duration
	// Left are the tries that follow before an error is given, while none brings anything.
	Left int
}

// Pulled is a model that is here.
type Pulled struct {
	Dir    string
	Commit string
	// Bytes of it that came over the network in this call.
	Bytes int64
}

// cached returns the folder of a commit that is in the cache, without asking anyone. Other revisions may mean another commit by now.
func cached(ref Ref, cache string) (dir string, ok bool) {
	dir = cacheDir(ref.Repo, ref.Revision, cache)
	return dir, ref.isCommit() && holds(dir, ref.Repo, ref.Revision)
}

// otherCommit says what to do about a listing of a commit that was not asked for.
func (c *Client) otherCommit(ref Ref, listed string) error {
	if ref.isBeginning() { // a branch or a tag may be named like this, such as a date
		return fmt.Errorf("%w: a commit that begins with %s was asked for, and %s lists %s: name all 40 digits of it; if a branch or tag of that name is meant, those of %s",
			ErrBadAnswer, ref.Revision, c.endpoint, listed, Ref{ref.Repo, listed})
	}
	return fmt.Errorf("%w: commit %s was asked for, and %s lists %s: name another mirror in %s, or none", ErrBadAnswer, ref.Revision, c.endpoint, listed, EndpointEnv)
}

// Newest returns the folder of a model in the cache, without asking anyone: of the commit that came last, or of the last one that the revision
// allows where it is a commit or begins one.
func Newest(ref Ref, cache string) (dir string, ok bool) {
	if ref.isCommit() {
		return cached(ref, cache)
	}
	entries, err := os.ReadDir(filepath.Dir(cacheDir(ref.Repo, "x", cache)))
	if err != nil {
		return "", false
	}
	var newest time.Time
	for _, e := range entries {
		at := cacheDir(ref.Repo, e.Name(), cache)
		info, err := e.Info()
		if err == nil && commitPattern.MatchString(e.Name()) && ref.allows(e.Name()) && holds(at, ref.Repo, e.Name()) && (!ok || info.ModTime().After(newest)) {
			dir, ok, newest = at, true, info.ModTime()
		}
	}
	return dir, ok
}

func cacheDir(repo, commit, cache string) string {
	return filepath.Join(cache, strings.ReplaceAll(repo, "/", "--"), commit)
}

// holds reports whether a folder is a whole download of a commit.
func holds(dir, repo, commit string) bool {
	st, err := os.Stat(filepath.Join(dir, recordFile))
	if err != nil || st.Size() > maxRecordBytes {
		return false
	}
	text, err := os.ReadFile(filepath.Join(dir, recordFile))
	var r record
	return err == nil && json.Unmarshal(text, &r) == nil && r == record{repo, commit}
}

// Pull brings a model here. When it is interrupted, the same call goes on with what came. Errors name the model and wrap those of this
// package, checkpoint.ErrDiskFull, checkpoint.ErrLocked, checkpoint.ErrOccupied or the cause.
func (c *Client) Pull(ctx context.Context, ref Ref, o Options) (Pulled, error) {
	telling := *c
	telling.retrying = o.Retrying
	p, err := telling.pull(ctx, ref, o)
	if err != nil {
		return p, fmt.Errorf("hub: %v: %w", ref, err)
	}
	return p, nil
}

func (c *Client) pull(ctx context.Context, ref Ref, o Options) (Pulled, error) {
	if dir, ok := cached(ref, o.Cache); ok && o.Dir == "" {
		return Pulled{Dir: dir, Commit: ref.Revision}, nil
	}
	l, err := c.list(ctx, ref)
	if err != nil {
		return Pulled{}, err
	}
	if !ref.allows(l.commit) {
		return Pulled{}, c.otherCommit(ref, l.commit)
	}
	p := Pulled{Dir: o.Dir, Commit: l.commit}
	if p.Dir == "" {
		p.Dir = cacheDir(ref.Repo, l.commit, o.Cache)
	}
	p.Dir = filepath.Clean(p.Dir)
	if holds(p.Dir, ref.Repo, l.commit) {
		return p, nil
	}
	if entries, err := os.ReadDir(p.Dir); err == nil && len(entries) > 0 {
		return p, fmt.Errorf("%w: %s holds %s: name a new folder, or an empty one", checkpoint.ErrOccupied, p.Dir, entries[0].Name())
	}
	release, err := checkpoint.Lock(p.Dir + ".lock")
	if err != nil {
		return p, err
	}
	defer release()
	w := work{client: c, ref: Ref{ref.Repo, l.commit}, listing: l, dir: p.Dir + partialSuffix, options: o}
	if err := w.run(ctx); err != nil {
		return p, err
	}
	p.Bytes = w.progress.DoneBytes - w.progress.ResumedBytes
	if err := os.Remove(p.Dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // it is empty
		return p, err
	}
	return p, os.Rename(w.dir, p.Dir)
}

// work fills one folder.
type work struct {
	client   *Client
	ref      Ref
	listing  listing
	dir      string
	options  Options
	progress Progress
}

func (w *work) run(ctx context.Context) error {
	if err := os.MkdirAll(w.dir, 0o777); err != nil {
		return err
	}
	if err := w.begin(); err != nil {
		return err
	}
	w.progress.TotalBytes = w.listing.bytes()
	if err := w.room(); err != nil {
		return err
	}
	for _, f := range w.listing.files {
		w.progress.File = f.name
		d := download{client: w.client, ref: w.ref, file: f, path: filepath.Join(w.dir, f.name), came: w.came, had: w.had}
		if err := d.fetch(ctx); err != nil {
			return w.explain(err)
		}
		if f.name == "config.json" && w.options.Config != nil {
			text, err := readSmall(w.dir, f.name)
			if err == nil {
				err = w.options.Config(text)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// begin takes what an earlier call left, if that was of the same commit.
func (w *work) begin() error {
	path := filepath.Join(w.dir, recordFile)
	text, err := os.ReadFile(path)
	var r record
	if err == nil && json.Unmarshal(text, &r) == nil && r == (record{w.ref.Repo, w.ref.Revision}) {
		return nil
	}
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		if r == (record{}) {
			return fmt.Errorf("%w: %s holds %s: remove it", checkpoint.ErrOccupied, w.dir, entries[0].Name())
		}
		if err := os.RemoveAll(w.dir); err != nil { // another commit's
			return err
		}
		if err := os.Mkdir(w.dir, 0o777); err != nil {
			return err
		}
	}
	text, err = json.Marshal(record{w.ref.Repo, w.ref.Revision})
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o666)
}

// room looks whether the disk has room for what is missing.
func (w *work) room() error {
	missing := w.progress.TotalBytes
	for _, f := range w.listing.files {
		for _, name := range []string{f.name, f.name + partSuffix} {
			if st, err := os.Stat(filepath.Join(w.dir, name)); err == nil {
				missing -= min(st.Size(), f.size)
				break
			}
		}
	}
	free, err := disk.FreeBytes(w.dir)
	if err != nil || missing+checkpoint.DefaultReserveBytes <= free { // where nothing tells, the writes will
		return nil
	}
	return fmt.Errorf("%w: %.1f MB are missing of it, and %s has %.1f MB free, of which %.1f stay: free space there, or name a folder on another disk with --dir",
		checkpoint.ErrDiskFull, float64(missing)/1e6, w.dir, float64(free)/1e6, float64(checkpoint.DefaultReserveBytes)/1e6)
}

func (w *work) explain(err error) error {
	return checkpoint.RoomAt(w.dir).Explain(err, w.progress.TotalBytes)
}

// had counts bytes that were here before.
func (w *work) had(bytes int64) {
	w.progress.ResumedBytes += bytes
	w.came(bytes)
}

// came counts bytes.
func (w *work) came(bytes int64) {
	w.progress.DoneBytes += bytes
	if w.options.Progress != nil {
		w.options.Progress(w.progress)
	}
}
