package chaos

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// noticeTime is how long an instance runs after its notice, as Amazon's do.
const noticeTime = 2 * time.Minute

// cloud answers one node as Amazon's metadata service answers a spot instance.
type cloud struct {
	server http.Server
	url    string
	mu     sync.Mutex // guards ends
	ends   time.Time  // when the instance is taken away; zero for not at all
}

// newCloud serves on l until it is closed.
func newCloud(l net.Listener) *cloud {
	c := &cloud{url: "http://" + l.Addr().String()}
	c.server.Handler = http.HandlerFunc(c.answer)
	go func() { _ = c.server.Serve(l) }() // its error is that of close
	return c
}

func (c *cloud) close() { _ = c.server.Close() }

// take has the service say that the instance ends at a time; a zero time takes that back.
func (c *cloud) take(ends time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ends = ends
}

// answer serves a token, and the notice once there is one.
func (c *cloud) answer(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	ends := c.ends
	c.mu.Unlock()
	switch {
	case r.Method == http.MethodPut:
		fmt.Fprint(w, "token")
	case strings.HasSuffix(r.URL.Path, "/spot/instance-action") && !ends.IsZero():
		fmt.Fprintf(w, `{"action": "terminate", "time": %q}`, ends.UTC().Format(time.RFC3339))
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}
