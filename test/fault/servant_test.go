//go:build faultpoints

package fault

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/server"
)

// servantArgs are what a servant is told.
type servantArgs struct {
	Socket string
	// Executions is a file to which handlers append the ids of their requests.
	Executions string
	// Kill is what happens to it where.
	Kill string
	// Slow makes its handlers take so long that an agent without other work sleeps.
	Slow bool
}

// runServant is the main function of a process of service v. It may die at any step. It
// says "ready" when it serves, and ends with its standard input.
func runServant(args []string) error {
	var a servantArgs
	if err := json.Unmarshal([]byte(args[0]), &a); err != nil {
		return err
	}
	executions, err := os.OpenFile(a.Executions, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer executions.Close()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		cancel()
	}()
	if err := faultpoint.Arm(a.Kill); err != nil {
		return err
	}
	s, err := server.Attach(ctx, a.Socket, server.Workers(2))
	if err != nil {
		return err
	}
	do := func(c *server.Call) error {
		if a.Slow {
			time.Sleep(idle)
		}
		id := binary.LittleEndian.Uint64(c.Request())
		if _, err := fmt.Fprintln(executions, id); err != nil {
			return err
		}
		return c.Reply(binary.LittleEndian.AppendUint64(nil, id))
	}
	fill := func(c *server.Call) error {
		region, id := c.Region(0), c.Request()[:8]
		if a.Slow {
			time.Sleep(idle)
		}
		for off := int64(0); off < 64; off += 8 {
			if _, err := region.WriteAt(id, off); err != nil {
				return err
			}
		}
		return do(c)
	}
	err = errors.Join(
		s.Handle("v", "do", do, server.AnswerSize(8)),
		s.Handle("v", "fill", fill, server.AnswerSize(8)))
	if err == nil {
		fmt.Println("ready")
		err = s.Serve(ctx)
	}
	return errors.Join(err, s.Close())
}
