package share

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"time"
)

const (
	// certificateFor is how long a certificate is good: no browser takes one that is good for longer than 398 days.
	certificateFor = 397 * 24 * time.Hour
	// certificateLead is how far a browser's clock may be behind.
	certificateLead = 24 * time.Hour
)

// certificate makes a key and its certificate for one address, and returns the certificate's fingerprint too. Neither is kept.
func certificate(at netip.Addr, now time.Time) (*tls.Config, string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader) // which all browsers know
	if err != nil {
		return nil, "", err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, "", err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "pnode watch --share"},
		NotBefore:    now.Add(-certificateLead),
		NotAfter:     now.Add(certificateFor - certificateLead),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses:  []net.IP{at.AsSlice()},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, "", err
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{"http/1.1"},
	}
	return config, fingerprint(der), nil
}

// fingerprint returns a certificate's hash as browsers write it: pairs of digits with colons between.
func fingerprint(der []byte) string {
	var pairs []string
	for _, b := range sha256.Sum256(der) {
		pairs = append(pairs, fmt.Sprintf("%02X", b))
	}
	return strings.Join(pairs, ":")
}
