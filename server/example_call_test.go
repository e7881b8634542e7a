package server_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rdmad/rdmad/server"
)

func ExampleCall_Reply() {
	try(func(c *server.Call) error {
		return c.Reply(bytes.ToUpper(c.Request()))
	}, "shout")
	// Output:
	// answer: SHOUT
}

func ExampleCall_Answer() {
	// The answer is written in place of the request, without a copy.
	try(func(c *server.Call) error {
		n := len(c.Request())
		p := c.Answer(n)
		for i := range n / 2 {
			p[i], p[n-1-i] = p[n-1-i], p[i]
		}
		return nil
	}, "stressed")
	// Output:
	// answer: desserts
}

func ExampleCall_Request() {
	// Other processes of the domain could change the request at any time: copy
	// what is checked before it is used.
	try(func(c *server.Call) error {
		name := string(c.Request())
		if strings.Contains(name, "/") {
			return errors.New("no slashes, please")
		}
		return c.Reply([]byte("opening " + name))
	}, "etc/passwd")
	// Output:
	// error: no slashes, please
}

func ExampleCall_Capacity() {
	try(func(c *server.Call) error {
		all := strings.Repeat("data ", 1000)
		return c.Reply([]byte(all[:min(len(all), c.Capacity())]))
	}, "", server.AnswerSize(14))
	// Output:
	// answer: data data data
}

func ExampleCall_Context() {
	try(func(c *server.Call) error {
		select {
		case <-c.Context().Done(): // nobody waits for the answer any more
			return c.Context().Err()
		case <-time.After(time.Millisecond):
			return c.Reply([]byte("in time"))
		}
	}, "")
	// Output:
	// answer: in time
}

func ExampleCall_Cookie() {
	try(func(c *server.Call) error {
		return c.Reply(fmt.Append(nil, c.Cookie()))
	}, "")
	// Output:
	// answer: 0
}

func ExampleAnswerSize() {
	// Callers reserve room for what a method declares; larger answers are fetched.
	try(func(c *server.Call) error { return c.Reply([]byte(fmt.Sprint("room for ", c.Capacity()))) }, "", server.AnswerSize(64))
	// Output:
	// answer: room for 64
}

func ExampleAnswerLikeRequest() {
	try(func(c *server.Call) error { return c.Reply(c.Request()) }, "echo", server.AnswerLikeRequest())
	// Output:
	// answer: echo
}
