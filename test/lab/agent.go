package main

import (
	"bytes"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

// readyLine is what the agent prints on the console when commands may come.
const readyLine = "lab: the guest is ready"

// helloTimeout is how long a client may take to say who it is and what it wants.
const helloTimeout = 30 * time.Second

// agent runs commands for those who know the token.
type agent struct {
	token []byte
	// live is where the host's files are seen as they are now; empty if nowhere.
	live string
	// groups is a directory of the cgroup file system for a group per command;
	// empty makes process groups do.
	groups string
}

func newAgent() *cobra.Command {
	var a agent
	var listen, tokenFile string
	c := &cobra.Command{
		Use:    "agent",
		Short:  "Run commands in the guest; its init starts this",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			token, err := os.ReadFile(tokenFile)
			if err != nil {
				return err
			}
			a.token = bytes.TrimSpace(token)
			l, err := net.Listen("tcp", listen)
			if err != nil {
				return err
			}
			fmt.Println(readyLine)
			return a.serve(l)
		},
	}
	c.Flags().StringVar(&listen, "listen", "", "address of the command port")
	c.Flags().StringVar(&tokenFile, "token", "", "file with the token that clients must know")
	c.Flags().StringVar(&a.live, "live", "", "where the host's files are seen as they are now")
	c.Flags().StringVar(&a.groups, "groups", "", "directory for control groups")
	return c
}

// serve runs what clients ask for until the listener is closed.
func (a *agent) serve(l net.Listener) error {
	if len(a.token) == 0 {
		return errors.New("the token is empty: anybody could run commands")
	}
	var clients sync.WaitGroup
	defer clients.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		clients.Go(func() {
			defer conn.Close()
			a.handle(conn)
		})
	}
}

// handle serves one client. Errors of the connection have nobody to be told to:
// the client sees that it ends.
func (a *agent) handle(conn net.Conn) {
	req, err := a.greet(conn)
	if err != nil {
		return
	}
	end := a.run(conn, req)
	// The client closes the connection when it has read this, or has done so
	// already.
	_ = writeJSON(conn, frameExit, end)
}

// greet checks the token and reads the request.
func (a *agent) greet(conn net.Conn) (request, error) {
	var req request
	if err := conn.SetDeadline(time.Now().Add(helloTimeout)); err != nil {
		return req, err
	}
	kind, token, err := readFrame(conn)
	if err != nil {
		return req, err
	}
	if kind != frameHello || subtle.ConstantTimeCompare(token, a.token) != 1 {
		return req, errors.New("wrong token")
	}
	if err := writeFrame(conn, frameWelcome, nil); err != nil {
		return req, err
	}
	kind, rest, err := readFrame(conn)
	if err != nil {
		return req, err
	}
	if kind != frameRequest {
		return req, fmt.Errorf("frame %q where a request must be", kind)
	}
	if err := json.Unmarshal(rest, &req); err != nil {
		return req, err
	}
	if len(req.Args) == 0 {
		return req, errors.New("a request without a program")
	}
	return req, conn.SetDeadline(time.Time{})
}
