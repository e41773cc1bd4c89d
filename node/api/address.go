package api

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	PID  int    `json:"pid"`
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
	if err != nil {
		return fmt.Errorf("api: %w", err)
	}
	defer f.Close()
	if err := json.NewDecoder(io.LimitReader(f, maxAddressBytes)).Decode(content); err != nil {
		return fmt.Errorf("api: read %s: %w", path, err)
	}
	return nil
}
