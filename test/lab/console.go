package main

import (
	"bytes"
	"io"
	"strings"
	"sync"
)

const (
	// tailLines is how much of the console is shown when a guest fails.
	tailLines = 40
	// maxLine bounds what is kept of a line.
	maxLine = 1000
)

// troubles are parts of what the kernel prints when it has found a fault in
// itself.
var troubles = []string{"Kernel panic", "BUG:", "Oops:", "WARNING:", "general protection", "UBSAN:", "blocked for more than"}

// console keeps what the guest writes on its console.
type console struct {
	log io.Writer
	// begun is closed when there is something on it.
	begun chan struct{}
	// ready is closed when the agent has said that commands may come.
	ready chan struct{}

	lock    sync.Mutex
	line    []byte
	last    []string
	trouble []string
}

func newConsole(log io.Writer) *console {
	return &console{log: log, begun: make(chan struct{}), ready: make(chan struct{})}
}

// Write takes the next piece of the console. It never fails, as the guest would
// have to wait for a console that nobody takes.
func (c *console) Write(b []byte) (int, error) {
	_, _ = c.log.Write(b)
	c.lock.Lock()
	defer c.lock.Unlock()
	closeOnce(c.begun)
	rest := b
	for {
		part, after, full := bytes.Cut(rest, []byte("\n"))
		c.line = append(c.line, part[:min(len(part), maxLine-len(c.line))]...)
		if !full {
			return len(b), nil
		}
		c.endLine(strings.TrimRight(string(c.line), "\r"))
		c.line = c.line[:0]
		rest = after
	}
}

// closeOnce closes a channel unless it is closed. The caller has the lock.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// endLine takes a whole line.
func (c *console) endLine(line string) {
	if line == readyLine {
		closeOnce(c.ready)
	}
	for _, t := range troubles {
		if strings.Contains(line, t) && len(c.trouble) < tailLines {
			c.trouble = append(c.trouble, line)
			break
		}
	}
	if len(c.last) == tailLines {
		c.last = append(c.last[:0], c.last[1:]...)
	}
	c.last = append(c.last, line)
}

// tail returns the last lines.
func (c *console) tail() string {
	c.lock.Lock()
	defer c.lock.Unlock()
	lines := c.last
	if len(c.line) > 0 {
		lines = append(lines[:len(lines):len(lines)], string(c.line))
	}
	return strings.Join(lines, "\n")
}

// complaints returns the lines in which the kernel reported faults.
func (c *console) complaints() []string {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.trouble
}
