package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pnode/swarm/netlab"
)

// on runs pnode on a host until it ends, and returns what it prints, and its exit code.
func on(t *testing.T, h *netlab.Host, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if cmd.Env = outerEnv; len(env) > 0 { // past the host's own
		cmd.Args = append([]string{"env"}, append(append(env, binary), args...)...)
		if cmd.Path, err = exec.LookPath("env"); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Start(cmd); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// trainsOn starts a run on a host that does nearly nothing, and returns its first invite.
func trainsOn(t *testing.T, h *netlab.Host, dir string, args ...string) (invite string, stop func()) {
	t.Helper()
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	slow := filepath.Join(t.TempDir(), "device.yaml")
	if err := os.WriteFile(slow, []byte("device: {compute: none, matmul: 1MFLOP/s, bandwidth: 8GB/s, memory: 2GB}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	log := &watched{fresh: make(chan struct{}, 1)}
	cmd := exec.Command(binary, append([]string{"train", "--config", runFile(t, 1000), "--dir", dir, "--emulate", slow}, args...)...)
	cmd.Env, cmd.Stderr = outerEnv, log
	if err := h.Start(cmd); err != nil {
		t.Fatal(err)
	}
	found := log.await(t, `pnode join (pnode1-\S+)`)
	return found[1], func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it was killed
	}
}

// refusingProxy serves a proxy on a host that answers every CONNECT with a status.
func refusingProxy(t *testing.T, h *netlab.Host, status int) string {
	t.Helper()
	var ln net.Listener
	var err error
	h.Do(func() { ln, err = net.Listen("tcp4", h.Addr().String()+":0") })
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })}
	go server.Serve(ln)
	t.Cleanup(func() { server.Close() })
	return "http://" + ln.Addr().String()
}

// TestDoctorOnNetworks: on each kind of network `pnode doctor --net` and `pnode join` say what is in the way, and what to do.
func TestDoctorOnNetworks(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes take minutes")
	}
	lab := netlab.New(t)
	desk := lab.Host("desk", netlab.Public)
	run := filepath.Join(t.TempDir(), "run")
	invite, stop := trainsOn(t, desk, run, "--listen", ":443")
	at := desk.Addr().String() + ":443"
	short, errs, code := on(t, desk, nil, "invite", "--dir", run, "--ttl", "1s")
	if code != 0 {
		t.Fatalf("no invite: %s", errs)
	}
	short = strings.TrimSpace(short)
	ends := time.Now().Add(time.Second)
	proxies := lab.Host("proxies", netlab.Public)
	env := func(proxy string) []string { return []string{"HTTPS_PROXY=" + proxy} }
	office := lab.Host("office", netlab.Proxy)
	guarded := lab.Host("guarded", netlab.UDPBlocked)
	guarded.Gateway("insert rule ip lab through iifname \"lan\" tcp dport 443 drop")
	lonely := lab.Host("lonely", netlab.Public)
	lonely.IP("link set wan down")
	rejecting := lab.Host("rejecting", netlab.UDPBlocked)
	rejecting.Gateway("insert rule ip lab through iifname \"lan\" udp dport 443 reject\ninsert rule ip lab through iifname \"lan\" tcp dport 443 reject with tcp reset")
	cutting := lab.Host("cutting", netlab.UDPBlocked)
	cutting.Gateway("insert rule ip lab through iifname \"lan\" tcp dport 443 tcp flags & psh == psh reject with tcp reset")
	const join, doctor = "join", "doctor"
	tests := []struct {
		name    string
		host    *netlab.Host
		env     []string
		target  string
		code    int
		verdict string
		cause   string
		do      string
	}{
		{"public", lab.Host("public", netlab.Public), nil, invite, 0, "this machine can join: UDP to " + at + " works: data will go over QUIC", "", ""},
		{"UDP dropped", lab.Host("blocked", netlab.UDPBlocked), nil, invite, 0, "this machine can join: UDP to " + at + " gets no answer, TCP works: data will go over TCP", "udp", "open UDP 443 there and on the way"},
		{"proxy", office, nil, invite, 0, "WebSocket over TLS works: data will go over WebSocket", "route", ""},
		{
			"proxy that is not named", office,
			[]string{"-u", "HTTPS_PROXY", "-u", "https_proxy"},
			invite, 3,
			"this machine has no route to " + desk.Addr().String() + " (network is unreachable)", "route", "name it in HTTPS_PROXY",
		},
		{"proxy that wants a password", guarded, env(refusingProxy(t, proxies, 407)), invite, 3, "the proxy wants a user and a password (it answers 407 Proxy Authentication Required)", "proxy", "http://USER:PASSWORD@HOST:PORT"},
		{"proxy that denies", guarded, env(refusingProxy(t, proxies, 403)), invite, 3, "the proxy does not connect to " + at + " (it answers 403 Forbidden)", "proxy", "ask its owner to allow the port"},
		{"no resolver", lonely, nil, "/dns/desk.example/tcp/443/p2p/12D3KooWGzxzKZYveHXtpG6AsrUJBcWxHBFS2HsEoGTxrMLvKXtf", 3, "this machine cannot join: DNS desk.example (look the name up): ", "dns", ""},
		{"no route", lonely, nil, invite, 3, "this machine has no route to " + desk.Addr().String() + " (network is unreachable)", "route", "bring a network interface up"},
		{"rejected", rejecting, nil, invite, 3, "the machine there answers that nothing listens on the port, or a firewall answers in its place", "udp", "start the node that made the invite"},
		{"cut", cutting, nil, invite, 3, "it connects, and is cut before the end of the handshake", "tcp", "allow the connection"},
		{"narrow", lab.Host("narrow", netlab.MTU1280Silent), nil, invite, 0, "this machine can join: UDP to " + at + " works: data will go over QUIC", "", ""},
		{"expired", lab.Host("late", netlab.Public), nil, short, 3, "this machine cannot join: the contact says: invite expired", "invite", "ask for a new one (`pnode invite`)"},
	}
	t.Run("while the contact runs", func(t *testing.T) {
		for _, c := range tests {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				if c.target == short {
					time.Sleep(time.Until(ends))
				}
				out, errs, code := on(t, c.host, c.env, doctor, "--net", "--json", c.target)
				var r struct{ Verdict, Cause, Do string }
				if err := json.Unmarshal([]byte(out), &r); err != nil {
					t.Fatalf("%v: exit code %d, %s%s", err, code, out, errs)
				}
				t.Logf("%s\n%s", out, errs)
				if code != c.code || !strings.Contains(r.Verdict, c.verdict) || r.Cause != c.cause || !strings.Contains(r.Do, c.do) {
					t.Errorf("exit code %d, cause %q:\n%s\n%s\nwant %d, %q:\n%s\n%s", code, r.Cause, r.Verdict, r.Do, c.code, c.cause, c.verdict, c.do)
				}
				if c.code == 0 || !strings.HasPrefix(c.target, "pnode1-") {
					return
				}
				_, errs, code = on(t, c.host, c.env, join, "--dir", filepath.Join(t.TempDir(), "join"), c.target)
				why, _, _ := strings.Cut(strings.TrimPrefix(r.Verdict, "this machine cannot join: "), "expired") // how long ago differs
				if code != c.code || !strings.Contains(errs, ": "+why) || !strings.Contains(errs, "; what to do: "+r.Do) {
					t.Errorf("join: exit code %d:\n%swant %d, %s; what to do: %s", code, errs, c.code, why, r.Do)
				}
			})
		}
	})
	t.Run("a join without UDP", func(t *testing.T) {
		blocked := lab.Host("blocked2", netlab.UDPBlocked)
		binary, err := buildOnce()
		if err != nil {
			t.Fatal(err)
		}
		log := &watched{fresh: make(chan struct{}, 1)}
		cmd := exec.Command(binary, join, "--dir", filepath.Join(t.TempDir(), "join"), invite)
		cmd.Env, cmd.Stderr = outerEnv, log
		if err := blocked.Start(cmd); err != nil {
			t.Fatal(err)
		}
		log.await(t, "joined over TCP: UDP to "+at+" gets no answer; open UDP 443 there and on the way\n")
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it was killed
	})
	stop()
	out, _, code := on(t, lab.Host("after", netlab.Public), nil, doctor, "--net", invite)
	if want := "the machine there answers that nothing listens on the port"; code != 3 || !strings.Contains(out, want) {
		t.Errorf("with no contact: exit code %d:\n%swant %s", code, out, want)
	}
	_, errs, code = on(t, lab.Host("newcomer", netlab.Public), nil, join, "--dir", filepath.Join(t.TempDir(), "join"), invite)
	if want := "cannot reach the run: UDP and TCP " + at; code != 3 || !strings.Contains(errs, want) || strings.Contains(errs, invite) {
		t.Errorf("a join with no contact: exit code %d:\n%swant %s", code, errs, want)
	}
}
