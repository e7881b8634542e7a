package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/internal/perf"
	"github.com/rdmad/rdmad/internal/perf/rc"
)

func newPerfRC() *cobra.Command {
	var w perfWork
	t := new(rc.Tool)
	size, limit := byteSize(4096), perfTime(5*time.Second)
	c := newPerfCommand(rc.Name, func(*cobra.Command) (perf.Tool, error) {
		t.Size, t.PollTimeout = int(size), time.Duration(limit)
		return t, w.checkThresholds()
	}, w.judge)
	c.Short = "Do a send, an RDMA read and an RDMA write, and show all attributes of the connection"
	c.Long = "Connect two ends by an exchange over TCP, print what both are made of (for verbs: the attributes of the queue pairs, by the\n" +
		"step that has set them), and move the same number of bytes by a send, an RDMA read and an RDMA write, in both directions.\n" +
		"Both sides compare every byte, and tell each other a digest of what they have seen. It is for finding out what does not work:\n" +
		"an error names the step and what was waited for. Times are those of one cold operation, and so\n" +
		"are the thresholds: each operation must keep them."
	c.Example = "  rdmad perf rc --self\n  rdmad perf rc node1 --fabric verbs -d mlx5_0 -x 3\n  rdmad perf rc node1 -s 1MiB --poll-timeout 2s --json"
	f := c.Flags()
	f.VarP(&size, "size", "s", "bytes that each operation moves")
	f.Var(&limit, "poll-timeout", "how long a completion may take")
	f.Uint64Var(&t.Seed, "seed", 1, "what the bytes are made of")
	w.bound(c, true, true)
	f.BoolVarP(&t.Event, "events", "e", false, "sleep until there are completions instead of polling for them")
	return c
}
