package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/look"
	"github.com/rdmad/rdmad/cmd/rdmad/table"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/printable"
	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/shm"
)

// traceFlags are the flags of a trace.
type traceFlags struct {
	socket  string
	json    bool
	spec    attach.Trace
	timeout time.Duration
}

// traceResult is a trace as JSON.
type traceResult struct {
	Node    string         `json:"node"`
	Traces  []status.Trace `json:"traces"`
	Seen    uint64         `json:"seen"`
	Skipped uint64         `json:"skipped"`
	// Ended is why there are no more: status.TraceCount or status.TraceTimeout.
	Ended string `json:"ended"`
}

func newTrace() *cobra.Command {
	var f traceFlags
	c := &cobra.Command{
		Use:   "trace",
		Short: "Follow requests of this node and print how long each stage took",
		Long: "Follow requests that processes of this node make, as they are made, and print how long each\n" +
			"stage took, and which way they really went. Requests are followed while the command runs;\n" +
			"without it nothing is measured. What is still under way when the time is over is printed too,\n" +
			"with the stage that it is in.\n\n" +
			"The stages add up to the total: claim (from the search for free slots until it was published),\n" +
			"queue (until the daemon had posted it), post (until the provider had done with it), wire (both\n" +
			"ways, and all that is not known otherwise), inbox (from its arrival until a process took it),\n" +
			"handler (until its answer was written) and back (until the caller had it, without the wire).",
		Example: "  rdmad trace --service echo",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return f.run(c.Context(), c.OutOrStdout())
		},
	}
	socketFlag(c, &f.socket)
	c.Flags().StringVar(&f.spec.Service, "service", "", "only requests to this service")
	c.Flags().StringVar(&f.spec.Method, "method", "", "only requests to methods of this name")
	c.Flags().StringVar(&f.spec.Worker, "worker", "", "only requests of this process: its id or name")
	c.Flags().StringVar(&f.spec.Domain, "domain", "", "only requests of this domain")
	c.Flags().IntVarP(&f.spec.Count, "count", "n", 1, "how many requests to follow")
	c.Flags().IntVar(&f.spec.Every, "sample", 1, "follow one of so many requests")
	timeoutFlag(c, &f.timeout, 10*time.Second, "how long to wait for them")
	jsonFlag(c, &f.json)
	return c
}

// check judges the flags.
func (f *traceFlags) check() error {
	if f.spec.Every < 1 {
		return usagef("--sample %d: want at least 1", f.spec.Every)
	}
	f.spec.TimeoutMillis = f.timeout.Milliseconds()
	if err := f.spec.Check(); err != nil {
		return usagef("%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

// traceGrace is how much longer than its time a trace may take: peers that do not answer
// are waited for.
const traceGrace = 15 * time.Second

// traceMinor is the minor version of the ABI from which on daemons follow requests.
const traceMinor = 2

// run follows requests, printing each when it is known, or all as JSON at the end.
func (f *traceFlags) run(outer context.Context, out io.Writer) error {
	attaching, attached := context.WithTimeout(outer, f.timeout)
	s, err := attach.Open(attaching, f.socket, attach.Hello{Role: attach.RoleTool, Name: "rdmad-trace"}, attach.Events{})
	attached()
	if err != nil {
		return unattached(outer, err, f.socket, f.timeout)
	}
	ctx, cancel := context.WithTimeout(outer, f.timeout+traceGrace)
	defer cancel()
	defer func() {
		_ = s.Close()
		s.Release()
	}()
	if v := s.Welcome.ABI; shm.MinorOf(v) < traceMinor {
		return fmt.Errorf("%w: the daemon has ABI %d.%d, and follows requests from %d.%d on", client.ErrVersion,
			shm.MajorOf(v), shm.MinorOf(v), shm.ABIMajor, traceMinor)
	}
	r := traceResult{Node: s.Welcome.Node, Traces: []status.Trace{}}
	for ask := &f.spec; r.Ended == ""; ask = nil {
		a, err := s.Ask(ctx, &attach.Message{Type: attach.TypeTrace, Trace: ask})
		if err != nil {
			return f.ended(outer, err, len(r.Traces))
		}
		var t status.Traced
		raw := a.TracedJSON
		if !f.json {
			raw = printable.JSON(raw)
		}
		if err := json.Unmarshal(raw, &t); err != nil {
			return fmt.Errorf("trace: %w", err)
		}
		r.Seen, r.Skipped, r.Ended = t.Seen, t.Skipped, t.Over
		for i := range t.Traces {
			r.Traces = append(r.Traces, t.Traces[i])
			if f.json {
				continue
			}
			if err := printTrace(out, len(r.Traces), &t.Traces[i]); err != nil {
				return err
			}
		}
	}
	if f.json {
		err = writeJSON(out, r)
	} else if len(r.Traces) > 0 {
		_, err = io.WriteString(out, skippedText(&r))
	}
	if err != nil {
		return err
	}
	switch {
	case len(r.Traces) == 0 && r.Seen > 0:
		return fmt.Errorf("%d requests matched within %s, and none of them was followed to its end (see: rdmad trace --help)", r.Seen, f.timeout)
	case len(r.Traces) == 0:
		return fmt.Errorf("no request that matches was made within %s (see who is there: rdmad workers, rdmad services)", f.timeout)
	}
	return nil
}

// skippedText says how many requests are missing in a trace; empty if none is.
func skippedText(r *traceResult) string {
	if r.Skipped == 0 {
		return ""
	}
	return fmt.Sprintf("\n%d of %d requests that matched were not followed: too many at once, see --sample\n", r.Skipped, r.Seen)
}

// ended explains why a trace has not come to its end. ctx is the one without the command's own limit.
func (f *traceFlags) ended(ctx context.Context, err error, n int) error {
	if timedOut(ctx, err) {
		return fmt.Errorf("%w on %s within %v: the trace has ended after %d of %d requests", look.ErrNoAnswer, attach.SocketPath(f.socket), f.timeout+traceGrace, n, f.spec.Count)
	}
	if !errors.Is(err, client.ErrClosed) {
		return err
	}
	return fmt.Errorf("the trace has ended after %d of %d requests, because the daemon was stopped, upgraded or restarted: begin it again: %w", n, f.spec.Count, err)
}

// printTrace writes one request for people.
func printTrace(out io.Writer, n int, t *status.Trace) error {
	var b strings.Builder
	if n > 1 {
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%s %d: %s/%s/%s of %s, %s", t.Kind, n, t.To, t.Service, t.Method, processText(t.Caller), t.Outcome)
	if t.Handler.PID != 0 {
		fmt.Fprintf(&b, ", handled by %s", processText(t.Handler))
	}
	fmt.Fprintf(&b, "; %d bytes there, %d back\n", t.RequestBytes, t.AnswerBytes)
	stages := table.New("STAGE", "TIME", "SHARE", "CLOCK", "")
	for _, s := range t.Stages {
		spent, share, remark := took(s.NS), "", ""
		if t.TotalNS > 0 {
			share = fmt.Sprintf("%.1f%%", 100*float64(s.NS)/float64(t.TotalNS))
		}
		if !s.Known && s.NS == 0 {
			spent, share = "", ""
		}
		if s.Stage == t.Stage {
			remark = "it is here"
		}
		stages.Row(s.Stage, spent, share, s.Clock, remark)
	}
	stages.Row("total", took(t.TotalNS), "", t.From, "")
	stages.PrintRows(&b)
	fmt.Fprintf(&b, "path: %s\n", pathText(t))
	for _, note := range t.Notes {
		fmt.Fprintf(&b, "note: %s\n", note)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// processText names a process.
func processText(p status.TraceProcess) string {
	if p.PID == 0 {
		return fmt.Sprintf("worker %d", p.ID)
	}
	return fmt.Sprintf("%s (pid %d)", p.Name, p.PID)
}

// pathText describes the way of a request in one line.
func pathText(t *status.Trace) string {
	p := &t.Path
	list := []string{"within the node"}
	if !p.Local {
		list = []string{p.Provider + " to " + p.Address}
		if p.Device != "" {
			list = append(list, p.Device)
		}
	}
	list = append(list, fmt.Sprintf("lane %d (%s %d)", p.Lane, p.Class, p.Number), fmt.Sprintf("slots %d to %d", p.Slot, p.Slot+p.Slots-1),
		fmt.Sprintf("group of %d messages in %d slots", p.GroupMessages, p.GroupSlots))
	if p.WRs > 0 {
		inline := "not inline"
		if p.Inline {
			inline = "inline"
		}
		list = append(list, fmt.Sprintf("%d work requests (%.1f slots each, %s)", p.WRs, p.SlotsPerWR, inline))
	}
	if p.AnswerMessages > 0 {
		list = append(list, fmt.Sprintf("answer in a group of %d", p.AnswerMessages))
	}
	if p.Queued {
		list = append(list, "waited for a process")
	}
	if p.Redispatched > 0 {
		list = append(list, fmt.Sprintf("taken back from a process %d times", p.Redispatched))
	}
	if p.Resent > 0 {
		list = append(list, fmt.Sprintf("sent again %d times", p.Resent))
	}
	return strings.Join(list, ", ")
}

// took formats nanoseconds in the unit that fits them.
func took(ns int64) string {
	switch n := float64(ns); {
	case max(n, -n) < 1e6:
		return fmt.Sprintf("%.1f us", n/1e3)
	case max(n, -n) < 1e9:
		return fmt.Sprintf("%.2f ms", n/1e6)
	default:
		return fmt.Sprintf("%.3f s", n/1e9)
	}
}
