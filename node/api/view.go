package api

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
)

// ViewFile is the name of the file in a node's folder that holds where its page was last and
// the key to it. It stays when the node ends: an open page finds the next one there.
const ViewFile = "page.json"

// view is where the page is, and the key with which one may look, but do nothing.
type view struct {
	Addr string `json:"addr"`
	Key  string `json:"key"`
}

// path is where the page itself is, without what it shows: a secret too, so that a request
// that knows nothing learns nothing, but one that may be written down. The key is not told by it.
func (v view) path() string {
	sum := sha256.Sum256([]byte("pnode page " + v.Key))
	return "/" + hex.EncodeToString(sum[:12]) + "/"
}

// url opens the page. The key follows the #, which a browser sends nowhere.
func (v view) url() string { return "http://" + v.Addr + v.path() + "#" + v.Key }

// listenAgain takes the port that the page of this folder had, with its key, or any with a new
// key where another program has it.
func listenAgain(dir string) (net.Listener, view, error) {
	if last, err := readView(dir); err == nil {
		if l, err := net.Listen("tcp", last.Addr); err == nil {
			return l, last, nil
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, view{}, fmt.Errorf("api: listen on loopback: %w", err)
	}
	fresh := view{Addr: l.Addr().String(), Key: newToken()}
	if err := writeFile(dir, ViewFile, fresh); err != nil {
		return nil, view{}, errors.Join(err, l.Close())
	}
	return l, fresh, nil
}

// readView reads where a folder's page was; one that is not on loopback was not pnode's.
func readView(dir string) (v view, err error) {
	if err := readFile(dir, ViewFile, &v); err != nil {
		return view{}, err
	}
	host, _, err := net.SplitHostPort(v.Addr)
	if err != nil || host != "127.0.0.1" || len(v.Key) < len(newToken()) {
		return view{}, fmt.Errorf("api: %s names %.40q with a key of %d characters: want 127.0.0.1 and a port", ViewFile, v.Addr, len(v.Key))
	}
	return v, nil
}
