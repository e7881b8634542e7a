package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// What a process is told when it is started in a role.
const (
	roleEnv = "RDMAD_TORTURE_ROLE"
	argsEnv = "RDMAD_TORTURE_ARGS"
)

// roleArgs are the arguments of a role.
type roleArgs struct {
	// Dir holds the board and the books.
	Dir string
	// Socket is where to attach, Node the name of that node.
	Socket, Node string
	// Peer is the name of the other node.
	Peer string
	// Instance is the number of the process, different for each that is started.
	Instance int
	// Seed is where its random choices begin.
	Seed uint64
	// Depth is how many goroutines a worker has, or handlers a service.
	Depth int
	// Most is the size of the largest messages in bytes.
	Most int
	// Witness makes small calls one after the other and writes down their time.
	Witness bool
	// Sabotage makes a service get things wrong on purpose.
	Sabotage bool
	// Serve makes a hostile worker attach as a service.
	Serve bool
}

// roles are what the program can be started as besides the harness.
var roles = map[string]func(context.Context, *roleArgs) error{
	"worker": workerRole, "service": serviceRole, "hostile": hostileRole, "decoy": decoyRole, "neighbour": neighbourRole,
}

func main() {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(play(role))
	}
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}

// play runs a role until it has done its work or is told to end by SIGTERM.
func play(role string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	args := new(roleArgs)
	err := json.Unmarshal([]byte(os.Getenv(argsEnv)), args)
	if f := roles[role]; err == nil && f != nil {
		err = f(ctx, args)
	} else if err == nil {
		err = errors.New("there is no such role")
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s %d: %v\n", role, args.Instance, err)
		return 1
	}
	return 0
}
