package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Applies says what it takes for a changed key to count.
type Applies struct {
	// Live: a reload is enough. Otherwise the daemon must be restarted.
	Live bool
	// Scope says for what a reload makes it count; empty for everything, at once. Without
	// Live it is why a reload cannot, where that is not plain.
	Scope string
}

// String says it in words.
func (a Applies) String() string {
	switch {
	case !a.Live && a.Scope == "":
		return "restart"
	case !a.Live:
		return "restart: " + a.Scope
	case a.Scope == "":
		return "live"
	}
	return "live, " + a.Scope
}

// live returns that a key is applied by a reload.
func live(scope string) Applies { return Applies{Live: true, Scope: scope} }

// restart is that of keys that shape what exists as long as the daemon runs.
var restart = Applies{}

const (
	laterProcesses = "for processes that attach from then on"
	laterLanes     = "for lanes that are opened from then on"
	laterRegions   = "for regions that are made from then on"
	laterLookUps   = "for methods that are looked up from then on"
)

// applies is the decision for every key; a test refuses a key without one. Whoever makes a
// key live reads it from the conductor's live configuration.
var applies = map[string]Applies{
	"node.name": restart, "node.socket": restart, "node.socket_mode": restart, "node.listen": restart,
	"node.drain_timeout": live(""),
	"node.link_hold":     live("for links that are lost from then on"),
	"node.hang_limit":    restart,

	"fabric.provider": restart, "fabric.listen": restart, "fabric.advertise": restart, "fabric.congestion_control": restart,

	"verbs.device": restart, "verbs.port": restart, "verbs.gid_index": restart, "verbs.connect": restart, "verbs.mtu": restart,
	"verbs.service_level": restart, "verbs.traffic_class": restart, "verbs.hop_limit": restart, "verbs.pkey_index": restart,
	"verbs.timeout": restart, "verbs.retry_count": restart, "verbs.rnr_retry": restart, "verbs.min_rnr_timer": restart,
	"verbs.max_rd_atomic": restart, "verbs.max_inline": restart, "verbs.connect_timeout": restart,

	// The files themselves are read again whenever they change.
	"tls.mode": restart, "tls.cert": restart, "tls.key": restart, "tls.ca": restart, "tls.data": restart,
	"tls.allow": live("for connections that are made from then on"),

	"agent.count": restart, "agent.idle": live(""), "agent.spin": live(""), "agent.cpus": restart,
	"agent.io_uring": restart,

	"group_send.enabled": restart, "group_send.max_messages": restart, "group_send.max_group_delay": live(""),

	"lanes.per_peer": restart, "lanes.balance": live(laterLookUps),

	"libfabric.provider": restart, "libfabric.domain": restart, "libfabric.source": restart,

	"memory.hugepages": restart,

	"observe.counters": restart, "observe.counters_mode": restart, "observe.socket": restart, "observe.socket_mode": restart,
	"observe.listen": restart, "observe.hosts": live(""), "observe.pprof": restart, "observe.ready_peers": restart,

	"class.name": restart, "class.slot_size": restart, "class.slots": restart, "class.max_run": restart,

	"domain.name": restart, "domain.users": live(laterProcesses), "domain.groups": live(laterProcesses),

	"peer.name": live(""), "peer.address": live(""),

	"limits.workers":       live(laterProcesses),
	"limits.worker_slots":  live(laterLanes),
	"limits.worker_bytes":  live(laterProcesses),
	"limits.spill_after":   live(""),
	"limits.spill_bytes":   live(laterProcesses),
	"limits.spill_timeout": live(laterProcesses),
	"limits.strikes":       live(""), "limits.domain_strikes": live(""),
	// Its size is in the ids of methods.
	"limits.services":     restart,
	"limits.connect_wait": live(""),
	"limits.region_bytes": live(laterRegions), "limits.region_count": live(laterRegions),

	"log.level": live(""), "log.format": restart,
}

// Change is a key, or an element of a list, that differs between two configurations.
type Change struct {
	// Path names it: "limits.workers", "peer[b].address", or "peer[b]" for an element that
	// only one of them has.
	Path string `json:"path"`
	// Old and New are the values as TOML writes them; nil for an element that is not there.
	Old any `json:"old"`
	New any `json:"new"`
	// Live is whether a reload applies it, and Scope to what, or why not; see Applies.
	Live  bool   `json:"live"`
	Scope string `json:"scope,omitempty"`
}

// Applies says what it takes for the change to count.
func (c Change) Applies() Applies { return Applies{c.Live, c.Scope} }

// Compare returns what changes from one configuration to another, in the order of the
// file.
func Compare(from, to *Config) []Change {
	var changes []Change
	for _, s := range sections {
		if s.list == nil {
			changes = append(changes, s.compare(s.name, s.at(from, 0), s.at(to, 0))...)
			continue
		}
		changes = append(changes, s.compareElements(from, to)...)
	}
	return changes
}

// compare compares the keys of two tables.
func (s section) compare(path string, from, to any) (changes []Change) {
	for _, k := range s.keys {
		if a, b := k.get(from), k.get(to); !reflect.DeepEqual(a, b) {
			how := applies[s.name+"."+k.name]
			changes = append(changes, Change{join(path, k.name), a, b, how.Live, how.Scope})
		}
	}
	return changes
}

// compareElements compares arrays of tables, whose elements have names.
func (s section) compareElements(from, to *Config) (changes []Change) {
	how := s.element(from)
	mine, theirs := s.byName(from), s.byName(to)
	for _, name := range mine.names {
		path := s.name + "[" + name + "]"
		if j, ok := theirs.at[name]; ok {
			a, b := s.at(from, mine.at[name]), s.at(to, j)
			changes = append(changes, s.compare(path, a, b)...)
			changes = append(changes, compareAdmitted(path, a, b)...)
			continue
		}
		changes = append(changes, Change{path, s.values(s.at(from, mine.at[name])), nil, how.Live, how.Scope})
	}
	for _, name := range theirs.names {
		if _, ok := mine.at[name]; !ok {
			changes = append(changes, Change{s.name + "[" + name + "]", nil, s.values(s.at(to, theirs.at[name])), how.Live, how.Scope})
		}
	}
	if len(changes) == 0 && !slices.Equal(mine.names, theirs.names) {
		changes = append(changes, Change{s.name, mine.names, theirs.names, how.Live, how.Scope})
	}
	return changes
}

// compareAdmitted compares, of domains that admit the same names, what these were looked up as: whom that admits has changed
// with the numbers. A domain that names nobody admits whoever runs the daemon, which is not who compares.
func compareAdmitted(path string, from, to any) (changes []Change) {
	a, ok := from.(*Domain)
	b, same := to.(*Domain)
	if !ok || !same {
		return nil
	}
	users, groups := applies["domain.users"], applies["domain.groups"]
	if len(a.Users) > 0 && slices.Equal(a.Users, b.Users) && !slices.Equal(a.UIDs, b.UIDs) {
		changes = append(changes, Change{join(path, "uids"), a.UIDs, b.UIDs, users.Live, users.Scope})
	}
	if len(a.Groups) > 0 && slices.Equal(a.Groups, b.Groups) && !slices.Equal(a.GIDs, b.GIDs) {
		changes = append(changes, Change{join(path, "gids"), a.GIDs, b.GIDs, groups.Live, groups.Scope})
	}
	return changes
}

// element says what it takes for elements to come or go: as for their names. A node that
// has no peers may have no fabric, as has its next core, and gets one when it is started again.
func (s section) element(from *Config) Applies {
	if s.name == "peer" && len(from.Peers) == 0 {
		return Applies{Scope: "a node without peers, as also one whose last one was removed, needs a fabric and a socket for its first"}
	}
	return applies[s.name+".name"]
}

// named are the elements of an array of tables by their names.
type named struct {
	names []string
	at    map[string]int
}

func (s section) byName(c *Config) named {
	n := named{at: make(map[string]int)}
	for i := range s.list.size(c) {
		for _, k := range s.keys {
			if k.name == "name" {
				name := k.get(s.at(c, i)).(string)
				n.names, n.at[name] = append(n.names, name), i
			}
		}
	}
	return n
}

// ErrTogether is wrapped by Merge's error.
var ErrTogether = errors.New("the keys that a reload applies do not fit those that need a restart")

// Merge returns the running configuration with what a reload applies of the wanted one,
// and the changes between the two, among them those that it leaves out. Neither
// argument is changed.
func Merge(running, wanted *Config) (*Config, []Change, error) {
	changes := Compare(running, wanted)
	doc := running.document()
	for _, s := range sections {
		switch {
		case s.list == nil:
			table := doc[s.name].(map[string]any)
			for _, k := range s.keys {
				if applies[s.name+"."+k.name].Live {
					table[k.name] = k.get(s.at(wanted, 0))
				}
			}
		case s.element(running).Live:
			doc[s.name] = s.tables(wanted)
		default:
			s.mergeElements(doc[s.name].([]map[string]any), wanted)
		}
	}
	admits := running.admits()
	if applies["domain.users"].Live {
		maps.Copy(admits, wanted.admits())
	}
	merged, err := ParseOwn("reload", own(admits, encode(doc)))
	if err != nil {
		return nil, changes, fmt.Errorf("%w: %w", ErrTogether, err)
	}
	return merged, changes, nil
}

// mergeElements takes the live keys of elements of the same name.
func (s section) mergeElements(list []map[string]any, wanted *Config) {
	theirs := s.byName(wanted)
	for _, table := range list {
		i, ok := theirs.at[table["name"].(string)]
		if !ok {
			continue
		}
		for _, k := range s.keys {
			if applies[s.name+"."+k.name].Live {
				table[k.name] = k.get(s.at(wanted, i))
			}
		}
	}
}
