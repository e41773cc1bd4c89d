package main

import (
	"fmt"
	"io"
	"sync"
)

// output remembers the first failed write to standard output: a command whose result was lost on
// a full disk has failed.
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
			o.err = fmt.Errorf("standard output is incomplete: %w", err)
		}
	}
	return n, err
}

// lost returns the error of the first failed write.
func (o *output) lost() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
