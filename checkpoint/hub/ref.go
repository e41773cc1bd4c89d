package hub

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Scheme begins the name of a model on the hub.
const Scheme = "hf:"

// mainRevision is the branch that is meant where none is named.
const mainRevision = "main"

// ErrBadRef: a name is not one of a model on the hub.
var ErrBadRef = errors.New("no model's name on the hub")

// Ref names a revision of a model.
type Ref struct {
	// Repo is ORG/NAME, or NAME alone for a few old models.
	Repo string
	// Revision is a branch, a tag, a commit, or the beginning of a commit.
	Revision string
}

var (
	repoPattern     = regexp.MustCompile(`^([A-Za-z0-9][\w.-]{0,95}/)?[A-Za-z0-9][\w.-]{0,95}$`)
	revisionPattern = regexp.MustCompile(`^[A-Za-z0-9][\w./-]{0,199}$`)
	commitPattern   = regexp.MustCompile(`^[0-9a-f]{40}$`)
	// beginningPattern is that of a commit as git shortens it.
	beginningPattern = regexp.MustCompile(`^[0-9a-f]{7,39}$`)
)

// IsRef reports whether a name is meant as that of a model on the hub.
func IsRef(name string) bool { return strings.HasPrefix(name, Scheme) }

// LooksLikeRepo reports whether a name could be ORG/NAME.
func LooksLikeRepo(name string) bool {
	return strings.Count(name, "/") == 1 && repoPattern.MatchString(name)
}

// Parse reads hf:ORG/NAME[@REV]. The error wraps ErrBadRef.
func Parse(name string) (Ref, error) {
	rest, ok := strings.CutPrefix(name, Scheme)
	repo, revision, given := strings.Cut(rest, "@")
	if !given {
		revision = mainRevision
	}
	if !ok || !repoPattern.MatchString(repo) || strings.Contains(repo, "..") {
		return Ref{}, fmt.Errorf("hub: %q is %w: want hf:ORG/NAME or hf:ORG/NAME@REVISION, as in hf:openai-community/gpt2", name, ErrBadRef)
	}
	if !revisionPattern.MatchString(revision) || strings.Contains(revision, "..") {
		return Ref{}, fmt.Errorf("hub: %q is %w: the revision is a branch, a tag, or a commit of 7 to 40 hexadecimal digits", name, ErrBadRef)
	}
	if commit := strings.ToLower(revision); commitPattern.MatchString(commit) || beginningPattern.MatchString(commit) { // as the hub writes it
		revision = commit
	}
	return Ref{repo, revision}, nil
}

// String returns the name as Parse reads it.
func (r Ref) String() string {
	if r.Revision == mainRevision {
		return Scheme + r.Repo
	}
	return Scheme + r.Repo + "@" + r.Revision
}

// isCommit reports whether the revision can never mean anything else.
func (r Ref) isCommit() bool { return commitPattern.MatchString(r.Revision) }

// isBeginning reports whether the revision is a commit's first digits.
func (r Ref) isBeginning() bool { return beginningPattern.MatchString(r.Revision) }

// allows reports whether the revision may mean a commit.
func (r Ref) allows(commit string) bool {
	return !r.isCommit() && !r.isBeginning() || strings.HasPrefix(commit, r.Revision)
}
