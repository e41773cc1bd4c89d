// Package cert makes the certificates by which nodes prove their keys in TLS handshakes. They are good at all times: a machine
// whose clock is wrong connects like any other, and the others' clocks tell it so. libp2p's own begin an hour before they are
// made, and whose clock is behind that refuses them.
//
// [New] makes a certificate, [QUIC] has libp2p make such ones, and [NewTLS] is libp2p's TLS over TCP with one; [Started] reads when a node
// was started.
package cert

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"strconv"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	libp2pquic "github.com/libp2p/go-libp2p/p2p/transport/quic"
)

// libp2pLead is how long before it is made a certificate of libp2p's own begins.
const libp2pLead = time.Hour

// begin and end bound when a certificate is good: from where clocks begin that were never set, to X.509's word for no end.
var (
	begin = time.Unix(0, 0).UTC()
	end   = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

// always makes a certificate good at all times. Its subject says when it was made.
func always(c *libp2ptls.IdentityConfig) {
	serial := make([]byte, 8)
	_, _ = rand.Read(serial) // which never fails
	c.CertTemplate = &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(append([]byte{1}, serial...)),
		NotBefore:    begin,
		NotAfter:     end,
		Subject:      pkix.Name{SerialNumber: strconv.FormatInt(time.Now().Unix(), 10)},
	}
}

// New returns a key's identity in TLS, with a certificate that is good at all times.
func New(key crypto.PrivKey) (*libp2ptls.Identity, error) {
	return libp2ptls.NewIdentity(key, always)
}

// QUIC has libp2p's transport over QUIC use such a certificate.
func QUIC() libp2pquic.Option { return libp2pquic.WithTLSIdentityOption(always) }

// Started returns when the node of a certificate was started by its own clock, zero where that is not told.
func Started(c *x509.Certificate) time.Time {
	if !c.NotBefore.Equal(begin) {
		return c.NotBefore.Add(libp2pLead)
	}
	at, err := strconv.ParseInt(c.Subject.SerialNumber, 10, 64)
	if err != nil || at < begin.Unix() || at > end.Unix() {
		return time.Time{}
	}
	return time.Unix(at, 0)
}
