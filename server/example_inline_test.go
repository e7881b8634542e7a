package server_test

import (
	"github.com/rdmad/rdmad/server"
)

// The option counts where the server is in a core (package node), and changes nothing elsewhere.
func ExampleInline() {
	double := func(c *server.Call) error { return c.Reply(append(c.Request(), c.Request()...)) }
	try(double, "ab", server.Inline())
	// Output:
	// answer: abab
}
