package main

import (
	"io"
	"os"
)

// checkedOutput remembers that something could not be written, for those who do not look:
// help and completions. It is for one goroutine at a time.
type checkedOutput struct {
	out io.Writer
	err error
}

// Write implements io.Writer.
func (o *checkedOutput) Write(b []byte) (int, error) {
	n, err := o.out.Write(b)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}

// newOutput returns the output of a command.
func newOutput() *checkedOutput { return &checkedOutput{out: os.Stdout} }
