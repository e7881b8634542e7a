package config

import (
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/shm"
)

var update = flag.Bool("update", false, "rewrite the shipped config.toml")

// exampleFile is the configuration that ships with the project.
const exampleFile = "../../config.toml"

func TestShippedFile(t *testing.T) {
	if *update {
		if err := os.WriteFile(exampleFile, []byte(Example()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	shipped, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(shipped) != Example() {
		t.Error("config.toml differs from Example(); run go test ./internal/config -run TestShippedFile -update")
	}
	c, err := Load(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(c, Default()) {
		t.Errorf("config.toml is not the default:\n%+v\n%+v", c, Default())
	}
}

// The commented part of the example must work once it is uncommented.
func TestSampleWorks(t *testing.T) {
	doc := strings.Replace(Example(), `listen = ""`, `listen = ":7471"`, 1)
	for _, s := range []string{"[[peer]]", "name = \"node-b\"", "address = "} {
		if !strings.Contains(doc, "\n# "+s) {
			t.Fatalf("the example has no %q", s)
		}
		doc = strings.Replace(doc, "\n# "+s, "\n"+s, 1)
	}
	want := []Peer{{Name: "node-b", Address: "192.0.2.2:7471"}}
	if c := mustParse(t, doc); !reflect.DeepEqual(c.Peers, want) {
		t.Errorf("got %+v", c.Peers)
	}
}

func TestDefaults(t *testing.T) {
	want := &Config{
		Node:   Node{Name: "host-1", Socket: "/run/rdmad/rdmad.sock", SocketMode: 0o660, DrainTimeout: 10 * time.Second, LinkHold: 10 * time.Second, HangLimit: 20 * time.Second},
		Fabric: Fabric{Provider: "tcp", Listen: "0.0.0.0:0", Congestion: "auto"},
		Verbs: Verbs{
			GIDIndex: -1, Connect: "oob", Timeout: 14, RetryCount: 7, RNRRetry: 7, MinRNRTimer: 12,
			MaxReadAtomic: 16, HopLimit: 64, MaxInline: 220, ConnectTimeout: 5 * time.Second,
		},
		Libfabric: Libfabric{Provider: "tcp;ofi_rxm"},
		TLS:       TLS{Mode: TLSOff, Allow: []string{}},
		Agent:     Agent{Count: 1, Idle: "adaptive", Spin: 200 * time.Microsecond, IOUring: true},
		GroupSend: GroupSend{Enabled: true, MaxMessages: 255},
		Lanes:     Lanes{PerPeer: 1, Balance: "round-robin"},
		Memory:    Memory{Hugepages: shm.HugepagesOff},
		Classes: []Class{
			{Name: "small", SlotSize: 128, Slots: 8192, MaxRun: 64},
			{Name: "large", SlotSize: 4160, Slots: 2048, MaxRun: 511},
		},
		Domains: []Domain{{Name: "default", Users: []string{}, Groups: []string{}, UIDs: []uint32{1000}}},
		Limits:  Limits{Workers: 1024, WorkerSlots: 100, SpillAfter: time.Second, SpillBytes: 64 << 20, SpillTimeout: time.Minute, Strikes: 64, DomainStrikes: 256, Services: 4096, ConnectWait: 2 * time.Second, RegionBytes: 1 << 30, RegionCount: 256},
		Observe: Observe{Counters: Auto, CountersMode: 0o640, Socket: Auto, SocketMode: 0o660, Hosts: []string{}, ReadyPeers: "none"},
		Log:     Log{Level: "info", Format: "auto"},
	}
	if got := mustParse(t, ""); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestEveryKey(t *testing.T) {
	got := mustParse(t, `
		[node]
		name = "n1"
		socket = "/tmp/s"
		socket_mode = "0666"
		listen = "[::]:7471"
		drain_timeout = "1m30s"
		hang_limit = "0s"
		[fabric]
		provider = "verbs"
		listen = "127.0.0.1:9"
		advertise = "fe80::1%eth0"
		congestion_control = "dctcp"
		[libfabric]
		provider = "efa"
		domain = "rdmap0s6-rdm"
		source = "::1"
		[verbs]
		device = "mlx5_bond_0"
		port = 2
		gid_index = 3
		connect = "rdmacm"
		mtu = 2048
		timeout = 18
		retry_count = 6
		rnr_retry = 5
		min_rnr_timer = 31
		max_rd_atomic = 1
		service_level = 15
		traffic_class = 104
		hop_limit = 255
		pkey_index = 65535
		max_inline = 0
		connect_timeout = "100ms"
		[tls]
		mode = "required"
		cert = "/etc/n1.pem"
		key = "/etc/n1-key.pem"
		ca = "/etc/ca.pem"
		allow = ["n2"]
		data = "plain"
		[agent]
		count = 4
		idle = "busy"
		spin = "50us"
		cpus = "2,4-6"
		io_uring = false
		[group_send]
		enabled = false
		max_messages = 1
		max_group_delay = "250us"
		[lanes]
		per_peer = 8
		balance = "least-outstanding"
		[memory]
		hugepages = "require"
		[[class]]
		name = "only"
		slot_size = 65536
		slots = 65536
		max_run = 511
		[[domain]]
		name = "red"
		users = ["bob", 7, "alice", "1002"]
		[[domain]]
		name = "blue"
		groups = ["web", "dba"]
		[[peer]]
		name = "n2"
		address = "n2.example.org.:7471"
		[limits]
		workers = 1
		services = 1
		connect_wait = "0s"
		worker_slots = 25
		worker_bytes = 1099511627776
		spill_after = "1h"
		spill_bytes = 65536
		strikes = 7
		domain_strikes = 1048576
		spill_timeout = "0s"
		region_bytes = 1099511627776
		region_count = 65535
		[observe]
		counters = "/tmp/c"
		counters_mode = "0644"
		socket = "off"
		socket_mode = "0600"
		listen = "127.0.0.1:7473"
		hosts = ["n1.cluster.example", "*"]
		pprof = true
		ready_peers = "all"
		[log]
		level = "debug"
		format = "json"
	`)
	want := &Config{
		Node: Node{Name: "n1", Socket: "/tmp/s", SocketMode: 0o666, Listen: "[::]:7471", DrainTimeout: 90 * time.Second, LinkHold: 10 * time.Second},

		Fabric: Fabric{Provider: "verbs", Listen: "127.0.0.1:9", Advertise: "fe80::1%eth0", Congestion: "dctcp"},
		Verbs: Verbs{
			Device: "mlx5_bond_0", Port: 2, GIDIndex: 3, Connect: "rdmacm", MTU: 2048, Timeout: 18,
			RetryCount: 6, RNRRetry: 5, MinRNRTimer: 31, MaxReadAtomic: 1,
			ServiceLevel: 15, TrafficClass: 104, HopLimit: 255, PKeyIndex: 65535, ConnectTimeout: 100 * time.Millisecond,
		},
		Libfabric: Libfabric{Provider: "efa", Domain: "rdmap0s6-rdm", Source: "::1"},
		TLS:       TLS{Mode: TLSRequired, Cert: "/etc/n1.pem", Key: "/etc/n1-key.pem", CA: "/etc/ca.pem", Allow: []string{"n2"}, Data: "plain"},
		Agent:     Agent{Count: 4, Idle: "busy", Spin: 50 * time.Microsecond, CPUs: []int{2, 4, 5, 6}},
		Lanes:     Lanes{PerPeer: 8, Balance: "least-outstanding"},
		Memory:    Memory{Hugepages: shm.HugepagesRequire},
		Classes:   []Class{{Name: "only", SlotSize: 65536, Slots: 65536, MaxRun: 511}},
		Domains: []Domain{
			{Name: "red", Users: []string{"bob", "7", "alice", "1002"}, Groups: []string{}, UIDs: []uint32{7, 1001, 1002}},
			{Name: "blue", Users: []string{}, Groups: []string{"web", "dba"}, GIDs: []uint32{2001, 2002}},
		},
		Peers:     []Peer{{Name: "n2", Address: "n2.example.org.:7471"}},
		Limits:    Limits{Workers: 1, WorkerSlots: 25, WorkerBytes: 1 << 40, SpillAfter: time.Hour, SpillBytes: 64 << 10, Strikes: 7, DomainStrikes: 1 << 20, Services: 1, RegionBytes: 1 << 40, RegionCount: 65535},
		GroupSend: GroupSend{MaxMessages: 1, MaxGroupDelay: 250 * time.Microsecond},
		Observe:   Observe{Counters: "/tmp/c", CountersMode: 0o644, Socket: Off, SocketMode: 0o600, Listen: "127.0.0.1:7473", Hosts: []string{"n1.cluster.example", "*"}, Pprof: true, ReadyPeers: "all"},
		Log:       Log{Level: "debug", Format: "json"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestJSON(t *testing.T) {
	text, err := mustParse(t, "[[domain]]\nname = 'd'\nusers = ['alice']\n").MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Node struct {
			SocketMode   string `json:"socket_mode"`
			DrainTimeout string `json:"drain_timeout"`
		}
		Memory struct{ Hugepages string }
		Domain []struct {
			Users      []string
			UIDs, GIDs []uint32
		}
		Class, Peer []map[string]any
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Node.SocketMode != "0660" || doc.Node.DrainTimeout != "10s" || doc.Memory.Hugepages != "off" {
		t.Errorf("scalars: %+v", doc)
	}
	if len(doc.Domain) != 1 || doc.Domain[0].UIDs[0] != 1001 || doc.Domain[0].GIDs == nil || len(doc.Class) != 2 || doc.Peer == nil {
		t.Errorf("lists: %+v", doc)
	}
}

func TestDigest(t *testing.T) {
	base := mustParse(t, "").Digest()
	if len(base) != digestLength {
		t.Errorf("%q does not have %d digits", base, digestLength)
	}
	if same := mustParse(t, "# comment\n[log]\nlevel = 'info'\n").Digest(); same != base {
		t.Errorf("a key at its default changed the digest from %s to %s", base, same)
	}
	if other := mustParse(t, "[log]\nlevel = 'warn'\n").Digest(); other == base {
		t.Error("a changed key kept the digest")
	}
}

// A file has the same digest for the daemon and for everybody who checks it, unless names are other numbers for them; and
// whom the daemon admits is not changed by asking.
func TestDigestOfOtherUsers(t *testing.T) {
	other := fakeSystem()
	other.uid++
	other.user = func(string) (uint32, error) { return 7300, nil }
	for doc, same := range map[string]bool{
		"":                           true,
		"[[domain]]\nname = \"d\"\n": true,
		"[[domain]]\nname = \"d\"\nusers = [\"alice\"]\n": false,
	} {
		mine := mustParse(t, doc)
		theirs, errs := parse("test.toml", []byte(doc), other)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		if (mine.Digest() == theirs.Digest()) != same {
			t.Errorf("%q: %s and %s of another user", doc, mine.Digest(), theirs.Digest())
		}
		if len(mine.Domains[0].UIDs) != 1 {
			t.Errorf("%q: it admits %v afterwards", doc, mine.Domains[0].UIDs)
		}
	}
	named := mustParse(t, "[[domain]]\nname = \"d\"\nusers = [\"alice\"]\n")
	if named.Digest() == mustParse(t, "[[domain]]\nname = \"d\"\n").Digest() {
		t.Error("who is named does not change the digest")
	}
}

func TestDefaultNodeName(t *testing.T) {
	for host, want := range map[string]string{
		"":                        "node",
		"localhost":               "localhost",
		"DB-7.rack2.example.org":  "db-7",
		"_x":                      "x",
		"été":                     "t-",
		"...":                     "node",
		strings.Repeat("ab", 100): strings.Repeat("ab", 31) + "a",
	} {
		got := defaultNodeName(host)
		if got != want || nodeName(got) != nil {
			t.Errorf("host %q gives node %q, want %q", host, got, want)
		}
	}
}
