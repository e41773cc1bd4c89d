package notice

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a network of one server in virtual time.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// heard is a notice and when it came, from the start.
type heard struct {
	Notice
	after time.Duration
}

// hear watches for so long what a service says, in virtual time.
func hear(t *testing.T, setting, root string, span time.Duration, service http.HandlerFunc, more func(net pipes, n Notice)) (got []heard) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		for _, proxy := range []string{"http_proxy", "HTTP_PROXY"} {
			t.Setenv(proxy, "http://proxy.invalid:3128") // is not asked: every connection is to the service
		}
		s, err := ParseSetting(setting)
		if err != nil {
			t.Fatal(err)
		}
		network := pipes{make(chan net.Conn), make(chan struct{})}
		server := &http.Server{Handler: service}
		served := make(chan struct{})
		go func() { defer close(served); _ = server.Serve(network) }()
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), span)
		defer cancel()
		notices := make(chan heard, 64)
		watch(ctx, s, root, network.dial, slog.New(slog.DiscardHandler), func(n Notice) {
			if more != nil {
				more(network, n)
			}
			notices <- heard{n, time.Since(begin)}
		})
		close(notices)
		for n := range notices {
			got = append(got, n)
		}
		close(network.done)
		server.Close()
		<-served
	})
	return got
}

// imds answers as Amazon documents it; the notice is there from a time on.
func imds(after time.Duration) http.HandlerFunc {
	begin := sync.OnceValue(time.Now)
	var tokens atomic.Int32
	return func(w http.ResponseWriter, r *http.Request) {
		since := time.Since(begin())
		switch {
		case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token" && r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") == "21600":
			fmt.Fprintf(w, "token%d", tokens.Add(1))
		case r.Method != http.MethodGet || r.Header.Get("X-aws-ec2-metadata-token") != fmt.Sprintf("token%d", tokens.Load()):
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/latest/meta-data/events/recommendations/rebalance" && since >= after/2:
			io.WriteString(w, `{"noticeTime": "2020-10-27T08:22:00Z"}`)
		case r.URL.Path == "/latest/meta-data/spot/instance-action" && since >= after:
			fmt.Fprintf(w, `{"action": "terminate", "time": %q}`, begin().Add(after+2*time.Minute).UTC().Format(time.RFC3339))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}
}

func TestAWS(t *testing.T) {
	const after = 7 * time.Hour // the first token is not valid any more
	got := hear(t, "aws", "", 8*time.Hour, imds(after), nil)
	if len(got) != 2 || !got[0].Hint || got[1].Hint || !strings.Contains(got[1].Why, "terminate") {
		t.Fatalf("heard %+v, want a recommendation and then the notice, each once", got)
	}
	if late := got[1].after - after; late < 0 || late > awsEvery+time.Second || got[0].after >= got[1].after {
		t.Errorf("the notice was heard %v late", late)
	}
}

// metadataServer answers as Google documents it: TRUE from a time on; and the state of a graceful shutdown before, where
// that is switched on. It holds questions that wait for a change.
func metadataServer(after time.Duration, graceful bool) http.HandlerFunc {
	begin := sync.OnceValue(time.Now)
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Metadata-Flavor") != "Google" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.Header().Set("Metadata-Flavor", "Google")
		key, found := strings.CutPrefix(r.URL.Path, "/computeMetadata/v1/instance/")
		values, change := []string{"FALSE", "TRUE"}, begin().Add(after)
		if key == "shutdown-details/stop-state" {
			values, change = []string{"UNSPECIFIED", "PENDING_STOP"}, begin().Add(after/2)
		}
		if !found || key != "preempted" && !graceful {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		number := 0
		if !time.Now().Before(change) {
			number = 1
		}
		q := r.URL.Query()
		if q.Get("wait_for_change") == "true" && q.Get("last_etag") == fmt.Sprint("tag", number) {
			var most int
			fmt.Sscan(q.Get("timeout_sec"), &most)
			select {
			case <-time.After(min(time.Duration(most)*time.Second, max(time.Until(change), time.Hour*time.Duration(number)))):
			case <-r.Context().Done():
			}
			if !time.Now().Before(change) {
				number = 1
			}
		}
		w.Header().Set("ETag", fmt.Sprint("tag", number))
		io.WriteString(w, values[number])
	}
}

func TestGCP(t *testing.T) {
	const after = 10 * time.Minute
	for _, c := range []struct {
		graceful bool
		want     []string
	}{{false, []string{"preempted"}}, {true, []string{"graceful shutdown", "preempted"}}} {
		got := hear(t, "gcp", "", time.Hour, metadataServer(after, c.graceful), nil)
		if len(got) != len(c.want) {
			t.Fatalf("graceful %v: heard %+v", c.graceful, got)
		}
		for i, want := range c.want {
			if !strings.Contains(got[i].Why, want) {
				t.Errorf("graceful %v: notice %d is %q, want %s", c.graceful, i, got[i].Why, want)
			}
		}
		last := got[len(got)-1]
		if last.after != after || time.Duration(0) == last.At.Sub(time.Time{}) {
			t.Errorf("the question that waits for a change was answered after %v, want %v", last.after, after)
		}
	}
}

func TestAzure(t *testing.T) {
	const after = 90 * time.Second
	begin := sync.OnceValue(time.Now)
	acknowledged := ""
	service := func(w http.ResponseWriter, r *http.Request) {
		since := time.Since(begin())
		switch {
		case r.Header.Get("Metadata") != "true":
			w.WriteHeader(http.StatusBadRequest)
		case r.URL.Path == "/metadata/instance/compute/name" && r.URL.Query().Get("format") == "text":
			io.WriteString(w, "pool_3")
		case r.URL.Path != "/metadata/scheduledevents" || r.URL.Query().Get("api-version") != "2020-07-01":
			w.WriteHeader(http.StatusNotFound)
		case r.Method == http.MethodPost:
			body, _ := io.ReadAll(r.Body)
			acknowledged = string(body)
		case since < time.Minute: // the first answer switches the service on
			time.Sleep(time.Minute)
			fallthrough
		case time.Since(begin()) < after:
			io.WriteString(w, `{"DocumentIncarnation": 1, "Events": [
				{"EventId": "A", "EventStatus": "Scheduled", "EventType": "Preempt", "ResourceType": "VirtualMachine", "Resources": ["pool_1"], "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT"},
				{"EventId": "B", "EventStatus": "Scheduled", "EventType": "Freeze", "ResourceType": "VirtualMachine", "Resources": ["pool_3"], "NotBefore": "", "DurationInSeconds": 5}]}`)
		default:
			fmt.Fprintf(w, `{"DocumentIncarnation": 2, "Events": [
				{"EventId": "C", "EventStatus": "Scheduled", "EventType": "Preempt", "ResourceType": "VirtualMachine", "Resources": ["pool_1", "Pool_3"], "NotBefore": %q, "EventSource": "Platform"}]}`,
				time.Now().Add(30*time.Second).UTC().Format(time.RFC1123))
		}
	}
	got := hear(t, "azure=http://10.0.0.1:80/", "", time.Hour, service, func(network pipes, n Notice) {
		if err := n.Ready(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if len(got) != 1 || !strings.Contains(got[0].Why, "Preempt") || got[0].after < after || got[0].after > after+2*azureEvery {
		t.Fatalf("heard %+v, want the event of this machine and no other", got)
	}
	if acknowledged != `{"StartRequests":[{"EventId":"C"}]}` {
		t.Errorf("acknowledged with %q", acknowledged)
	}
}

// TestBadServices: whatever answers in place of a metadata service, nothing is taken for a notice, nothing hangs, and
// questions become rare.
func TestBadServices(t *testing.T) {
	const span = time.Hour
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request){
		"slow": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"stuck in the middle": func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "{")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
		"malformed":       func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"action": "terminate`) },
		"of another kind": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `<html>Log in, please</html>`) },
		"endless": func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		},
		"redirecting": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/elsewhere" {
				t.Error("a redirect was followed")
			}
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		},
		"broken": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
	} {
		for _, cloud := range []string{"aws", "gcp", "azure"} {
			t.Run(name+" "+cloud, func(t *testing.T) {
				var asked atomic.Int32
				got := hear(t, cloud, "", span, func(w http.ResponseWriter, r *http.Request) { asked.Add(1); answer(w, r) }, nil)
				if len(got) > 0 {
					t.Errorf("heard %+v", got)
				}
				if n, most := int(asked.Load()), 4*int(span/slowest); n == 0 || n > most {
					t.Errorf("asked %d times within %v, want 1 to %d", n, span, most)
				}
			})
		}
	}
}

// TestWhereThereIsNoCloud nothing is asked.
func TestWhereThereIsNoCloud(t *testing.T) {
	for _, setting := range []string{"auto", "off"} {
		hear(t, setting, t.TempDir(), time.Hour, func(http.ResponseWriter, *http.Request) { t.Error("a service was asked") }, nil)
	}
}

func TestDetect(t *testing.T) {
	for _, c := range []struct{ file, text, want string }{
		{"class/dmi/id/sys_vendor", "Amazon EC2\n", aws},
		{"hypervisor/uuid", "ec2e1916-9099-7caf-fd21-012345abcdef\n", aws},
		{"class/dmi/id/sys_vendor", "Google\n", gcp},
		{"class/dmi/id/chassis_asset_tag", azureTag + "\n", azure},
		{"class/dmi/id/sys_vendor", "Microsoft Corporation\n", ""}, // Hyper-V anywhere
		{"class/dmi/id/sys_vendor", strings.Repeat("Google", 1000), ""},
	} {
		root := t.TempDir()
		file := filepath.Join(root, c.file)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := detect(root); got != c.want {
			t.Errorf("%s with %.20q: %q, want %q", c.file, c.text, got, c.want)
		}
	}
}
