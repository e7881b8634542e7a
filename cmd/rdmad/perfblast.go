package main

import (
	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/internal/perf"
	"github.com/rdmad/rdmad/internal/perf/blast"
)

func newPerfBlast() *cobra.Command {
	var w perfWork
	t := new(blast.Tool)
	c := newPerfCommand("blast", func(c *cobra.Command) (perf.Tool, error) {
		if err := checkChoice("op", t.Op, blast.Ops...); err != nil {
			return nil, err
		}
		var err error
		t.Work, err = w.work(c)
		return t, err
	}, w.judge)
	c.Short = "Measure the bandwidth of messages that go one way"
	c.Long = "The client sends as many messages as it can, or with --op read reads the server's memory. What is under way is bounded by\n" +
		"--tx-depth and, for send and write-imm, by the credits that the server gives for receives that it has posted. The clock stops\n" +
		"when all messages are in the server's memory, as far as the fabric tells: later than perftest's. With --op write or read in one\n" +
		"direction the server sleeps, whatever --events says: nothing of messages is its business."
	c.Example = "  rdmad perf blast --self --op write -a\n  rdmad perf blast node1 --op send -s 64KiB -D 10\n  rdmad perf blast node1 --min-bw 1000 -q 4 -b"
	w.flags(c, 64<<10, 5000)
	w.bound(c, false, true)
	f := c.Flags()
	choiceFlag(c, &t.Op, "op", blast.Ops[0], "what carries the messages", blast.Ops...)
	f.IntVarP(&t.Queues, "qp", "q", 1, "queue pairs that messages go by at the same time, in each direction; --iters and depths are those of each")
	f.BoolVarP(&t.Both, "bidirectional", "b", false, "both sides send at the same time, each by queue pairs of its own; figures are those of both together")
	f.IntVarP(&t.TxDepth, "tx-depth", "t", blast.DefaultTxDepth, "messages in the client's send queue")
	f.IntVarP(&t.RxDepth, "rx-depth", "r", blast.DefaultRxDepth, "receives that the server posts, and gives credits for")
	f.IntVarP(&t.PostList, "post-list", "l", 1, "messages that are posted by one call")
	return c
}
