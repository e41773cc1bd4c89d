package api

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
)

// AddressFile is the name of the file in a node's folder that holds its Address.
const AddressFile = "api.json"

// maxAddressBytes bounds what is read of an address file.
const maxAddressBytes = 4 << 10

// Address is how a node of this machine is reached.
type Address struct {
	// Addr is "host:port" on loopback.
	Addr string `json:"addr"`
	// Token is what every request must carry.
	Token string `json:"token"`
	// Page opens the node's page in a browser of this machine, with a key that allows to look
	// and nothing else.
	Page string `json:"page,omitempty"`
	// Admission is the key with which a page of this machine's user lets machines in. It is new each time a node is started.
	Admission string `json:"admission,omitempty"`
	PID       int    `json:"pid"`
}

// newToken is 128 random bits as text.
func newToken() string { return rand.Text() }

// writeFile puts a file in place in one step, readable by this user only.
func writeFile(dir, name string, content any) error {
	b, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("api: write %s: %w", name, err)
	}
	f, err := os.CreateTemp(dir, name+".*") // mode 0600
	if err != nil {
		return fmt.Errorf("api: write %s: %w", name, err)
	}
	_, err = f.Write(append(b, '\n'))
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("api: write %s: %w", name, err), os.Remove(f.Name()))
	}
	return nil
}

// removeAddress removes the address file if it is still this node's.
func removeAddress(dir string, mine Address) error {
	a, err := readAddress(dir)
	if err != nil || a != mine {
		return nil // gone, or another node's by now
	}
	return os.Remove(filepath.Join(dir, AddressFile))
}

// readAddress reads the address file of a folder; the error wraps ErrNoNode when there
// is none.
func readAddress(dir string) (a Address, err error) {
	err = readFile(dir, AddressFile, &a)
	if errors.Is(err, os.ErrNotExist) {
		return a, fmt.Errorf("%w in %s: start one with `pnode train` or `pnode join`, or name its folder with --dir", ErrNoNode, dir)
	}
	return a, err
}

// readFile reads what writeFile wrote.
func readFile(dir, name string, content any) error {
	path := filepath.Join(dir, name)
	f, err := os.Open(path)
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("api: %w; ask as the user who started the node", err)
	}
	if err != nil {
		return fmt.Errorf("api: %w", err)
	}
	defer f.Close()
	if err := json.NewDecoder(io.LimitReader(f, maxAddressBytes)).Decode(content); err != nil {
		return fmt.Errorf("api: read %s: %w", path, err)
	}
	return nil
}

// ViewFile is the name of the file in a node's folder that holds where its page was last and
// the key to it. It stays when the node ends: an open page finds the next one there.
const ViewFile = "page.json"

// view is where the page is, and the key with which one may look, but do nothing.
type view struct {
	Addr string `json:"addr"`
	Key  string `json:"key"`
}

// path returns where the page itself is, see PagePath.
func (v view) path() string { return PagePath(v.Key) }

// PagePath returns the path of a page that has a key, without what it shows: a secret too, so that a request that knows nothing
// learns nothing, but one that may be written down. It does not tell the key.
func PagePath(key string) string {
	sum := sha256.Sum256([]byte("pnode page " + key))
	return "/" + hex.EncodeToString(sum[:12]) + "/"
}

// listenAgain takes the port that the page of this folder had, with its key, or any with a new
// key where another program has it.
func listenAgain(dir string) (net.Listener, view, error) {
	var last view
	err := readFile(dir, ViewFile, &last)
	host, _, splitErr := net.SplitHostPort(last.Addr)
	if err == nil && splitErr == nil && host == "127.0.0.1" && len(last.Key) >= len(newToken()) { // else not pnode's
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
