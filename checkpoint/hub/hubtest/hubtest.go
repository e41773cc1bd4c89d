// Package hubtest answers as the Hugging Face hub does, for tests.
package hubtest

import (
	"crypto/sha1" //nolint:gosec // as git does
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Commit names the one commit, which every branch points to.
const Commit = "0123456789abcdef0123456789abcdef01234567"

// Hub has one model, org/name. Large files are with another host, to which it redirects. Fields may be changed between requests.
type Hub struct {
	// URL is that of the hub; the other host is at CDN.
	URL, CDN string

	mu    sync.Mutex
	files map[string][]byte

	// Token is asked for, if any; Gated says so in the hub's words, and that the token's account has no access where Shut is set.
	Token       string
	Gated, Shut bool
	// LargeBytes is the size from which on a file is with the other host.
	LargeBytes int
	// Fail, if any, is called before a request is answered, with the host ("hub" or "cdn") and path; it returns a status to fail with, or 0.
	Fail func(host, path string) int
	// CutBytes ends each of the next Cuts answers of the other host after so many bytes.
	CutBytes, Cuts int
	// Change, if any, changes what a file's request gives.
	Change func(name string, content []byte) []byte
	// NoRanges has the other host answer with whole files; NoSums leaves sizes alone in the list, NoEtags sums out of answers with files.
	NoRanges, NoSums, NoEtags bool
	// AnyRevision has every revision be Commit, also the commits that it is not.
	AnyRevision bool

	requests []Request
}

// Request is one that was made.
type Request struct {
	Host, Path, Range string
	Authorization     string
}

// New starts a hub with these files, which ends with the test.
func New(t testing.TB, files map[string][]byte) *Hub {
	t.Helper()
	h := &Hub{files: files, LargeBytes: 1 << 10}
	hub, cdn := httptest.NewServer(h.host("hub", h.hub)), httptest.NewServer(h.host("cdn", h.cdn))
	t.Cleanup(hub.Close)
	t.Cleanup(cdn.Close)
	h.URL, h.CDN = hub.URL, cdn.URL
	return h
}

// Getenv is an environment that leads here, with a token if there is one.
func (h *Hub) Getenv(token string) func(string) string {
	return func(name string) string { return map[string]string{"HF_ENDPOINT": h.URL, "HF_TOKEN": token}[name] }
}

// Requests returns those made since the last call.
func (h *Hub) Requests() []Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.requests
	h.requests = nil
	return all
}

// host notes requests, and fails those that are to.
func (h *Hub) host(name string, answer func(http.ResponseWriter, *http.Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.requests = append(h.requests, Request{name, r.URL.EscapedPath(), r.Header.Get("Range"), r.Header.Get("Authorization")})
		if h.Fail != nil {
			if status := h.Fail(name, r.URL.Path); status != 0 {
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(status)
				return
			}
		}
		answer(w, r)
	})
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("X-Error-Code", code)
	w.Header().Set("X-Error-Message", message)
	w.WriteHeader(status)
}

func (h *Hub) hub(w http.ResponseWriter, r *http.Request) {
	const api, resolve = "/api/models/org/name/revision/", "/org/name/resolve/" + Commit + "/"
	path := r.URL.Path
	name, isFile := strings.CutPrefix(path, resolve)
	revision, isList := strings.CutPrefix(path, api)
	content, there := h.files[name]
	shown := r.Header.Get("Authorization") == "Bearer "+h.Token
	switch {
	case h.Gated && h.Token != "" && !shown:
		refuse(w, http.StatusUnauthorized, "GatedRepo", "Access to model org/name is restricted.")
	case h.Gated && h.Shut:
		refuse(w, http.StatusForbidden, "GatedRepo", "Access to model org/name is restricted and you are not in the authorized list.")
	case h.Token != "" && !shown, !isFile && !isList:
		refuse(w, http.StatusUnauthorized, "RepoNotFound", "Repository not found")
	case isList && !h.AnyRevision && revision != "main" && revision != "refs/pr/1" && !(len(revision) >= 7 && strings.HasPrefix(Commit, revision)):
		refuse(w, http.StatusNotFound, "RevisionNotFound", "Invalid rev id: "+revision)
	case isList:
		h.list(w)
	case !there:
		refuse(w, http.StatusNotFound, "EntryNotFound", "Entry not found")
	case len(content) >= h.LargeBytes:
		w.Header().Set("X-Repo-Commit", Commit)
		w.Header().Set("X-Linked-Size", strconv.Itoa(len(content)))
		h.name(w, "X-Linked-Etag", sha256Of(content))
		http.Redirect(w, r, h.CDN+"/"+name+"?Signature=secret", http.StatusFound)
	default:
		w.Header().Set("X-Repo-Commit", Commit)
		h.name(w, "ETag", blobOf(content))
		h.serve(w, r, name, content)
	}
}

// name says the sum of a file.
func (h *Hub) name(w http.ResponseWriter, header, sum string) {
	if !h.NoEtags {
		w.Header().Set(header, `"`+sum+`"`)
	}
}

func (h *Hub) cdn(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	content, there := h.files[name]
	if !there || r.URL.RawQuery == "" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	w.Header().Set("ETag", `"of the host's own"`)
	h.serve(w, r, name, content)
}

// serve answers with a file or the rest of it.
func (h *Hub) serve(w http.ResponseWriter, r *http.Request, name string, content []byte) {
	if h.Change != nil {
		content = h.Change(name, slices.Clone(content))
	}
	rest, status := content, http.StatusOK
	if asked, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok && !h.NoRanges {
		from, err := strconv.Atoi(strings.TrimSuffix(asked, "-"))
		if err != nil || from >= len(content) {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		rest, status = content[from:], http.StatusPartialContent
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(content)-1, len(content)))
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(rest)))
	w.WriteHeader(status)
	if h.Cuts > 0 && len(rest) > h.CutBytes {
		h.Cuts--
		_, _ = w.Write(rest[:h.CutBytes])
		panic(http.ErrAbortHandler) // the connection ends
	}
	_, _ = w.Write(rest)
}

func (h *Hub) list(w http.ResponseWriter) {
	type lfs struct {
		SHA256 string `json:"sha256"`
		Size   int    `json:"size"`
	}
	type sibling struct {
		Name   string `json:"rfilename"`
		Size   int    `json:"size"`
		BlobID string `json:"blobId,omitempty"`
		LFS    *lfs   `json:"lfs,omitempty"`
	}
	var siblings []sibling
	for name, content := range h.files {
		s := sibling{Name: name, Size: len(content)}
		switch {
		case h.NoSums:
		case len(content) >= h.LargeBytes:
			s.BlobID, s.LFS = blobOf([]byte("a pointer")), &lfs{sha256Of(content), len(content)}
		default:
			s.BlobID = blobOf(content)
		}
		siblings = append(siblings, s)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"id": "org/name", "sha": Commit, "gated": h.Gated, "siblings": siblings})
}

func sha256Of(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// blobOf is the name of a file in git.
func blobOf(content []byte) string {
	sum := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(content)), content...)) //nolint:gosec // as git does
	return hex.EncodeToString(sum[:])
}
