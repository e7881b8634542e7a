package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/look"
	"github.com/rdmad/rdmad/cmd/rdmad/table"
)

// pingFlags are the flags of a ping.
type pingFlags struct {
	socket   string
	count    int
	interval time.Duration
	timeout  time.Duration
	json     bool
}

// pingResult is a series of pings as JSON.
type pingResult struct {
	From       string    `json:"from"`
	To         string    `json:"to"`
	RoundTrips []float64 `json:"round_trip_us"`
	Min        float64   `json:"min_us"`
	Avg        float64   `json:"avg_us"`
	Max        float64   `json:"max_us"`
}

func newPing() *cobra.Command {
	var f pingFlags
	c := &cobra.Command{
		Use:   "ping NODE",
		Short: "Exchange messages with the daemon of another node",
		Long: "Exchange messages with the daemon of another node over the bootstrap connection, which the\n" +
			"daemons keep besides the fabric, and print the round trip times. They say whether the daemon\n" +
			"answers, and nothing of the data path: that is measured by rdmad bench.",
		Example: "  rdmad ping b\n  rdmad ping b --count 10 --interval 1s --json",
		Args:    wantArgs(1, 1, "the name of a node"),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case f.count < 1:
				return usagef("--count %d: want at least 1", f.count)
			case f.interval < 0:
				return usagef("--interval %v: must not be negative", f.interval)
			}
			return f.run(c.Context(), c.OutOrStdout(), args[0])
		},
	}
	socketFlag(c, &f.socket)
	c.Flags().IntVarP(&f.count, "count", "n", 4, "how many messages")
	c.Flags().DurationVarP(&f.interval, "interval", "i", 200*time.Millisecond, "pause between messages")
	timeoutFlag(c, &f.timeout, 5*time.Second, "how long to wait for each answer")
	jsonFlag(c, &f.json)
	return c
}

// run pings, printing a line for each answer and then a summary, or everything
// as JSON at the end. What was measured before an error, or a signal, is summed up too.
func (f *pingFlags) run(ctx context.Context, out io.Writer, node string) error {
	attaching, attached := context.WithTimeout(ctx, f.timeout)
	conn, err := client.Attach(attaching, f.socket, client.Name("rdmad-ping"))
	attached()
	if err != nil {
		return unattached(ctx, err, f.socket, f.timeout)
	}
	defer conn.Close()
	r := pingResult{From: conn.Node(), To: node}
	err = f.pings(ctx, conn, out, &r)
	if len(r.RoundTrips) == 0 {
		return err
	}
	r.sum()
	var unshown error
	switch {
	case f.json:
		unshown = writeJSON(out, r)
	case r.From == r.To:
		_, unshown = fmt.Fprintf(out, "%s is this node, and its daemon answers; no connection to a peer was measured\n", table.Plain(r.From))
	default:
		of := ""
		if len(r.RoundTrips) < f.count {
			of = fmt.Sprintf(" of %d", f.count)
		}
		_, unshown = fmt.Fprintf(out, "%s to %s: %d%s answers, round trip min/avg/max %.1f/%.1f/%.1f us\n%s\n",
			table.Plain(r.From), r.To, len(r.RoundTrips), of, r.Min, r.Avg, r.Max, pingedWhat)
	}
	if err == nil {
		err = unshown
	}
	return err
}

// pingedWhat keeps people from taking one for the other.
const pingedWhat = "measured is the bootstrap connection between the daemons, not the data path (for that: rdmad bench call)"

// sum fills in what follows from the round trips.
func (r *pingResult) sum() {
	for _, us := range r.RoundTrips {
		r.Avg += us / float64(len(r.RoundTrips))
	}
	r.Min, r.Max = slices.Min(r.RoundTrips), slices.Max(r.RoundTrips)
}

// pings exchanges the messages.
func (f *pingFlags) pings(ctx context.Context, conn *client.Conn, out io.Writer, r *pingResult) error {
	for i := range f.count {
		if i > 0 {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(f.interval):
			}
		}
		limited, cancel := context.WithTimeout(ctx, f.timeout)
		rtt, err := conn.Ping(limited, r.To)
		cancel()
		if err != nil {
			if err = whoHangs(ctx, conn, err, f.socket); timedOut(ctx, err) && !errors.Is(err, look.ErrNoAnswer) {
				err = fmt.Errorf("node %s has not answered within %v (see: rdmad status)", r.To, f.timeout)
			}
			return err
		}
		us := microseconds(rtt)
		r.RoundTrips = append(r.RoundTrips, us)
		switch {
		case f.json:
			continue
		case r.From == r.To:
			return nil // there is nothing to measure, however often
		case i == 0:
			fmt.Fprintln(out, "  seq      round trip")
		}
		if _, err := fmt.Fprintf(out, "%5d  %11.1f us\n", i+1, us); err != nil {
			return err
		}
	}
	return nil
}
