package config_test

import (
	"fmt"

	"github.com/rdmad/rdmad/internal/config"
)

// All problems of a file come at once, with their lines.
func ExampleParse() {
	_, err := config.Parse("rdmad.toml", []byte(`[node]
name = "db1"
drain_timeout = 10

[agent]
cuont = 2

[[peer]]
name = "db1"
address = "192.0.2.7"
`))
	fmt.Println(err)
	// Output:
	// rdmad.toml:1: node.listen: is required when there are peers
	// rdmad.toml:3: node.drain_timeout: must be a string with a unit such as "10s", "250ms" or "50us", got an integer
	// rdmad.toml:6: agent.cuont: unknown key, did you mean "count"?
	// rdmad.toml:9: peer[0].name: "db1" is the name of this node
	// rdmad.toml:10: peer[0].address: must be host:port, got "192.0.2.7": missing port in address
}

// Keys that a file leaves out have their defaults.
func ExampleParse_defaults() {
	c, err := config.Parse("rdmad.toml", []byte("[agent]\ncount = 2\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Agent.Count, c.Agent.Idle, c.Classes[0].Name, c.Classes[1].Name)
	// Output: 2 adaptive small large
}
