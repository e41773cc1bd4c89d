package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/pflag"

	"pnode/node/config"
)

// cores is the value of --threads for commands without a run's settings; Set refuses impossible ones.
type cores struct{ n *int }

// addThreads adds --threads, which sets n.
func addThreads(f *pflag.FlagSet, n *int) {
	f.Var(cores{n}, "threads", "cores to compute on; 0 takes all")
}

func (c cores) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > config.MaxThreads {
		return fmt.Errorf("%q: want a whole number from 0 (all) to %d", text, config.MaxThreads)
	}
	*c.n = n
	return nil
}

func (c cores) String() string {
	if c.n == nil { // of the zero value, which the library asks for the default
		return "0"
	}
	return strconv.Itoa(*c.n)
}

func (cores) Type() string { return "cores" }
