package main

import (
	"fmt"
	"io"
	"sync"
)

// output is standard output that remembers whether something could not be written to it:
// a command whose result got lost on a full disk has failed.
type output struct {
	io.Writer

	mu  sync.Mutex // guards err
	err error      // the first
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.err == nil {
			o.err = fmt.Errorf("standard output is not whole: %w", err)
		}
	}
	return n, err
}

// lost is the error of what could not be written.
func (o *output) lost() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
