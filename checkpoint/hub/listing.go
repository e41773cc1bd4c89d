package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Errors of this package besides those of the connection.
var (
	// ErrGated: the model's terms have to be accepted on its page.
	ErrGated = errors.New("gated")
	// ErrNotFound: there is no such model, revision or file, or it is private.
	ErrNotFound = errors.New("not found on the hub")
	// ErrNoWeights: the model has no weights that are downloaded.
	ErrNoWeights = errors.New("no safetensors")
	// ErrChecksum: what came is not what the hub says it is.
	ErrChecksum = errors.New("wrong checksum")
	// ErrBadAnswer: the hub says what cannot be.
	ErrBadAnswer = errors.New("bad answer of the hub")
)

// Bounds of what the hub may say.
const (
	maxListingBytes = 32 << 20
	maxFiles        = 2048
	// maxSmallBytes bounds what is no weights: a tokenizer has some 20 MB.
	maxSmallBytes = 256 << 20
	// maxWeightsBytes bounds one file of weights.
	maxWeightsBytes = 1 << 42
)

// file describes one that is wanted.
type file struct {
	name   string
	size   int64
	sha256 string // of large files
	sha1   string // of git's blob
}

// listing holds the files of a commit that a model needs.
type listing struct {
	commit string
	files  []file // config first
}

// bytes returns the size of all files.
func (l listing) bytes() (sum int64) {
	for _, f := range l.files {
		sum += f.size
	}
	return sum
}

// small lists the files of a model besides its weights, configurations first.
var small = []string{
	"config.json", "adapter_config.json", "generation_config.json",
	"tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "added_tokens.json", "special_tokens_map.json", "tokenizer.model", "chat_template.jinja",
	"model.safetensors.index.json",
}

var (
	weights = regexp.MustCompile(`^(model|adapter_model)(-\d{5}-of-\d{5})?\.safetensors$`)
	// pickles are programs for Python, which run when they are read.
	pickles = regexp.MustCompile(`\.(bin|pt|pth|ckpt|pkl)$`)
)

// list asks which files a revision has.
func (c *Client) list(ctx context.Context, ref Ref) (listing, error) {
	at := c.endpoint.JoinPath("api", "models", ref.Repo, "revision", url.PathEscape(ref.Revision))
	at.RawQuery = "blobs=true" // sizes and checksums, too
	var text []byte
	err := c.again(ctx, func(ctx context.Context) (bool, error) {
		ctx, body, stop := watch(ctx)
		defer stop()
		a, err := c.get(ctx, at, 0)
		if err != nil {
			return false, err
		}
		defer func() { _ = a.Body.Close() }()
		text, err = io.ReadAll(io.LimitReader(body(a.Body), maxListingBytes+1))
		if err == nil && len(text) > maxListingBytes {
			err = final{fmt.Errorf("%w: more than %d bytes about a model", ErrBadAnswer, maxListingBytes)}
		}
		return false, err
	})
	if err != nil {
		return listing{}, c.explain(ref, err)
	}
	return parseListing(text)
}

// parseListing reads the hub's answer, which may be anything.
func parseListing(text []byte) (listing, error) {
	var info struct {
		SHA      string `json:"sha"`
		Siblings []struct {
			Name   string `json:"rfilename"`
			Size   *int64 `json:"size"`
			BlobID string `json:"blobId"`
			LFS    *struct {
				SHA256 string `json:"sha256"`
				Size   int64  `json:"size"`
			} `json:"lfs"`
		} `json:"siblings"`
	}
	if err := json.Unmarshal(text, &info); err != nil {
		return listing{}, fmt.Errorf("%w: %w", ErrBadAnswer, err)
	}
	if !commitPattern.MatchString(info.SHA) {
		return listing{}, fmt.Errorf("%w: commit %.50q", ErrBadAnswer, info.SHA)
	}
	l := listing{commit: info.SHA}
	seen := map[string]bool{}
	var refused []string
	for _, s := range info.Siblings {
		isWeights := weights.MatchString(s.Name)
		if pickles.MatchString(s.Name) {
			refused = append(refused, s.Name)
		}
		if !isWeights && !slices.Contains(small, s.Name) || seen[s.Name] {
			continue
		}
		seen[s.Name] = true
		f := file{name: s.Name, size: -1, sha1: s.BlobID}
		if s.Size != nil {
			f.size = *s.Size
		}
		if s.LFS != nil {
			f.size, f.sha256, f.sha1 = s.LFS.Size, s.LFS.SHA256, ""
		}
		most := int64(maxSmallBytes)
		if isWeights {
			most = maxWeightsBytes
		}
		if f.size < 0 || f.size > most || len(l.files) == maxFiles {
			return listing{}, fmt.Errorf("%w: %s of %d bytes as file %d, at most %d bytes and %d files are accepted", ErrBadAnswer, f.name, f.size, len(l.files)+1, most, maxFiles)
		}
		l.files = append(l.files, f)
	}
	return l.complete(refused)
}

// complete checks that there is a model among the files, and sorts them.
func (l listing) complete(refused []string) (listing, error) {
	has := func(name string) bool {
		return slices.ContainsFunc(l.files, func(f file) bool { return f.name == name })
	}
	if has("model.safetensors") { // a second form of the same weights would be twice the bytes
		l.files = slices.DeleteFunc(l.files, func(f file) bool {
			return strings.HasPrefix(f.name, "model-") || f.name == "model.safetensors.index.json"
		})
	}
	if !slices.ContainsFunc(l.files, func(f file) bool { return weights.MatchString(f.name) }) {
		if len(refused) > 0 {
			return l, fmt.Errorf("%w but %.60q, a pickle: that is a program, which is not run. https://huggingface.co/spaces/safetensors/convert makes safetensors of it, as a revision: name that behind @",
				ErrNoWeights, refused[0])
		}
		return l, fmt.Errorf("%w: its files hold no weights in that form", ErrNoWeights)
	}
	if !has("config.json") && !has("adapter_config.json") {
		return l, fmt.Errorf("%w: it has no config.json: name a model in the layout of transformers", ErrNoWeights)
	}
	rank := func(f file) int {
		if i := slices.Index(small, f.name); i >= 0 {
			return i
		}
		return len(small)
	}
	slices.SortFunc(l.files, func(a, b file) int {
		if by := rank(a) - rank(b); by != 0 {
			return by
		}
		return strings.Compare(a.name, b.name)
	})
	return l, nil
}

// explain says what to do about a refusal.
func (c *Client) explain(ref Ref, err error) error {
	no := (*refusal)(nil)
	if !errors.As(err, &no) {
		return err
	}
	page := c.endpoint.JoinPath(ref.Repo).String()
	switch {
	case no.code == "GatedRepo" && c.token == "":
		return fmt.Errorf("%s is %w: accept its terms at %s, make a token at %s/settings/tokens, and set %s to it", ref.Repo, ErrGated, page, DefaultEndpoint, TokenEnv)
	case no.code == "GatedRepo":
		return fmt.Errorf("%s is %w: the account of your %s may not read it yet: accept its terms at %s, or wait until its owners have", ref.Repo, ErrGated, TokenEnv, page)
	case no.code == "RevisionNotFound" && ref.isBeginning():
		return fmt.Errorf("revision %s of %s is %w: name a commit with all 40 digits, as %s/commits/main has them", ref.Revision, ref.Repo, ErrNotFound, page)
	case no.code == "RevisionNotFound":
		return fmt.Errorf("revision %s of %s is %w: %s/tree/main lists its branches and tags", ref.Revision, ref.Repo, ErrNotFound, page)
	case no.status == http.StatusNotFound || no.code == "RepoNotFound" || no.status == http.StatusUnauthorized && c.token == "":
		return fmt.Errorf("%s is %w: check the spelling; a private one needs a token of %s/settings/tokens in %s", ref.Repo, ErrNotFound, DefaultEndpoint, TokenEnv)
	case no.status == http.StatusUnauthorized:
		return fmt.Errorf("%s is not accepted: make another one at %s/settings/tokens, or unset it for a model that is public (%w)", TokenEnv, DefaultEndpoint, err)
	case no.status == http.StatusForbidden:
		return fmt.Errorf("the token in %s may not read %s: give it the right to at %s/settings/tokens (%w)", TokenEnv, ref.Repo, DefaultEndpoint, err)
	case no.passing():
		return fmt.Errorf("%w, after %d attempts: try again later, or name a mirror in %s", err, maxAttempts, EndpointEnv)
	}
	return err
}
