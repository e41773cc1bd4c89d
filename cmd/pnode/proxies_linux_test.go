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
	"strings"
	"testing"
	"time"

	"pnode/swarm/netlab"
)

// programs are proxies and web servers of other people on one host of a lab.
type programs struct {
	host *netlab.Host
	dir  string
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
	for i := range args {
		args[i] = fill.Replace(args[i])
	}
	cmd := exec.Command(path, args...)
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
	for deadline := time.Now().Add(20 * time.Second); ; {
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

// certificate writes a key and a certificate of its own for an address.
func (p programs) certificate(t *testing.T) (file string) {
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
	file = filepath.Join(p.dir, "both.pem")
	both := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	if err := os.WriteFile(file, both, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// trainThrough trains with two members, of which the second joins with an environment, and returns its log. A run needs both.
func trainThrough(t *testing.T, desk, office *netlab.Host, env, founderArgs []string) string {
	t.Helper()
	const steps = 10
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	file, half := smallRun(t, steps), smallDevice(t, "88MB")
	p := launchBy(t, desk.Start, binary, nil, append([]string{
		"train", "--config", file, "--dir", t.TempDir(), "--json", "--name", "founder",
		"--replicas", "1", "--stages", "2", "--min-nodes", "2", "--emulate", half, "--log-level", "info",
	}, founderArgs...)...)
	invite := p.stderr.await(t, `pnode join (pnode1-\S+)`)[1]
	join := append(env, binary, "join", invite, "--dir", t.TempDir(), "--name", "member", "--emulate", half, "--log-level", "info")
	member := launchBy(t, office.Start, "/usr/bin/env", nil, join...) // past the host's own
	if _, ok := member.stderr.soon("swarm: member connected", time.Now().Add(time.Minute)); !ok {
		t.Fatalf("the member has not joined:\n%s", member.stderr)
	}
	for deadline := time.Now().Add(time.Minute); p.last.Step < steps; {
		if _, ok := p.nextStep(deadline, nil); !ok {
			t.Fatalf("no step after %d:\n%s\nthe member:\n%s", p.last.Step, p.stderr, member.stderr)
		}
	}
	for s, loss := range alone(t, file, steps) {
		if p.losses[s] != loss {
			t.Errorf("step %d has loss %s, alone %s", s, p.losses[s], loss)
		}
	}
	p.finish(0)
	member.finish(0)
	return member.stderr.String()
}

// TestProxyPrograms joins and trains through proxies of other people, which are the only way out of an office: with and
// without a login, over HTTP, HTTPS and SOCKS. Where one does not let the node through, doctor says why and what to do.
func TestProxyPrograms(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes take minutes")
	}
	lab := netlab.New(t)
	desk, p := lab.Host("desk", netlab.Public), programs{lab.Host("proxies", netlab.Public), t.TempDir()}
	if err := os.Chmod(p.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	at := p.host.Addr().String()
	office := lab.Host("office", netlab.UDPBlocked)
	office.Gateway(`insert rule ip lab through iifname "lan" ip daddr != ` + at + " drop")
	cert := p.certificate(t)
	for _, c := range []struct {
		program, config string
		port            int
		args            []string
		good            string            // HTTPS_PROXY, with ADDR and PORT
		wrong           map[string]string // and others, with what doctor says of them
	}{
		{
			"tinyproxy", "Port PORT\nListen ADDR\nTimeout 600\nBasicAuth me passWord1\nConnectPort 443\nLogLevel Error\n", 3128,
			[]string{"-d", "-c", "DIR/tinyproxy.conf"},
			"http://me:passWord1@ADDR:PORT",
			map[string]string{
				"http://ADDR:PORT":           "the proxy wants a user and a password (it answers 407",
				"http://me:secret@ADDR:PORT": "the proxy does not take the user and password that it is given (it answers 401 Unauthorized)",
				"http://me:secret/1@ADDR:1":  "HTTPS_PROXY is no URL of a proxy",
			},
		},
		{
			"squid", "http_port ADDR:PORT\npid_filename none\naccess_log none\ncache_log DIR/cache.log\nlogfile_rotate 0\ncache deny all\n" +
				"auth_param basic program /usr/lib/squid/basic_fake_auth\nacl known proxy_auth me\nacl web port 443\nhttp_access deny CONNECT !web\nhttp_access allow known\nshutdown_lifetime 0 seconds\n", 3129,
			[]string{"-N", "-f", "DIR/squid.conf"},
			"http://me:any@ADDR:PORT",
			map[string]string{
				"http://ADDR:PORT":              "the proxy wants a user and a password (it answers 407 Proxy Authentication Required)",
				"http://other:secret@ADDR:PORT": "the proxy does not take the user and password that it is given (it answers 407 Proxy Authentication Required)",
			},
		},
		{
			"stunnel", "foreground = yes\npid =\n[proxy]\naccept = ADDR:PORT\nconnect = ADDR:3128\ncert = " + cert + "\n", 8443,
			[]string{"DIR/stunnel.conf"},
			"https://me:passWord1@ADDR:PORT",
			map[string]string{
				"http://me:secret@ADDR:PORT":  "what answers is no proxy of this kind",
				"https://me:secret@ADDR:3128": "the proxy does not answer",
			},
		},
		{
			"danted", "logoutput: stderr\ninternal: ADDR port = PORT\nexternal: ADDR\nclientmethod: none\nsocksmethod: none\nuser.privileged: root\nuser.unprivileged: nobody\n" +
				"client pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }\nsocks pass { from: 0.0.0.0/0 to: 0.0.0.0/0 port = 443 command: connect }\n", 1080,
			[]string{"-f", "DIR/danted.conf"},
			"socks5://ADDR:PORT",
			nil,
		},
		{
			"microsocks", "", 1081,
			[]string{"-i", "ADDR", "-p", "PORT", "-u", "me", "-P", "pass@word/1"},
			"socks5://me:pass%40word%2F1@ADDR:PORT",
			map[string]string{
				"socks5://ADDR:PORT":           "the proxy wants a user and a password",
				"socks5://me:secret@ADDR:PORT": "the proxy does not take the user and password that it is given",
				"http://me:secret@ADDR:PORT":   "what answers is no proxy of this kind",
			},
		},
	} {
		p.begin(t, c.port, c.config, c.program, c.args...)
		t.Run(c.program, func(t *testing.T) {
			env := func(proxy string) []string {
				return []string{"HTTPS_PROXY=" + strings.NewReplacer("ADDR", at, "PORT", fmt.Sprint(c.port)).Replace(proxy), "SSL_CERT_FILE=" + cert}
			}
			log := trainThrough(t, desk, office, env(c.good), []string{"--listen", ":443"})
			if !strings.Contains(log, "transport=WebSocket") || strings.Contains(log, "pass") {
				t.Errorf("the member's log:\n%s", log)
			}
			invite, stop := trainsOn(t, desk, t.TempDir(), "--listen", ":443")
			defer stop()
			for proxy, says := range c.wrong {
				out, errs, code := on(t, office, env(proxy), "doctor", "--net", invite)
				if code != 3 || !strings.Contains(out, says) || strings.Contains(out+errs, "secret") {
					t.Errorf("%s: exit code %d\n%s%s\nwant %s", proxy, code, out, errs, says)
				}
				t.Logf("%s: %s", proxy, out)
			}
		})
	}
}

// TestWebServersInFront trains with a founder that web servers stand in front of: they end TLS on port 443 and hand
// WebSockets on, as docs/networks.md says.
func TestWebServersInFront(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes take minutes")
	}
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
			lab := netlab.New(t)
			p := programs{lab.Host("front", netlab.Public), t.TempDir()}
			if err := os.Chmod(p.dir, 0o755); err != nil {
				t.Fatal(err)
			}
			p.certificate(t)
			p.begin(t, 443, c.config, c.program, c.args...)
			log := trainThrough(t, p.host, lab.Host("office", netlab.TCP443), nil,
				[]string{"--listen", "127.0.0.1:4001", "--announce", "only,https://" + p.host.Addr().String()})
			if !strings.Contains(log, "transport=WebSocket") {
				t.Errorf("the member's log:\n%s", log)
			}
		})
	}
}
