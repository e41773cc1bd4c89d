package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pnode/swarm/netlab"
)

// programs are proxies and web servers of other people on one host of a lab, with their files in a folder.
type programs struct {
	host *netlab.Host
	dir  string
}

// programsOn returns programs with a folder of the test, which those that give up root can read, and a certificate in it.
func programsOn(t *testing.T, host *netlab.Host) programs {
	t.Helper()
	p := programs{host, t.TempDir()}
	if err := os.Chmod(p.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p.certificate(t)
	return p
}

// begin starts a program with a configuration, in which DIR and ADDR stand for the folder and the host's address, and
// waits until a port accepts connections. It skips the test where the program is not installed.
func (p programs) begin(t *testing.T, port int, config, name string, args ...string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed", name)
	}
	fill := strings.NewReplacer("DIR", p.dir, "ADDR", p.host.Addr().String(), "PORT", fmt.Sprint(port))
	if err := os.WriteFile(filepath.Join(p.dir, name+".conf"), []byte(fill.Replace(config)), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path)
	for _, arg := range args {
		cmd.Args = append(cmd.Args, fill.Replace(arg))
	}
	cmd.Dir = p.dir
	log, err := os.Create(filepath.Join(p.dir, name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := p.host.Start(cmd); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
	})
	for deadline := time.Now().Add(time.Minute); ; {
		var conn net.Conn
		p.host.Do(func() { conn, err = net.Dial("tcp", net.JoinHostPort(p.host.Addr().String(), fmt.Sprint(port))) })
		if err == nil {
			conn.Close()
			return
		}
		select {
		case <-ended:
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("%s ended: %s", name, text)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not listen on port %d: %v", name, port, err)
		}
	}
}

// certificate writes a key and a certificate of its own for the host's address into both.pem.
func (p programs) certificate(t *testing.T) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	conf := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "proxy"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{p.host.Addr().AsSlice()}, IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, conf, conf, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	both := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	if err := os.WriteFile(filepath.Join(p.dir, "both.pem"), both, 0o600); err != nil {
		t.Fatal(err)
	}
}

// waitingRun starts a run on a host that waits for more members than there will be: joining it takes no computation.
func waitingRun(t *testing.T, h *netlab.Host, args ...string) (founder *process, invite string) {
	t.Helper()
	founder = launchOn(t, h, append([]string{
		"train", "--config", runFile(t, 10), "--dir", t.TempDir(), "--min-nodes", "64", "--emulate", deviceFile(t, "1GFLOP/s"), "--log-level", "info",
	}, args...)...)
	t.Cleanup(founder.kill)
	return founder, founder.stderr.await(t, `pnode join (pnode1-\S+)`)[1]
}

// joinsThrough joins a founder's run from a host with an environment until the link is measured, and returns the new
// member's log. Control and data both go over a WebSocket then, or the test ends.
func joinsThrough(t *testing.T, founder *process, h *netlab.Host, env []string, invite string) string {
	t.Helper()
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	args := append(slices.Clone(env), binary, "join", invite, "--dir", t.TempDir(), "--emulate", deviceFile(t, "1GFLOP/s"), "--log-level", "info")
	member := launchBy(t, h.Start, "/usr/bin/env", nil, args...) // past the host's own
	defer member.kill()
	member.stderr.await(t, `member connected.*/tls/ws`)
	awaitEither(t, `measured a link" peer=.* transport=WebSocket`, member.stderr, founder.stderr)
	return member.stderr.String()
}

// awaitEither waits until one of two processes has written what matches.
func awaitEither(t *testing.T, pattern string, a, b *watched) {
	t.Helper()
	re, deadline := regexp.MustCompile(pattern), time.After(endToEndTimeout)
	for !re.MatchString(a.String()) && !re.MatchString(b.String()) {
		select {
		case <-a.fresh:
		case <-b.fresh:
		case <-deadline:
			t.Fatalf("no %q within %v in:\n%s\nand:\n%s", pattern, endToEndTimeout, a, b)
		}
	}
}

// proxyProgram is a proxy of other people. DIR, ADDR and PORT stand for its folder, its host's address and its port.
type proxyProgram struct {
	name, config string
	port         int
	args         []string
	before       *proxyProgram     // hands what it is sent on to this one
	good         string            // HTTPS_PROXY
	wrong        map[string]string // and others, with what doctor says of them
}

var tinyproxy = proxyProgram{
	name: "tinyproxy", port: 3128, args: []string{"-d", "-c", "DIR/tinyproxy.conf"},
	config: "Port PORT\nListen ADDR\nTimeout 600\nBasicAuth me passWord1\nConnectPort 443\nLogLevel Error\n",
	good:   "http://me:passWord1@ADDR:PORT",
	wrong: map[string]string{
		"http://ADDR:PORT":           "the proxy wants a user and a password (it answers 407",
		"http://me:secret@ADDR:PORT": "the proxy does not take the user and password that it is given (it answers 401 Unauthorized)",
		"http://me:secret/1@ADDR:1":  "HTTPS_PROXY is no URL of a proxy",
	},
}

// proxyPrograms are with and without a login, over HTTP, HTTPS and SOCKS.
var proxyPrograms = []proxyProgram{
	tinyproxy,
	{
		name: "squid", port: 3129, args: []string{"-N", "-f", "DIR/squid.conf"},
		config: "http_port ADDR:PORT\npid_filename none\naccess_log none\ncache_log DIR/cache.log\nlogfile_rotate 0\ncache deny all\n" +
			"auth_param basic program /usr/lib/squid/basic_fake_auth\nacl known proxy_auth me\nacl web port 443\nhttp_access deny CONNECT !web\nhttp_access allow known\nshutdown_lifetime 0 seconds\n",
		good: "http://me:any@ADDR:PORT",
		wrong: map[string]string{
			"http://ADDR:PORT":              "the proxy wants a user and a password (it answers 407 Proxy Authentication Required)",
			"http://other:secret@ADDR:PORT": "the proxy does not take the user and password that it is given (it answers 407 Proxy Authentication Required)",
		},
	},
	{
		name: "stunnel", port: 8443, args: []string{"DIR/stunnel.conf"}, before: &tinyproxy,
		config: "foreground = yes\npid =\n[proxy]\naccept = ADDR:PORT\nconnect = ADDR:3128\ncert = DIR/both.pem\n",
		good:   "https://me:passWord1@ADDR:PORT",
		wrong: map[string]string{
			"http://me:secret@ADDR:PORT":  "what answers is no proxy of this kind",
			"https://me:secret@ADDR:3128": "the proxy does not answer",
		},
	},
	{
		name: "danted", port: 1080, args: []string{"-f", "DIR/danted.conf"},
		config: "logoutput: stderr\ninternal: ADDR port = PORT\nexternal: ADDR\nclientmethod: none\nsocksmethod: none\nuser.privileged: root\nuser.unprivileged: nobody\n" +
			"client pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }\nsocks pass { from: 0.0.0.0/0 to: 0.0.0.0/0 port = 443 command: connect }\n",
		good: "socks5://ADDR:PORT",
	},
	{
		name: "microsocks", port: 1081, args: []string{"-i", "ADDR", "-p", "PORT", "-u", "me", "-P", "pass@word/1"},
		good: "socks5://me:pass%40word%2F1@ADDR:PORT",
		wrong: map[string]string{
			"socks5://ADDR:PORT":           "the proxy wants a user and a password",
			"socks5://me:secret@ADDR:PORT": "the proxy does not take the user and password that it is given",
			"http://me:secret@ADDR:PORT":   "what answers is no proxy of this kind",
		},
	},
}

// TestProxyPrograms joins through proxies of other people, each the only way out of an office, and measures the link.
// Where a proxy does not let the node through, doctor says why and what to do.
func TestProxyPrograms(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes take minutes")
	}
	t.Parallel()
	lab := netlab.New(t)
	for _, c := range proxyPrograms {
		desk, office := lab.Host(c.name+"-desk", netlab.Public), lab.Host(c.name+"-office", netlab.UDPBlocked)
		host := lab.Host(c.name, netlab.Public)
		at := host.Addr().String()
		office.Gateway(`insert rule ip lab through iifname "lan" ip daddr != ` + at + " drop")
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := programsOn(t, host)
			if c.before != nil {
				p.begin(t, c.before.port, c.before.config, c.before.name, c.before.args...)
			}
			p.begin(t, c.port, c.config, c.name, c.args...)
			env := func(proxy string) []string {
				proxy = strings.NewReplacer("ADDR", at, "PORT", fmt.Sprint(c.port)).Replace(proxy)
				return []string{"HTTPS_PROXY=" + proxy, "SSL_CERT_FILE=" + filepath.Join(p.dir, "both.pem")}
			}
			founder, invite := waitingRun(t, desk, "--listen", ":443")
			if log := joinsThrough(t, founder, office, env(c.good), invite); strings.Contains(log, "pass") {
				t.Errorf("the member's log tells a password:\n%s", log)
			}
			for proxy, says := range c.wrong {
				t.Run(proxy, func(t *testing.T) {
					t.Parallel()
					out, errs, code := on(t, office, env(proxy), "doctor", "--net", invite)
					if code != 3 || !strings.Contains(out, says) || strings.Contains(out+errs, "secret") {
						t.Errorf("exit code %d\n%s%s\nwant %s", code, out, errs, says)
					}
				})
			}
		})
	}
}

// TestWebServersInFront joins a founder that web servers stand in front of, and measures the link: they end TLS on port
// 443 and hand WebSockets on, as docs/networks.md says.
func TestWebServersInFront(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes take minutes")
	}
	t.Parallel()
	for _, c := range []struct {
		program, config string
		args            []string
	}{
		{
			"nginx", "daemon off;\nerror_log stderr;\npid DIR/nginx.pid;\nevents {}\nhttp {\naccess_log off;\nserver {\n  listen ADDR:PORT ssl;\n  ssl_certificate DIR/both.pem;\n  ssl_certificate_key DIR/both.pem;\n" +
				"location /pnode {\n    proxy_pass http://127.0.0.1:4001;\n    proxy_http_version 1.1;\n    proxy_set_header Upgrade $http_upgrade;\n    proxy_set_header Connection upgrade;\n  }\n}}\n",
			[]string{"-p", "DIR", "-c", "DIR/nginx.conf"},
		},
		{
			"caddy", "{\n  admin off\n  auto_https off\n  storage file_system DIR\n}\nhttps://ADDR:PORT {\n  tls DIR/both.pem DIR/both.pem\n  reverse_proxy /pnode 127.0.0.1:4001\n}\n",
			[]string{"run", "--adapter", "caddyfile", "--config", "DIR/caddy.conf"},
		},
	} {
		t.Run(c.program, func(t *testing.T) {
			t.Parallel()
			lab := netlab.New(t)
			p := programsOn(t, lab.Host("front", netlab.Public))
			p.begin(t, 443, c.config, c.program, c.args...)
			founder, invite := waitingRun(t, p.host, "--listen", "127.0.0.1:4001", "--announce", "only,https://"+p.host.Addr().String())
			joinsThrough(t, founder, lab.Host("office", netlab.TCP443), nil, invite)
		})
	}
}
