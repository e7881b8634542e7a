package config

import (
	"os"
	"regexp"
	"time"

	"github.com/rdmad/rdmad/shm"
)

// section is a table of the file, or an array of tables.
type section struct {
	name string
	// doc is printed above the section in Example.
	doc string
	// list is nil for a plain table.
	list *list
	// at returns a pointer to the Go struct of the section: element i of a
	// list, whatever i otherwise.
	at   func(c *Config, i int) any
	keys []key
}

// list is what an array of tables has besides its keys.
type list struct {
	// grow appends a zero element.
	grow func(c *Config)
	// size returns the number of elements.
	size func(c *Config) int
	// least and most bound the number of elements; most 0 is no bound.
	least, most int
	// elements are what a file without the section gets.
	elements []map[string]any
	// sample is shown, commented out, where there are no default elements.
	sample map[string]any
}

// key is one key of a section.
type key struct {
	name string
	// doc is the meaning, with the unit where there is one.
	doc string
	// typ is the type of the values, for people, and allowed their range.
	typ     string
	allowed string
	// def is the default as the TOML decoder would give it; nil: required.
	def any
	// set reads, checks and stores a decoded value in the section's struct.
	set func(dst, v any) error
	// get returns the value from the section's struct as TOML writes it.
	get func(src any) any
	// withheld is that of the kind.
	withheld bool
}

// bind makes the key of one field of the section struct S.
func bind[S, T any](name string, def any, field func(*S) *T, k kind[T], doc string) key {
	return key{
		name: name, doc: doc, typ: typeFor[T](), allowed: k.allowed, def: def, withheld: k.withheld,
		set: func(dst, v any) error {
			if l, ok := v.(unreadable); ok {
				return l.refused(k.allowed, k.withheld, func(text string) error {
					_, err := k.read(text)
					return err
				})
			}
			x, err := k.read(v)
			if err == nil {
				*field(dst.(*S)) = x
			}
			return err
		},
		get: func(src any) any { return k.show(*field(src.(*S))) },
	}
}

// plain makes the at function of a plain table.
func plain[S any](of func(*Config) *S) func(*Config, int) any {
	return func(c *Config, _ int) any { return of(c) }
}

// elements makes the functions of an array of tables.
func elements[S any](of func(*Config) *[]S, l list) (*list, func(*Config, int) any) {
	l.grow = func(c *Config) { *of(c) = append(*of(c), *new(S)) }
	l.size = func(c *Config) int { return len(*of(c)) }
	return &l, func(c *Config, i int) any { return &(*of(c))[i] }
}

// Bounds of a class. check.go adds what depends on several keys.
const (
	slotAlign    = 64
	minSlotSize  = 128
	maxSlotSize  = 64 << 10
	minSlots     = 64
	maxSlots     = 64 << 10
	maxRun       = 511
	maxClasses   = 8
	maxRingBytes = 4 << 30
)

// No ring can exceed maxRingBytes, so there is nothing to check when a file is
// read: this fails to compile if the bounds above stop saying so.
const _ = uint64(maxRingBytes - maxSlots*maxSlotSize)

// sections is the configuration file: every key with its default, range and
// meaning, in the order in which Example prints them.
var sections = allSections()

func allSections() []section {
	classList, classAt := elements(func(c *Config) *[]Class { return &c.Classes }, list{
		least: 1, most: maxClasses,
		elements: []map[string]any{
			{"name": "small", "slot_size": int64(128), "slots": int64(8192), "max_run": int64(64)},
			// A multiple of 4,096 would put the headers of all slots into the same few
			// sets of a cache; and this way a page of 8 KiB with its header takes two slots.
			{"name": "large", "slot_size": int64(4160), "slots": int64(2048), "max_run": int64(511)},
		},
	})
	domainList, domainAt := elements(func(c *Config) *[]Domain { return &c.Domains }, list{
		least:    1,
		elements: []map[string]any{{"name": "default"}},
	})
	peerList, peerAt := elements(func(c *Config) *[]Peer { return &c.Peers }, list{
		sample: map[string]any{"name": "node-b", "address": "192.0.2.2:7471"},
	})
	return []section{
		{name: "node", doc: "This daemon and the sockets it is reached by.",
			at: plain(func(c *Config) *Node { return &c.Node }), keys: nodeKeys()},
		{name: "fabric", doc: "The transport between nodes.",
			at: plain(func(c *Config) *Fabric { return &c.Fabric }), keys: fabricKeys()},
		{name: "verbs", doc: "The RDMA device and its queue pairs, for the provider verbs; others ignore this. " +
			"What there is to choose from: rdmad devices. What is wrong with it: rdmad doctor.",
			at: plain(func(c *Config) *Verbs { return &c.Verbs }), keys: verbsKeys()},
		{name: "libfabric", doc: "What of libfabric is used, for the provider libfabric; others ignore this. " +
			"What there is to choose from: rdmad devices.",
			at: plain(func(c *Config) *Libfabric { return &c.Libfabric }), keys: libfabricKeys()},
		{name: "tls", doc: "Who a peer is, and what nobody else is to hear: mutual TLS 1.3 for the connection by which two nodes " +
			"set up everything else. Certificates are made by: rdmad certs init. What this protects and what it does not is in " +
			"docs/security.md.",
			at: plain(func(c *Config) *TLS { return &c.TLS }), keys: tlsKeys()},
		{name: "agent", doc: "The threads that move messages.",
			at: plain(func(c *Config) *Agent { return &c.Agent }), keys: agentKeys()},
		{name: "group_send", doc: "Sending consecutive messages, of any workers, with one post.",
			at: plain(func(c *Config) *GroupSend { return &c.GroupSend }), keys: groupSendKeys()},
		{name: "lanes", doc: "How many lanes lead to a peer, each with a ring and a connection of its own, and how a process " +
			"spreads its requests over them. The two ends of a link may differ.",
			at: plain(func(c *Config) *Lanes { return &c.Lanes }), keys: laneKeys()},
		{name: "memory", doc: "How shared memory is made.",
			at: plain(func(c *Config) *Memory { return &c.Memory }), keys: memoryKeys()},
		{name: "class", doc: "Ring classes, 1 to 8. Every lane has one ring of each class and a message goes to " +
			"the class that fits it, so that small messages do not pay for large slots. Both ends of a link " +
			"need the same classes. A file that has any [[class]] replaces all of these.",
			list: classList, at: classAt, keys: classKeys()},
		{name: "domain", doc: "Trust domains: the workers that may share rings. The domain of a worker follows from " +
			"the user id and group ids of its process, never from what it says. A file that has any [[domain]] " +
			"replaces this one.",
			list: domainList, at: domainAt, keys: domainKeys()},
		{name: "peer", doc: "Other nodes to connect to; none by default. Needs node.listen. Peers come and go by a reload; a node's first peer takes a restart.",
			list: peerList, at: peerAt, keys: peerKeys()},
		{name: "limits", doc: "What one domain, or one process, can make the daemon spend.",
			at: plain(func(c *Config) *Limits { return &c.Limits }), keys: limitKeys()},
		{name: "observe", doc: "Where the daemon can be looked at: counters in a file that can be read even when the daemon hangs, and " +
			"HTTP with /metrics, /healthz, /readyz, /statusz and /debug/pprof. There is no authentication: whoever can connect can read.",
			at: plain(func(c *Config) *Observe { return &c.Observe }), keys: observeKeys()},
		{name: "log", doc: "What is logged, to standard error.",
			at: plain(func(c *Config) *Log { return &c.Log }), keys: logKeys()},
	}
}

func nodeKeys() []key {
	return []key{
		bind("name", "", func(n *Node) *string { return &n.Name },
			text(nodeNameForm+`, or "" for the host name without its domain`, optional(nodeName)),
			"How peers know this node."),
		bind("socket", "/run/rdmad/rdmad.sock", func(n *Node) *string { return &n.Socket },
			text("an absolute path of at most 107 bytes", socketPath),
			"The Unix socket that workers attach to."),
		bind("socket_mode", "0660", func(n *Node) *os.FileMode { return &n.SocketMode },
			fileMode(),
			"Permissions of the socket. Who may attach is decided by [[domain]]; this only keeps others from asking."),
		bind("listen", "", func(n *Node) *string { return &n.Listen },
			text(`host:port such as "0.0.0.0:7471", or "" for a node without peers`, optional(listenAddress)),
			"Where peers reach this node to set up links."),
		bind("drain_timeout", "10s", func(n *Node) *time.Duration { return &n.DrainTimeout },
			duration(0, time.Hour),
			"How long an orderly stop waits for calls in flight before it fails them, and, within node.link_hold, for peers whose links are lost meanwhile."),
		bind("link_hold", "10s", func(n *Node) *time.Duration { return &n.LinkHold },
			duration(0, time.Hour),
			"How long requests wait for a lost link to a peer to come back. If it does, and the peer has not been started anew meanwhile, each of them is still executed once; after this time they fail."),
		bind("hang_limit", "20s", func(n *Node) *time.Duration { return &n.HangLimit },
			durationOrNever(2*time.Second, time.Hour),
			"How long the core may make no progress before the supervisor replaces it, as if it had died: its stacks go to the log, and workers see a pause. Less than the service manager's watchdog, which starts the whole service anew. Never, for a debugger."),
	}
}

func fabricKeys() []key {
	return []key{
		bind("provider", "tcp", func(f *Fabric) *string { return &f.Provider },
			oneOf("tcp", "verbs", "libfabric", "auto"),
			`What moves the data. Only "auto" ever falls back to tcp, and it says so in the log and in the status.`),
		bind("listen", "0.0.0.0:0", func(f *Fabric) *string { return &f.Listen },
			text("host:port; port 0 lets the system choose", listenAddress),
			`Where the provider tcp accepts data connections. Of it, verbs uses the port with connect = "rdmacm"; others ignore it.`),
		bind("advertise", "", func(f *Fabric) *string { return &f.Advertise },
			text(`an IP address or host name without a port, or "" for the address of the host that listen or node.listen names, or else the address used towards the first peer`, optional(hostOnly)),
			`The host that peers are told to connect to for data. With the provider tcp peers look a name up themselves; libfabric uses the address that this node finds for it, and verbs with connect = "rdmacm" that one of them which the port has; with "oob" it has no use for any. A name in node.listen that this machine knows as a loopback address counts only where there is no route to a peer.`),
		bind("congestion_control", "auto", func(f *Fabric) *string { return &f.Congestion },
			pattern(congestionName, `"auto", "system" or the kernel's name of one, of at most 15 bytes, such as "cubic" or "dctcp"`),
			"The congestion control of data connections of the provider tcp, which this node's end sends with. \"auto\" is the system's, but \"cubic\" in place of \"bbr\", whose timers cost large messages a third of the processor time that they take (docs/performance.md)."),
	}
}

// congestionName is what tcp(7) takes for TCP_CONGESTION.
var congestionName = regexp.MustCompile(`^[a-z0-9_-]{1,15}$`)

func tlsKeys() []key {
	path := text(`an absolute path of at most 4095 bytes, or ""`, optional(credentialPath))
	path.withheld = true
	return []key{
		bind("mode", TLSOff, func(t *TLS) *string { return &t.Mode },
			oneOf(TLSOff, TLSRequired),
			`"required" refuses peers without a good certificate, "off" believes every peer what it says. Both ends of a link need the same.`),
		bind("cert", "", func(t *TLS) *string { return &t.Cert }, path,
			"This node's certificate, PEM, with the name rdmad://node/NAME where NAME is node.name. It is read again when it changes, as are the next two."),
		bind("key", "", func(t *TLS) *string { return &t.Key }, path,
			"Its private key, PEM. Nobody but the file's owner may have access to it."),
		bind("ca", "", func(t *TLS) *string { return &t.CA }, path,
			"The authorities that sign nodes' certificates, PEM. No others are trusted, whatever the system trusts."),
		bind("allow", []any{}, func(t *TLS) *[]string { return &t.Allow },
			nameList("nodes", nodeName),
			"The nodes that may connect to this one, each a [[peer]]. Empty: every [[peer]]."),
		bind("data", "", func(t *TLS) *string { return &t.Data },
			oneOf("", "plain", TLSDataTLS),
			`Data connections of fabric.provider = "tcp": "tls" makes them mutual TLS too, with the same certificates, at a price in `+
				`throughput that docs/performance.md has. "" and "plain" are no TLS; "plain" says that this is known, and silences the `+
				`warning at start. Both ends of a link need the same. No other provider can encrypt data.`),
	}
}

func agentKeys() []key {
	return []key{
		bind("count", int64(1), func(a *Agent) *int { return &a.Count },
			number(1, 64, 1),
			"Number of agents, each a thread. Domains are spread over them."),
		bind("idle", "adaptive", func(a *Agent) *string { return &a.Idle },
			oneOf("busy", "adaptive", "event"),
			`What an agent does when there is nothing to do: "busy" polls and takes a whole core, "event" sleeps, `+
				`"adaptive" polls for the time of spin and then sleeps. Before they sleep they let others run.`),
		bind("spin", "200us", func(a *Agent) *time.Duration { return &a.Spin },
			duration(0, time.Millisecond),
			"How long an adaptive agent polls, after it has had something to do, before it sleeps; 0s: not at all. Where that is "+
				"in vain it does so less and less often. It never polls if the daemon's affinity at its start allows no more processors than there "+
				"are agents, or if the CPU limit of its control group is less than one processor for each agent. What is shorter than a round trip across processors, some 50us, gains little."),
		bind("cpus", "", func(a *Agent) *[]int { return &a.CPUs }, processors(),
			`The processors that agents keep to, agent number i to the i-th of them, from the first again if there are fewer; "" for any. `+
				"The daemon does not start if it may not use one of them."),
		bind("io_uring", true, func(a *Agent) *bool { return &a.IOUring },
			boolean(),
			"Whether agents wake many processes with one system call, by an io_uring, where the kernel (6.7 or later) lets them. "+
				"They wake two at a time otherwise. With false they do not ask the kernel for one: set it where a filter of system calls (seccomp) kills who does."),
	}
}

func groupSendKeys() []key {
	return []key{
		bind("enabled", true, func(g *GroupSend) *bool { return &g.Enabled },
			boolean(),
			"Whether messages are grouped. Turn it off to measure what it gains."),
		bind("max_messages", int64(255), func(g *GroupSend) *int { return &g.MaxMessages },
			number(1, 255, 1),
			"The most messages of one group."),
		bind("max_group_delay", "0s", func(g *GroupSend) *time.Duration { return &g.MaxGroupDelay },
			duration(0, 100*time.Millisecond),
			"The most by which a message, a request or an answer, may be held back so that its group grows; 0s for not at all. "+
				"A group is sent before that when it is full, when a deadline of its messages comes near, or when nothing "+
				"that is under way is expected to add to it: a single caller never waits. It saves work where many processes "+
				"call at a moderate rate, and costs latency; docs/performance.md has figures."),
	}
}

func laneKeys() []key {
	return []key{
		bind("per_peer", int64(1), func(l *Lanes) *int { return &l.PerPeer },
			number(1, MaxLanesPerPeer, 1),
			"Number of lanes of each class to each peer, and to services of this node. One is enough unless a "+
				"connection is what limits the throughput. Each takes the memory of its class on both ends."),
		bind("balance", "round-robin", func(l *Lanes) *string { return &l.Balance },
			oneOf("round-robin", "least-outstanding"),
			`Which of them a request takes: "round-robin" takes turns, "least-outstanding" takes the one with the `+
				"fewest requests of the same process that have no answer."),
	}
}

func memoryKeys() []key {
	return []key{
		bind("hugepages", "off", func(m *Memory) *shm.HugepageMode { return &m.Hugepages },
			hugepages(),
			`Huge pages for the slots of lanes, and for regions of 16 MiB and more, which leave 64 MiB of them to lanes: "require" fails without `+
				`them, "try" uses ordinary pages when none are free.`),
	}
}

func classKeys() []key {
	return []key{
		bind("name", nil, func(c *Class) *string { return &c.Name },
			pattern(labelExpr, labelForm),
			"The class in commands and counters. Unique."),
		bind("slot_size", nil, func(c *Class) *int { return &c.SlotSize },
			number(minSlotSize, maxSlotSize, slotAlign),
			"Size of a slot in bytes. Unique."),
		bind("slots", nil, func(c *Class) *int { return &c.Slots },
			number(minSlots, maxSlots, 1),
			"Number of slots of a ring, whose memory, slots x slot_size, is pinned on both ends of every lane."),
		bind("max_run", nil, func(c *Class) *int { return &c.MaxRun },
			number(1, maxRun, 1),
			"The most consecutive slots one message may take. At most a quarter of slots."),
	}
}

func domainKeys() []key {
	return []key{
		bind("name", nil, func(d *Domain) *string { return &d.Name },
			pattern(labelExpr, labelForm),
			"The domain; both ends of a lane use the same name. Unique."),
		bind("users", []any{}, func(d *Domain) *[]string { return &d.Users },
			idList("users"),
			"Users whose processes are admitted. Names are looked up when the file is read, also where LDAP or another directory serves them (getent). With users and groups both empty: the user that runs the daemon."),
		bind("groups", []any{}, func(d *Domain) *[]string { return &d.Groups },
			idList("groups"),
			"Groups: processes are admitted that have one of them, as their primary group or otherwise, when they connect."),
	}
}

func peerKeys() []key {
	return []key{
		bind("name", nil, func(p *Peer) *string { return &p.Name },
			text(nodeNameForm, nodeName),
			"The peer's node.name. Unique."),
		bind("address", nil, func(p *Peer) *string { return &p.Address },
			text("host:port", dialAddress),
			"Where the peer's node.listen is reached. Unique."),
	}
}

func limitKeys() []key {
	return []key{
		bind("workers", int64(1024), func(l *Limits) *int { return &l.Workers },
			number(1, 4095, 1),
			"The most processes attached to one domain at a time."),
		bind("worker_slots", int64(100), func(l *Limits) *int { return &l.WorkerSlots },
			number(1, 100, 1),
			"The most slots of one ring that one process may hold, in percent of the ring's slots. A process that holds "+
				"none may have one request, however large. 100 is right where processes may use a whole ring as long as "+
				"nobody else wants it: while a ring is crowded, each gets no more than its fair share anyway."),
		bind("worker_bytes", int64(0), func(l *Limits) *int { return &l.WorkerBytes },
			number(0, 1<<40, 1),
			"The most bytes of slots that one process may hold in all rings together, from when it claims them to when "+
				"they are free again; 0 for no limit."),
		bind("spill_after", "1s", func(l *Limits) *time.Duration { return &l.SpillAfter },
			duration(10*time.Millisecond, time.Hour),
			"How long an answer may wait in its slots for its process, which is slow or stopped. After that the daemon moves "+
				"it into memory of its own, so that others can have the slots, and sends that to the process."),
		bind("spill_bytes", int64(64<<20), func(l *Limits) *int { return &l.SpillBytes },
			number(64<<10, 1<<40, 1),
			"The most bytes of such answers that one process may leave unread. One that has more is disconnected."),
		bind("spill_timeout", "60s", func(l *Limits) *time.Duration { return &l.SpillTimeout },
			duration(0, 24*time.Hour),
			"How long a process may leave such answers unread before it is disconnected; 0s for ever. Not less than spill_after."),
		bind("strikes", int64(64), func(l *Limits) *int { return &l.Strikes },
			number(0, 1<<20, 1),
			"How many errors against the protocol within 10 s get a process disconnected. Only those count that are "+
				"its own for certain; see docs/security.md. 0: none do."),
		bind("domain_strikes", int64(256), func(l *Limits) *int { return &l.DomainStrikes },
			number(0, 1<<20, 1),
			"How many errors in the memory of a domain within 10 s, of which nobody knows who made them, get the domain new "+
				"memory while a process lives that was disconnected. Its other processes must attach again. 0: none do, and "+
				"a process that was disconnected for its strikes keeps the memory, too."),
		bind("services", int64(4096), func(l *Limits) *int { return &l.Services },
			number(1, 65535, 1),
			"The most methods that one domain can register until the daemon is stopped. A name counts for as long, also when nobody serves "+
				"it any more, so names should not have the number of a process or a job in them."),
		bind("connect_wait", "2s", func(l *Limits) *time.Duration { return &l.ConnectWait },
			duration(0, time.Minute),
			"How long a call waits for a configured peer that is not connected; 0s fails it at once."),
		bind("region_bytes", int64(1<<30), func(l *Limits) *int { return &l.RegionBytes },
			number(0, 1<<40, 1),
			"The most memory in regions of one process, in bytes, in whole pages, of 2 MiB each where a region is of huge ones (memory.hugepages). It is taken when a region is made, and "+
				"registered with the fabric device when it is used. A service that operates on regions needs 4 MiB of its own; "+
				"large messages use what else there is, up to 256 MiB of it, and do without where there is none."),
		bind("region_count", int64(256), func(l *Limits) *int { return &l.RegionCount },
			number(0, 65535, 1),
			"The most regions of one process. Each takes a descriptor and a mapping of the daemon: the processes of a node have at most "+
				"half as many regions together as vm.max_map_count and LimitNOFILE allow, and those of each domain an equal share of that; "+
				"rdmad doctor says how many."),
	}
}

func observeKeys() []key {
	return []key{
		bind("counters", Auto, func(o *Observe) *string { return &o.Counters },
			text(`an absolute path, "auto" for node.socket with the ending ".counters" instead of ".sock", or "off"`, autoPath(filePath)),
			"The file of counters, of one to some megabytes. It is meant to be on a tmpfs such as /run: on a disk, an agent would "+
				"have to wait for it. Without it, the counters are in status and metrics only."),
		bind("counters_mode", "0640", func(o *Observe) *os.FileMode { return &o.CountersMode },
			fileMode(),
			"Permissions of that file."),
		bind("socket", Auto, func(o *Observe) *string { return &o.Socket },
			text(`an absolute path of at most 107 bytes, "auto" for node.socket with the ending ".http" instead of ".sock", or "off"`, autoPath(socketPath)),
			"The Unix socket that speaks HTTP."),
		bind("socket_mode", "0660", func(o *Observe) *os.FileMode { return &o.SocketMode },
			fileMode(),
			"Permissions of that socket."),
		bind("listen", "", func(o *Observe) *string { return &o.Listen },
			text(`host:port such as "127.0.0.1:7473", or "" for none`, optional(listenAddress)),
			"Where the same is to be had by TCP."),
		bind("hosts", []any{}, func(o *Observe) *[]string { return &o.Hosts },
			nameList("hosts", hostName),
			"Names by which browsers and scrapers may ask for this node, besides addresses, names without a dot, those that end in "+
				`".localhost", and this machine's own; "*": any name. It keeps sites that have a name for this node's address `+
				"from asking through somebody's browser."),
		bind("pprof", false, func(o *Observe) *bool { return &o.Pprof },
			boolean(),
			"Whether /debug/pprof is to be had by TCP, too. Profiles take processor time, and tell much."),
		bind("ready_peers", "none", func(o *Observe) *string { return &o.ReadyPeers },
			oneOf("none", "any", "all"),
			`Which peers must be connected for /readyz to say ok: "none", "any" for at least one if there are peers, or "all".`),
	}
}

func logKeys() []key {
	return []key{
		bind("level", "info", func(l *Log) *string { return &l.Level },
			oneOf("debug", "info", "warn", "error"),
			"The least important messages that are logged."),
		bind("format", "auto", func(l *Log) *string { return &l.Format },
			oneOf("console", "json", "auto"),
			`"console" for people, "json" for machines, "auto" for console on a terminal and json elsewhere.`),
	}
}
