package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// dialTimeout is how long the agent of a running guest may take to answer.
const dialTimeout = 60 * time.Second

// guestAddress is where the agent of a guest is and what it must be told.
type guestAddress struct{ token, hostPort string }

// String returns the form that the environment has.
func (a guestAddress) String() string { return a.token + "@" + a.hostPort }

// parseAddress parses the form that the environment has.
func parseAddress(s string) (guestAddress, error) {
	token, hostPort, ok := strings.Cut(s, "@")
	if !ok || token == "" || hostPort == "" {
		return guestAddress{}, errors.New(addressEnv + " does not name a guest: start the command with lab run -- COMMAND")
	}
	return guestAddress{token, hostPort}, nil
}

// client is a command in the guest.
type client struct {
	conn net.Conn
	in   *bufio.Reader
	lock sync.Mutex // of writes
	// taken has a value when the guest wants more input.
	taken chan struct{}
	// ended is closed when the guest says nothing more.
	ended chan struct{}
}

// dial connects to a guest and starts a command there.
func dial(to guestAddress, req request) (*client, error) {
	conn, err := net.DialTimeout("tcp", to.hostPort, dialTimeout)
	if err != nil {
		return nil, fmt.Errorf("no guest at %s, its lab run may have ended: %w", to.hostPort, err)
	}
	c := &client{conn: conn, in: bufio.NewReaderSize(conn, piece), taken: make(chan struct{}, 1), ended: make(chan struct{})}
	if err := c.greet(to.token, req); err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

func (c *client) greet(token string, req request) error {
	if err := c.conn.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return err
	}
	if err := writeFrame(c.conn, frameHello, []byte(token)); err != nil {
		return fmt.Errorf("the guest does not listen: %w", err)
	}
	kind, _, err := readFrame(c.in)
	if err == nil && kind != frameWelcome {
		err = fmt.Errorf("frame %q instead of a welcome", kind)
	}
	if err != nil {
		return fmt.Errorf("the guest does not answer or does not know the token: %w", err)
	}
	if err := writeJSON(c.conn, frameRequest, req); err != nil {
		return fmt.Errorf("asking the guest: %w", err)
	}
	return c.conn.SetDeadline(time.Time{})
}

// output copies the program's output until it ends, and returns how it ended. It
// is called once.
func (c *client) output(stdout, stderr io.Writer) (exit, error) {
	defer close(c.ended)
	for {
		kind, rest, err := readFrame(c.in)
		if err != nil {
			return exit{}, fmt.Errorf("the guest is gone: %w", err)
		}
		switch kind {
		case frameStdout:
			_, err = stdout.Write(rest)
		case frameStderr:
			_, err = stderr.Write(rest)
		case frameTaken:
			select {
			case c.taken <- struct{}{}:
			default:
			}
		case frameExit:
			var end exit
			err := json.Unmarshal(rest, &end)
			return end, err
		default:
			err = fmt.Errorf("the guest sent frame %q: the guest is of another version of lab", kind)
		}
		if err != nil {
			return exit{}, err
		}
	}
}

// input passes input on to the program until it ends or the program does.
func (c *client) input(stdin io.Reader) {
	buf := make([]byte, piece)
	for {
		n, err := stdin.Read(buf)
		if n > 0 {
			if c.send(frameStdin, buf[:n]) != nil {
				return
			}
			select {
			case <-c.taken:
			case <-c.ended:
				return
			}
		}
		if err != nil {
			_ = c.send(frameStdin, nil) // the guest may be gone, which output reports
			return
		}
	}
}

// send writes one frame.
func (c *client) send(kind byte, rest []byte) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	return writeFrame(c.conn, kind, rest)
}
