package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemon"
)

// statusLimit is how long a daemon may take to describe itself.
const statusLimit = 5 * time.Second

func newStatus() *cobra.Command {
	var socket string
	var asJSON bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the daemon's peers, lanes, services, workers and counters",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			raw, err := askStatus(c.Context(), socket)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), raw)
			}
			var s daemon.Status
			if err := json.Unmarshal(raw, &s); err != nil {
				return fmt.Errorf("status: %w", err)
			}
			return printStatus(c.OutOrStdout(), &s)
		},
	}
	socketFlag(c, &socket)
	jsonFlag(c, &asJSON)
	return c
}

func askStatus(ctx context.Context, socket string) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	conn, err := client.Attach(ctx, socket, client.Name("rdmad-status"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.Status(ctx)
}

// printStatus writes the status as tables. Tables without rows are left out.
func printStatus(out io.Writer, s *daemon.Status) error {
	var b strings.Builder
	state := "running"
	if s.Draining {
		state = "draining"
	}
	listen := s.Listen
	if listen == "" {
		listen = "no peers"
	}
	fabric := s.Fabric
	if fabric == "" {
		fabric = "none"
	}
	fmt.Fprintf(&b, "node %s: %s for %s, rdmad %s, fabric %s, listens on %s, pids %d (supervisor) %d (core)\n",
		s.Node, state, seconds(s.UptimeS), s.Version, fabric, listen, s.PIDs.Supervisor, s.PIDs.Core)
	if s.FabricDetail != "" {
		fmt.Fprintf(&b, "fabric %s: %s\n", s.Fabric, s.FabricDetail)
	}
	if s.FallbackReason != "" {
		fmt.Fprintf(&b, "WARNING: fabric.provider = %q fell back to %s: %s (for more see: rdmad doctor)\n", s.FabricWanted, s.Fabric, s.FallbackReason)
	}

	peers := newTable("PEER", "ADDRESS", "STATE", "SINCE", "SERVICES", "ERROR")
	for _, p := range s.Peers {
		peers.row(p.Name, p.Address, p.State, seconds(p.SinceS), p.Services, p.Error)
	}
	services := newTable("SERVICE", "METHOD", "NODE", "DOMAIN", "PROCESSES", "ID")
	for _, v := range s.Services {
		processes := ""
		if v.Node == s.Node {
			processes = fmt.Sprint(v.Workers)
		}
		services.row(v.Service, v.Method, v.Node, v.Domain, processes, v.ID)
	}
	workers := newTable("WORKER", "ROLE", "NAME", "PID", "UID", "DOMAIN")
	for _, w := range s.Workers {
		workers.row(w.ID, w.Role, w.Name, w.PID, w.UID, w.Domain)
	}
	lanes := newTable("LANE", "DIRECTION", "PEER", "DOMAIN", "CLASS", "STATE", "SLOTS", "BYTES/SLOT", "BUSY")
	for _, l := range s.Lanes {
		lanes.row(l.ID, l.Direction, l.Peer, l.Domain, l.Class, l.State, l.Slots, l.SlotSize, l.Busy)
	}
	paths := newTable("LANE", "PATH")
	for _, l := range s.Lanes {
		if l.Path != "" {
			paths.row(l.ID, l.Path)
		}
	}
	counters := newTable("COUNTER", "VALUE")
	for _, name := range slices.Sorted(maps.Keys(s.Counters)) {
		if n := s.Counters[name]; n != 0 {
			counters.row(name, n)
		}
	}
	for _, t := range []*table{peers, services, workers, lanes, paths, counters} {
		t.print(&b)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// seconds formats a time in seconds.
func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}

// table is rows of columns, aligned. Empty cells are printed as a dash, except in
// columns without a heading, which hold remarks.
type table struct {
	head []string
	rows [][]string
}

func newTable(head ...string) *table { return &table{head: head} }

func (t *table) row(values ...any) {
	r := make([]string, len(values))
	for i, v := range values {
		r[i] = fmt.Sprint(v)
		if r[i] == "" && t.head[i] != "" {
			r[i] = "-"
		}
	}
	t.rows = append(t.rows, r)
}

// print writes the table with an empty line before it, if it has rows.
func (t *table) print(b *strings.Builder) {
	if len(t.rows) == 0 {
		return
	}
	b.WriteByte('\n')
	t.printRows(b)
}

// printRows writes the table, if it has rows.
func (t *table) printRows(b *strings.Builder) {
	if len(t.rows) == 0 {
		return
	}
	var aligned strings.Builder
	w := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	for _, r := range append([][]string{t.head}, t.rows...) {
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	// Writing to a strings.Builder cannot fail.
	_ = w.Flush()
	for line := range strings.Lines(aligned.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
}
