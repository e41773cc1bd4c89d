package tcp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	"pnode/planner/plan"
	"pnode/swarm/neterr"
)

// Answer says what a proxy answers that makes no connection.
type Answer int

const (
	// NoAnswer: the proxy was not reached, or said nothing.
	NoAnswer Answer = iota
	// WantsLogin: it wants a name and a password, and the URL has none. RefusesLogin: it does not take those of the URL.
	// OtherLogin: it takes logins of other kinds alone, such as NTLM.
	WantsLogin
	RefusesLogin
	OtherLogin
	// Denies: it may not connect there. Cannot: it tried, and does not get through.
	Denies
	Cannot
	// NoProxy: what answers does not speak the protocol.
	NoProxy
)

// maxStatus bounds what is told of a proxy's own words, in bytes.
const maxStatus = 60

// ProxyError says why a proxy made no connection. It holds nothing of a login.
type ProxyError struct {
	// Proxy and Target are each a "host:port".
	Proxy, Target string
	Answer        Answer
	// Status holds the proxy's words, such as "403 Forbidden"; empty without an answer, of which Err says why.
	Status string
	Err    error
}

func (e *ProxyError) Error() string {
	return fmt.Sprintf("proxy %s: %s: %s", e.Proxy, e.Says(), e.Do())
}
func (e *ProxyError) Unwrap() error { return e.Err }

// Says returns what is wrong, as a sentence without an end.
func (e *ProxyError) Says() string {
	answers := fmt.Sprintf("(it answers %s)", plan.Clip(e.Status, maxStatus))
	switch e.Answer {
	case WantsLogin:
		return "the proxy wants a user and a password " + answers
	case RefusesLogin:
		return "the proxy does not take the user and password that it is given " + answers
	case OtherLogin:
		return "the proxy wants a login of a kind that pnode does not have, such as NTLM or Kerberos " + answers
	case Denies:
		return fmt.Sprintf("the proxy does not connect to %s %s", e.Target, answers)
	case Cannot:
		return fmt.Sprintf("the proxy gets no connection to %s %s", e.Target, answers)
	case NoProxy:
		return "what answers is no proxy of this kind"
	}
	var record tls.RecordHeaderError
	switch {
	case errors.As(e.Err, &record):
		return "the proxy does not speak TLS"
	case isCertificate(e.Err):
		return "this machine does not trust the proxy's certificate"
	case neterr.Silent(e.Err):
		return "the proxy does not answer"
	case neterr.Refused(e.Err):
		return "nobody listens where the proxy should"
	case neterr.Cut(e.Err):
		return "what answers is no proxy of this kind: it hangs up"
	}
	return "the way to the proxy " + neterr.Verb(e.Err)
}

// Do returns what a person can do about it.
func (e *ProxyError) Do() string {
	switch e.Answer {
	case WantsLogin:
		return "give them in HTTPS_PROXY: http://USER:PASSWORD@HOST:PORT"
	case RefusesLogin:
		return "correct them in HTTPS_PROXY; in a password write %40 for @, %3A for :, %2F for /, %23 for #, %25 for %"
	case OtherLogin:
		return "run a proxy on this machine that logs in there, such as cntlm, and name that one in HTTPS_PROXY"
	case Denies:
		return "ask its owner to allow the port, or have the contact listen on port 443, which most proxies allow"
	case Cannot:
		return "see that the contact runs and can be reached from the proxy"
	}
	var record tls.RecordHeaderError
	switch {
	case errors.As(e.Err, &record):
		return "write http:// in place of https:// in HTTPS_PROXY"
	case isCertificate(e.Err):
		return "name the proxy in HTTPS_PROXY as its certificate does, and have this machine trust the certificate's authority, on Linux by SSL_CERT_FILE=FILE"
	}
	return "correct HTTPS_PROXY, which begins with http://, https:// or socks5:// by the kind of proxy, or unset it where there is none"
}

func isCertificate(err error) bool {
	var unverified *tls.CertificateVerificationError
	return errors.As(err, &unverified) || errors.As(err, new(x509.HostnameError)) || errors.As(err, new(x509.UnknownAuthorityError))
}

// isSocketError reports whether an error is one of the way to the other end rather than of what it says.
func isSocketError(err error) bool {
	var record tls.RecordHeaderError
	var dns *net.DNSError
	switch {
	case errors.As(err, &record), errors.As(err, &dns), isCertificate(err), neterr.Silent(err), neterr.Cut(err),
		neterr.Refused(err), neterr.NoRoute(err), neterr.Unreachable(err), neterr.Denied(err),
		errors.Is(err, context.Canceled), errors.Is(err, net.ErrClosed):
		return true
	}
	return strings.HasPrefix(err.Error(), "tls: ") // an alert, such as one of a proxy that wants a certificate
}
