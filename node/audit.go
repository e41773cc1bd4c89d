package node

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"pnode/node/config"
	"pnode/node/ledger"
)

// ErrNoLedger says that a folder has no record of what was computed there.
var ErrNoLedger = errors.New("node: no ledger")

// Audit compares the ledgers in the folders of a run's nodes, which may run. A folder of several local nodes stands
// for all of them. The report says what is wrong; an error that there is nothing to report on.
func Audit(dirs []string) (ledger.Report, error) {
	var nodes []ledger.Node
	var size ledger.Size
	for _, named := range dirs {
		each := config.NodeDirs(named)
		if len(each) == 0 || config.Belongs(named) {
			each = []string{named}
		}
		for _, dir := range each {
			c, err := ledger.Read(dir)
			if errors.Is(err, fs.ErrNotExist) {
				nodes = append(nodes, ledger.Node{Dir: dir}) // it never got so far
				continue
			}
			if err != nil {
				return ledger.Report{}, err
			}
			nodes = append(nodes, ledger.Node{Dir: dir, Contents: c})
			if run, err := LoadRun(dir); err == nil {
				size = ledger.SizeOf(run)
			} else if !errors.Is(err, ErrNoRun) {
				return ledger.Report{}, err
			}
		}
	}
	if !slices.ContainsFunc(nodes, func(n ledger.Node) bool { return n.Head.Run != "" }) {
		return ledger.Report{}, fmt.Errorf("%w in %s: it is there once a node has learned its first plan; name the folders of the run's nodes", ErrNoLedger, strings.Join(dirs, ", "))
	}
	if size == (ledger.Size{}) {
		return ledger.Report{}, fmt.Errorf("%w: none of the folders has %s: it is there once a node has begun to train", ErrNoRun, runFile)
	}
	return ledger.Audit(size, nodes), nil
}
