package look

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/rdmad/rdmad/cmd/rdmad/table"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/status"
)

// Filter says what of a list is wanted; empty fields want everything.
type Filter struct {
	// Domain and Peer are names. What belongs to no peer, or to this node only, has
	// the node's own name.
	Domain, Peer string
	// State is that of a lane or a peer, Role that of a worker.
	State, Role string
	// Names are what the arguments say: see Kind.Args. One that nothing has is an
	// error.
	Names []string
}

// Kind is a list of a state.
type Kind struct {
	// Name is what it is called in the state's JSON, and as a command. Args says what
	// an argument names, for help and errors.
	Name, Args string
	// pick returns whether the filter wants an item, but for its names, and the names
	// that it has.
	pick func(f *Filter, node string, item json.RawMessage) (wanted bool, names []string, err error)
	// rows makes the table of items.
	rows func(node string, items []json.RawMessage) (*table.Table, error)
}

// kindOf makes a Kind of functions that know the items' type.
func kindOf[T any](name, args string, pick func(*Filter, string, *T) (bool, []string), rows func(string, []T) *table.Table) *Kind {
	return &Kind{
		Name: name, Args: args,
		pick: func(f *Filter, node string, raw json.RawMessage) (bool, []string, error) {
			var item T
			if err := json.Unmarshal(raw, &item); err != nil {
				return false, nil, err
			}
			wanted, names := pick(f, node, &item)
			return wanted, names, nil
		},
		rows: func(node string, raws []json.RawMessage) (*table.Table, error) {
			items := make([]T, len(raws))
			for i, raw := range raws {
				if err := json.Unmarshal(raw, &items[i]); err != nil {
					return nil, err
				}
			}
			return rows(node, items), nil
		},
	}
}

// The lists.
var (
	Peers = kindOf("peers", "a peer's name",
		func(f *Filter, _ string, p *status.Peer) (bool, []string) {
			return is(f.State, p.State), []string{p.Name}
		},
		func(_ string, peers []status.Peer) *table.Table { return peerRows(peers) })
	Lanes = kindOf("lanes", "a lane (its number in the column LANE) or a class",
		func(f *Filter, _ string, l *status.Lane) (bool, []string) {
			return is(f.Domain, l.Domain) && is(f.Peer, l.Peer) && is(f.State, l.State), []string{strconv.Itoa(int(l.ID)), l.Class}
		},
		func(_ string, lanes []status.Lane) *table.Table { return laneRows(lanes) })
	Services = kindOf("services", "a service's name, or SERVICE/METHOD",
		func(f *Filter, _ string, v *status.Service) (bool, []string) {
			return is(f.Domain, v.Domain) && is(f.Peer, v.Node), []string{v.Service, v.Service + "/" + v.Method}
		},
		serviceRows)
	Workers = kindOf("workers", "a worker's name, its number or its process id",
		func(f *Filter, _ string, w *status.Worker) (bool, []string) {
			return is(f.Domain, w.Domain) && is(f.Role, w.Role), []string{w.Name, strconv.Itoa(w.ID), strconv.Itoa(w.PID)}
		},
		func(_ string, workers []status.Worker) *table.Table { return fullWorkerRows(workers) })
)

// fullWorkerRows is the table of workers with all that there is of each.
func fullWorkerRows(workers []status.Worker) *table.Table {
	t := table.New("WORKER", "ROLE", "NAME", "PID", "UID", "DOMAIN", "SLOTS", "SLOT BYTES", "REFUSED", "OFFENCES", "SPILLED", "UNREAD", "REGIONS", "REGION BYTES")
	for _, w := range workers {
		t.Row(w.ID, w.Role, w.Name, w.PID, w.UID, w.Domain, w.Slots, w.SlotBytes, w.OverLimit, w.Offences, w.SpilledAnswers, w.SpillUnread, w.Regions, w.RegionBytes)
	}
	return t
}

// is reports whether a value is wanted.
func is(want, have string) bool { return want == "" || want == have }

// Select returns what the filter wants of a list of a state, each item as it came: what this
// program does not know of stays in it.
func (k *Kind) Select(raw json.RawMessage, f *Filter) (node string, items []json.RawMessage, err error) {
	var state map[string]json.RawMessage
	if err := json.Unmarshal(raw, &state); err != nil {
		return "", nil, fmt.Errorf("%w: status: %w", attach.ErrVersion, err)
	}
	var all []json.RawMessage
	for key, to := range map[string]any{"node": &node, k.Name: &all} {
		if err := json.Unmarshal(state[key], to); err != nil {
			return "", nil, fmt.Errorf("%w: the daemon's state has no %q: %w", attach.ErrVersion, key, err)
		}
	}
	items = []json.RawMessage{}
	found := make(map[string]bool)
	for _, item := range all {
		wanted, names, err := k.pick(f, node, item)
		if err != nil {
			return "", nil, fmt.Errorf("%w: %s: %w", attach.ErrVersion, k.Name, err)
		}
		named := len(f.Names) == 0
		for _, want := range f.Names {
			for _, have := range names {
				if want == have {
					named, found[want] = true, true
				}
			}
		}
		if wanted && named {
			items = append(items, item)
		}
	}
	for _, want := range f.Names {
		if !found[want] {
			return "", nil, fmt.Errorf("node %s has nothing called %q among its %s (want %s)", node, want, k.Name, k.Args)
		}
	}
	return node, items, nil
}

// Print writes items for people. chosen: they are what is left by flags.
func (k *Kind) Print(out io.Writer, node string, items []json.RawMessage, chosen bool) error {
	var b strings.Builder
	if len(items) == 0 {
		such := ""
		if chosen {
			such = "such "
		}
		fmt.Fprintf(&b, "node %s has no %s%s\n", table.Plain(node), such, k.Name)
	}
	t, err := k.rows(node, items)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", attach.ErrVersion, k.Name, err)
	}
	t.PrintRows(&b)
	_, err = io.WriteString(out, b.String())
	return err
}
