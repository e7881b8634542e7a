package main

import (
	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/internal/perf"
	"github.com/rdmad/rdmad/internal/perf/pingpong"
)

func newPerfPingpong() *cobra.Command {
	var w perfWork
	var op string
	c := newPerfCommand("pingpong", func(c *cobra.Command) (perf.Tool, error) {
		if err := checkChoice("op", op, pingpong.Ops...); err != nil {
			return nil, err
		}
		work, err := w.work(c)
		return &pingpong.Tool{Work: work, Op: op}, err
	}, w.judge)
	c.Short = "Measure the latency of messages that go back and forth"
	c.Long = "A message goes to the other side and comes back, and only then the next one is sent. With --op read the client reads\n" +
		"the server's memory instead, of which the server knows nothing. Latencies are half of a round trip, except for reads."
	c.Example = "  rdmad perf pingpong --self\n  rdmad perf pingpong node1 --op write-imm -a --events\n  rdmad perf pingpong node1 --max-p99 20us"
	w.flags(c, 2, 1000)
	w.bound(c, true, false)
	choiceFlag(c, &op, "op", pingpong.Ops[0], "what carries the messages", pingpong.Ops...)
	return c
}
