package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"strings"
)

// guard lets requests pass that a program or page of this machine makes on purpose. A name of
// someone's that leads here (DNS rebinding) is in Host; a page from elsewhere is in Origin, or
// in what the browser says of it (Fetch Metadata). A port may differ: a tunnel's does.
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		if !Loopback(r.Host) || len(r.Header["Origin"]) > 0 && origin != "http://"+r.Host {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Loopback reports whether a "host" or "host:port" names this machine itself, in a way that no
// name server has a say in.
func Loopback(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	return name == "127.0.0.1" || name == "::1" || name == "localhost"
}

// authorize lets requests with the token pass, those with the page's key where they only look, and those with its other key where they
// are about who is let in. It takes a time that does not depend on any of these, and bounds bodies.
func (s *Server) authorize(next http.Handler) http.Handler {
	token, key, admission := NewSecret(s.address.Token), NewSecret(s.view.Key), NewSecret(s.address.Admission)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		all, looks, admits := token.Is(given), key.Is(given), admission.Is(given)
		about := r.URL.Path == admissionPath || strings.HasPrefix(r.URL.Path, admissionPath+"/")
		site := r.Header.Get("Sec-Fetch-Site") // what a browser sends for a page of another site is refused
		switch {
		case !ok || !all && !looks && !admits || site != "" && site != "same-origin" && site != "none":
			w.WriteHeader(http.StatusUnauthorized)
		case admits && !about:
			s.reply(w, http.StatusForbidden, errorReply{"this key of the page lets machines in, and does nothing else"})
		case looks && (about || r.Method != http.MethodGet):
			s.reply(w, http.StatusForbidden, errorReply{"the key of the page is to look with: use the commands `pnode leave`, `pnode invite` or Ctrl-C where the node runs"})
		default:
			r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
			next.ServeHTTP(w, r)
		}
	})
}

// Under hands what is below a secret path to inner, without it, and all else to outer.
func Under(path string, inner, outer http.Handler) http.Handler {
	want := NewSecret(path)
	open := http.StripPrefix(path, inner)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first, _, below := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if want.Is("/"+first+"/") && below {
			open.ServeHTTP(w, r)
			return
		}
		outer.ServeHTTP(w, r)
	})
}

// Secret is the hash of a text that is compared in constant time.
type Secret [sha256.Size]byte

// NewSecret returns the secret of a text.
func NewSecret(text string) Secret { return sha256.Sum256([]byte(text)) }

// Is reports whether a text is the secret's.
func (s Secret) Is(text string) bool {
	got := NewSecret(text)
	return subtle.ConstantTimeCompare(got[:], s[:]) == 1
}
