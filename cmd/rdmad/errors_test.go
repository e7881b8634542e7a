package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
)

func TestReport(t *testing.T) {
	_, refused := config.Parse("node.toml", []byte("[nod]\n[agent]\ncount = 0\n"))
	root, command := &cobra.Command{Use: "rdmad"}, &cobra.Command{Use: "test"}
	root.AddCommand(command)
	for _, c := range []struct {
		err    error
		status int
		want   []string
	}{
		{nil, 0, nil},
		{statusError(7), 7, nil},
		{fmt.Errorf("wrapped: %w", statusError(7)), 7, nil},
		{errors.New("broken"), 1, []string{"rdmad: broken"}},
		{usagef("wrong"), 2, []string{"rdmad: wrong", "rdmad test --help"}},
		{&configError{fmt.Errorf("unreadable: %w", os.ErrNotExist)}, 2, []string{"unreadable", "rdmad config example"}},
		{&configError{fmt.Errorf("unreadable: %w", os.ErrPermission)}, 2, []string{"unreadable", "as the user of the daemon"}},
		{refused, 2, []string{"node.toml:1: nod", "node.toml:3: agent.count"}},
		{fmt.Errorf("client: x: %w", client.ErrNoService), 1, []string{"rdmad: x: no such service", "rdmad status"}},
		{fmt.Errorf("client: %w", client.ErrVersion), 1, []string{"rdmad version"}},
		{fmt.Errorf("client: %w: 4 workers are attached to domain d (limits.workers)", client.ErrLimit), 1, []string{"rdmad: limit reached: 4 workers are attached to domain d (limits.workers)\n"}},
		{fmt.Errorf("client: %w: the daemon has no descriptor left: raise LimitNOFILE of its service", client.ErrLimit), 1, []string{"raise LimitNOFILE of its service\n"}},
		{attach.DialError("/x.sock", os.ErrPermission), 1, []string{"rdmad: permission denied: cannot open socket /x.sock: permission denied (see node.socket_mode in the daemon's config, and the socket's directory)\n"}},
		{fmt.Errorf("server: %w: no domain admits you (see [[domain]] in its config)", client.ErrPermission), 1, []string{"rdmad: permission denied: no domain admits you (see [[domain]] in its config)\n"}},
		{&client.DeadlineError{Target: "x"}, 1, []string{"(see who serves it with: rdmad status)\n"}},
		{errors.New("node a ended; its log ends:\n  one\n  two\n\nnode b: three"), 1, []string{"rdmad: node a ended; its log ends: one; two; node b: three\n"}},
		{errors.New("b/s/m: \x1b]0;owned\a\x1b[2J\rrdmad: all is well"), 1, []string{"rdmad: b/s/m: ?]0;owned??[2J?rdmad: all is well\n"}},
	} {
		var out strings.Builder
		if got := report(&out, command, c.err); got != c.status {
			t.Errorf("%v: status %d, want %d", c.err, got, c.status)
		}
		for _, w := range c.want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%v: no %q in %q", c.err, w, out.String())
			}
		}
		if len(c.want) == 0 && out.String() != "" {
			t.Errorf("%v: unexpected %q", c.err, out.String())
		}
	}
}

// A flag is only advised to those who have it.
func TestAdviceOfFlags(t *testing.T) {
	root := newRoot()
	for _, line := range []string{"call", "ping", "trace", "bench oneway", "bench call", "status"} {
		c, _, err := root.Find(strings.Fields(line))
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		report(&out, c, &client.DeadlineError{Target: "x"})
		if advised, has := strings.Contains(out.String(), "give it longer with --timeout"), c.Flags().Lookup("timeout") != nil; advised != has {
			t.Errorf("%s: %s", line, out.String())
		}
	}
}
