package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// badKeys has, for single keys, a line that must be refused and the reason. The
// first line of each document is a comment, so that line 1 cannot be right by
// accident.
var badKeys = []struct {
	section, line, key, reason string
}{
	{"node", `name = "Upper"`, "name", `must be 1 to 63 of a-z 0-9 . _ -, beginning with a letter or digit, got "Upper"`},
	{"node", `name = "-a"`, "name", `got "-a"`},
	{"node", `name = "` + strings.Repeat("a", 64) + `"`, "name", `must be 1 to 63`},
	{"node", `name = 7`, "name", `must be a string, got an integer`},
	{"node", `socket = "run/rdmad.sock"`, "socket", `must be an absolute path, got "run/rdmad.sock"`},
	{"node", `socket = ""`, "socket", `must be an absolute path, got ""`},
	{"node", `socket = "/run/"`, "socket", `must be the path of a socket, got the directory "/run/"`},
	{"node", `socket = "/a\u0000b"`, "socket", `must not contain a zero byte`},
	{"node", `socket = "/` + strings.Repeat("s", 107) + `"`, "socket", `must be at most 107 bytes long, which is what the kernel has room for; got 108`},
	{"node", `socket_mode = 660`, "socket_mode", `must be an octal string such as "0660", got an integer`},
	{"node", `socket_mode = "rw"`, "socket_mode", `got "rw"`},
	{"node", `socket_mode = "0888"`, "socket_mode", `got "0888"`},
	{"node", `socket_mode = "1777"`, "socket_mode", `must be an octal string from "0600" to "0777"`},
	{"node", `socket_mode = "0060"`, "socket_mode", `read and write for the owner, got "0060"`},
	{"node", `listen = "0.0.0.0"`, "listen", `must be host:port, got "0.0.0.0": missing port in address`},
	{"node", `listen = "::1:70"`, "listen", `too many colons in address`},
	{"node", `listen = "a b:70"`, "listen", `must be host:port, got "a b:70": "a b" is neither an IP address nor a host name`},
	{"node", `listen = ":65536"`, "listen", `must be host:port with a port from 0 to 65535, got ":65536"`},
	{"node", `listen = ":http"`, "listen", `with a port from 0 to 65535`},
	{"node", `drain_timeout = 10`, "drain_timeout", `must be a string with a unit such as "10s", "250ms" or "50us", got an integer`},
	{"node", `drain_timeout = "10"`, "drain_timeout", `must be a string with a unit such as "10s", "250ms" or "50us", got "10"`},
	{"node", `drain_timeout = "0"`, "drain_timeout", `must be a string with a unit`},
	{"node", `drain_timeout = ""`, "drain_timeout", `must be a string with a unit`},
	{"node", `drain_timeout = "ten s"`, "drain_timeout", `must be a string with a unit`},
	{"node", `drain_timeout = "-1s"`, "drain_timeout", `must be 0s to 1h, got -1s`},
	{"node", `hang_limit = "1s"`, "hang_limit", `must be 0s for never, or 2s to 1h, got 1s`},
	{"node", `hang_limit = "0"`, "hang_limit", `must be a string with a unit`},
	{"node", `hang_limit = 0`, "hang_limit", `must be a string with a unit`},
	{"node", `hang_limit = "-0.1s"`, "hang_limit", `must be 0s for never, or 2s to 1h, got -0.1s`},
	{"node", `drain_timeout = "61m"`, "drain_timeout", `must be 0s to 1h, got 61m`},
	{"node", `link_hold = 10`, "link_hold", `must be a string with a unit`},
	{"node", `link_hold = "-1s"`, "link_hold", `must be 0s to 1h, got -1s`},
	{"node", `link_hold = "61m"`, "link_hold", `must be 0s to 1h, got 61m`},
	{"fabric", `provider = "udp"`, "provider", `must be "tcp", "verbs", "libfabric" or "auto", got "udp"`},
	{"fabric", `provider = true`, "provider", `must be a string, got a boolean`},
	{"fabric", `listen = ""`, "listen", `must be host:port, got "": missing port in address`},
	{"fabric", `advertise = "10.0.0.1:7"`, "advertise", `"10.0.0.1:7" is neither an IP address nor a host name`},
	{"fabric", `advertise = "-x"`, "advertise", `"-x" is neither`},
	{"fabric", `congestion_control = ""`, "congestion_control", `must be "auto", "system" or the kernel's name of one`},
	{"fabric", `congestion_control = "cubic; reno"`, "congestion_control", `got "cubic; reno"`},
	{"fabric", `congestion_control = "` + strings.Repeat("c", 16) + `"`, "congestion_control", `at most 15 bytes`},
	{"libfabric", `provider = ""`, "provider", `must be a name that libfabric has`},
	{"libfabric", `provider = "tcp ofi_rxm"`, "provider", `got "tcp ofi_rxm"`},
	{"libfabric", `domain = "` + strings.Repeat("d", 64) + `"`, "domain", `at most 63 bytes`},
	{"libfabric", `source = "10.0.0.1:7"`, "source", `"10.0.0.1:7" is neither an IP address nor a host name`},
	{"verbs", `device = "../../etc"`, "device", `must be the name of a device such as "mlx5_0"`},
	{"verbs", `device = ".."`, "device", `got ".."`},
	{"verbs", `device = "mlx5 0"`, "device", `got "mlx5 0"`},
	{"verbs", `device = "` + strings.Repeat("d", 64) + `"`, "device", `at most 63 bytes`},
	{"verbs", `port = 256`, "port", `must be 0 to 255, got 256`},
	{"verbs", `gid_index = -2`, "gid_index", `must be -1 to 255, got -2`},
	{"verbs", `connect = "cm"`, "connect", `must be "oob" or "rdmacm", got "cm"`},
	{"verbs", `mtu = 1500`, "mtu", `must be 0, 256, 512, 1024, 2048 or 4096, got 1500`},
	{"verbs", `mtu = 4294967552`, "mtu", `got 4294967552`},
	{"verbs", `mtu = "1024"`, "mtu", `must be an integer, got a string`},
	{"verbs", `timeout = 32`, "timeout", `must be 0 to 31, got 32`},
	{"verbs", `timeout = "67ms"`, "timeout", `must be an integer, got a string`},
	{"verbs", `retry_count = 8`, "retry_count", `must be 0 to 7, got 8`},
	{"verbs", `rnr_retry = -1`, "rnr_retry", `must be 0 to 7, got -1`},
	{"verbs", `min_rnr_timer = 32`, "min_rnr_timer", `must be 0 to 31, got 32`},
	{"verbs", `max_rd_atomic = 0`, "max_rd_atomic", `must be 1 to 255, got 0`},
	{"verbs", `service_level = 16`, "service_level", `must be 0 to 15, got 16`},
	{"verbs", `traffic_class = 256`, "traffic_class", `must be 0 to 255, got 256`},
	{"verbs", `hop_limit = 0`, "hop_limit", `must be 1 to 255, got 0`},
	{"verbs", `pkey_index = 65536`, "pkey_index", `must be 0 to 65535, got 65536`},
	{"verbs", `max_inline = 1025`, "max_inline", `must be 0 to 1024, got 1025`},
	{"verbs", `connect_timeout = "99ms"`, "connect_timeout", `must be 100ms to 1m, got 99ms`},
	{"verbs", `gid = 3`, "gid", `unknown key`},
	{"tls", `mode = "on"`, "mode", `must be "off" or "required", got "on"`},
	{"tls", `mode = true`, "mode", `must be a string, got a boolean`},
	{"tls", `cert = "node.pem"`, "cert", `must be an absolute path; what is there is not shown`},
	{"tls", `cert = "/tls/"`, "cert", `must be the path of a file, got the directory "/tls/"`},
	{"tls", `key = "./key.pem"`, "key", `must be an absolute path`},
	{"tls", `key = "/a\u0000b"`, "key", `must not contain a zero byte`},
	{"tls", `ca = 7`, "ca", `must be a string, got an integer`},
	{"tls", `ca = "/` + strings.Repeat("c", 4095) + `"`, "ca", `must be at most 4095 bytes long; got 4096`},
	{"tls", `allow = "b"`, "allow", `must be an array of names of nodes, got a string`},
	{"tls", `allow = [1]`, "allow", `must be an array of names of nodes, got an integer in it`},
	{"tls", `allow = ["B"]`, "allow", `must be 1 to 63 of a-z 0-9 . _ -`},
	{"tls", `allow = ["b"]`, "allow", `"b" is not a [[peer]]`},
	{"tls", `data = "on"`, "data", `must be "", "plain" or "tls", got "on"`},
	{"tls", `data = "tls"`, "data", `"tls" needs tls.mode = "required"`},
	{"tls", `pem = "/x"`, "pem", `unknown key`},
	{"agent", `count = 0`, "count", `must be 1 to 64, got 0`},
	{"agent", `count = 65`, "count", `must be 1 to 64, got 65`},
	{"agent", `count = 1.0`, "count", `must be an integer, got a float`},
	{"agent", `idle = "lazy"`, "idle", `must be "busy", "adaptive" or "event", got "lazy"`},
	{"agent", `spin = "2ms"`, "spin", `must be 0s to 1ms, got 2ms`},
	{"agent", `spin = 1979-05-27`, "spin", `got a date or time`},
	{"agent", `cpus = 2`, "cpus", `must be a string, got an integer`},
	{"agent", `cpus = "two"`, "cpus", `such as "2,3" or "4-7", each once and none above 1023, or "", got "two"`},
	{"agent", `cpus = "3-2"`, "cpus", `got "3-2"`},
	{"agent", `cpus = "-1"`, "cpus", `got "-1"`},
	{"agent", `cpus = "1,"`, "cpus", `got "1,"`},
	{"agent", `cpus = "0-1024"`, "cpus", `got "0-1024"`},
	{"agent", `cpus = "0-99999999999999999999"`, "cpus", `got "0-99999999999999999999"`},
	{"agent", `cpus = "4-7,5"`, "cpus", `got 5 twice`},
	{"agent", `io_uring = "auto"`, "io_uring", `must be true or false, got a string`},
	{"group_send", `enabled = "yes"`, "enabled", `must be true or false, got a string`},
	{"group_send", `max_messages = 256`, "max_messages", `must be 1 to 255, got 256`},
	{"group_send", `max_messages = 0`, "max_messages", `must be 1 to 255, got 0`},
	{"group_send", `max_group_delay = "101ms"`, "max_group_delay", `must be 0s to 100ms, got 101ms`},
	{"group_send", `max_group_delay = "-1us"`, "max_group_delay", `must be 0s to 100ms, got -1us`},
	{"group_send", `max_group_delay = 50`, "max_group_delay", `must be a string with a unit`},
	{"lanes", `per_peer = 0`, "per_peer", `must be 1 to 8, got 0`},
	{"lanes", `per_peer = 9`, "per_peer", `must be 1 to 8, got 9`},
	{"lanes", `balance = "random"`, "balance", `must be "round-robin" or "least-outstanding", got "random"`},
	{"memory", `hugepages = "yes"`, "hugepages", `must be "off", "try" or "require", got "yes"`},
	{"memory", `hugepages = false`, "hugepages", `must be a string, got a boolean`},
	{"limits", `workers = 4096`, "workers", `must be 1 to 4095, got 4096`},
	{"limits", `workers = -1`, "workers", `must be 1 to 4095, got -1`},
	{"limits", `services = 0`, "services", `must be 1 to 65535, got 0`},
	{"limits", `region_bytes = -1`, "region_bytes", `must be 0 to 1099511627776, got -1`},
	{"limits", `region_count = 65536`, "region_count", `must be 0 to 65535, got 65536`},
	{"limits", `worker_slots = 0`, "worker_slots", `must be 1 to 100, got 0`},
	{"limits", `worker_bytes = -1`, "worker_bytes", `must be 0 to 1099511627776, got -1`},
	{"limits", `spill_after = "1ms"`, "spill_after", `must be 10ms to 1h, got 1ms`},
	{"limits", `strikes = -1`, "strikes", `must be 0 to 1048576, got -1`},
	{"limits", `domain_strikes = 1048577`, "domain_strikes", `must be 0 to 1048576, got 1048577`},
	{"limits", `spill_bytes = 65535`, "spill_bytes", `must be 65536 to 1099511627776, got 65535`},
	{"observe", `counters = "counters"`, "counters", `must be an absolute path, got "counters"`},
	{"observe", `counters = "/run/rdmad/rdmad.sock"`, "counters", `"/run/rdmad/rdmad.sock" is node.socket`},
	{"observe", `counters_mode = 640`, "counters_mode", `must be an octal string such as "0660", got an integer`},
	{"observe", `socket = ""`, "socket", `must be an absolute path, got ""`},
	{"observe", `socket = "/run/rdmad/rdmad.sock.lock"`, "socket", `is the lock of node.socket`},
	{"observe", `counters = "/run/rdmad/rdmad.sock.pid"`, "counters", `is the process id beside node.socket`},
	{"observe", "counters = \"/a\"\nsocket = \"/a\"", "counters", `"/a" is observe.socket`},
	{"observe", `socket = "/` + strings.Repeat("s", 107) + `"`, "socket", `must be at most 107 bytes long`},
	{"observe", `socket_mode = "1777"`, "socket_mode", `must be an octal string from "0600" to "0777"`},
	{"observe", `listen = "7473"`, "listen", `must be host:port`},
	{"observe", `hosts = "b"`, "hosts", `must be an array of names of hosts, got a string`},
	{"observe", `hosts = [1]`, "hosts", `must be an array of names of hosts, got an integer in it`},
	{"observe", `hosts = ["node.example:7474"]`, "hosts", `must be the name of a host, without a port, or "*", got "node.example:7474"`},
	{"observe", `hosts = [""]`, "hosts", `must be the name of a host, without a port, or "*", got ""`},
	{"observe", `ready_peers = "b"`, "ready_peers", `must be "none", "any" or "all", got "b"`},
	{"observe", `pprof = "yes"`, "pprof", `must be true or false, got a string`},
	{"limits", `spill_timeout = "-1s"`, "spill_timeout", `must be 0s to 24h, got -1s`},
	{"limits", "spill_timeout = \"4s\"\nspill_after = \"5s\"", "spill_timeout", `must be 0s or at least limits.spill_after, which is 5s, got 4s`},
	{"limits", `connect_wait = "2m"`, "connect_wait", `must be 0s to 1m, got 2m`},
	{"limits", `connect_wait = 2.5`, "connect_wait", `got a float`},
	{"log", `level = "trace"`, "level", `must be "debug", "info", "warn" or "error", got "trace"`},
	{"log", `format = ["json"]`, "format", `must be a string, got an array`},
	{"log", `color = true`, "color", `unknown key`},
	{"log", `levle = "info"`, "levle", `unknown key, did you mean "level"?`},
	{"log", `Level = "info"`, "Level", `unknown key, did you mean "level"?`},
	{"log", `"le.vel" = "info"`, `"le.vel"`, `unknown key, did you mean "level"?`},
	{"log", `sub = { a = 1 }`, "sub", `unknown section`},
	{"class[0]", `name = "a b"`, "name", `must be 1 to 31 of a-z 0-9 _ -, got "a b"`},
	{"class[0]", `name = ""`, "name", `got ""`},
	{"class[0]", `slot_size = 64`, "slot_size", `must be a multiple of 64 from 128 to 65536, got 64`},
	{"class[0]", `slot_size = 130`, "slot_size", `must be a multiple of 64 from 128 to 65536, got 130`},
	{"class[0]", `slot_size = -128`, "slot_size", `got -128`},
	{"class[0]", `slot_size = "4KiB"`, "slot_size", `must be an integer, got a string`},
	{"class[0]", `slots = 63`, "slots", `must be 64 to 65536, got 63`},
	{"class[0]", `slots = 65537`, "slots", `must be 64 to 65536, got 65537`},
	{"class[0]", `max_run = 512`, "max_run", `must be 1 to 511, got 512`},
	{"class[0]", `max_run = 0`, "max_run", `must be 1 to 511, got 0`},
	{"domain[0]", `name = "Blue"`, "name", `got "Blue"`},
	{"domain[0]", `users = "alice"`, "users", `must be an array of names or numeric ids of users, got a string`},
	{"domain[0]", `users = [1.5]`, "users", `must be an array of names or numeric ids of users, got a float in it`},
	{"domain[0]", `users = ["nobody-here"]`, "users", `this machine has no user "nobody-here"`},
	{"domain[0]", `users = [""]`, "users", `user "": the name is empty`},
	{"domain[0]", `users = [-1]`, "users", `user "-1": "-1" is not an id from 0 to 4294967294`},
	{"domain[0]", `users = ["4294967295"]`, "users", `is not an id from 0 to 4294967294`},
	{"domain[0]", `users = ["alice:x"]`, "users", `the name has a space, a colon or a control character`},
	{"domain[0]", `groups = ["nogroup-here"]`, "groups", `this machine has no group "nogroup-here"`},
	{"domain[0]", `groups = [{}]`, "groups", `must be an array of names or numeric ids of groups, got a`},
	{"peer[0]", `name = ""`, "name", `must be 1 to 63`},
	{"peer[0]", `address = "10.0.0.9"`, "address", `must be host:port, got "10.0.0.9": missing port in address`},
	{"peer[0]", `address = ":7471"`, "address", `"" is neither an IP address nor a host name`},
	{"peer[0]", `address = "h:0"`, "address", `must be host:port with a port from 1 to 65535, got "h:0"`},
}

// goodElements complete an element of an array of tables, so that the bad line
// is its only problem.
var goodElements = map[string]map[string]string{
	"class":  {"name": `"a"`, "slot_size": "128", "slots": "4096", "max_run": "1"},
	"domain": {"name": `"a"`},
	"peer":   {"name": `"other"`, "address": `"192.0.2.1:1"`},
}

// document builds a file whose third line is the given one.
func document(section, line, key string) string {
	name, isElement := strings.CutSuffix(section, "[0]")
	if !isElement {
		return fmt.Sprintf("# test\n[%s]\n%s\n", section, line)
	}
	doc := fmt.Sprintf("# test\n[[%s]]\n%s\n", name, line)
	for k, v := range goodElements[name] {
		if k != key {
			doc += fmt.Sprintf("%s = %s\n", k, v)
		}
	}
	if name == "peer" {
		doc += "[node]\nlisten = \":1\"\n"
	}
	return doc
}

func TestBadKey(t *testing.T) {
	covered := map[string]bool{}
	for _, test := range badKeys {
		t.Run(test.section+" "+test.line, func(t *testing.T) {
			doc := document(test.section, test.line, test.key)
			_, errs := parse("test.toml", []byte(doc), fakeSystem())
			if len(errs) != 1 {
				t.Fatalf("want one problem, got %d:\n%v", len(errs), errs)
			}
			e := errs[0]
			if want := test.section + "." + test.key; e.File != "test.toml" || e.Line != 3 || e.Key != want || !strings.Contains(e.Reason, test.reason) {
				t.Errorf("got %v\nwant test.toml:3: %s: %s", e, want, test.reason)
			}
		})
		covered[strings.TrimSuffix(test.section, "[0]")+"."+test.key] = true
	}
	for _, s := range sections {
		for _, k := range s.keys {
			if path := s.name + "." + k.name; !covered[path] {
				t.Errorf("no bad value of %s is tested", path)
			}
		}
	}
}

func TestBadDocument(t *testing.T) {
	class := func(name string, size int) string {
		return fmt.Sprintf("[[class]]\nname = %q\nslot_size = %d\nslots = 64\nmax_run = 16\n", name, size)
	}
	nine := ""
	for i := range 9 {
		nine += class(fmt.Sprint("c", i), 128+64*i)
	}
	const peers = "[[peer]]\nname = \"b\"\naddress = \"b:1\"\n"
	tests := []struct {
		name, doc string
		want      []string
	}{
		{"syntax", "[node]\nname = \n", []string{"2: node.name: expected value but found '\\n' instead"}},
		{"duplicate key", "[node]\nname = 'a'\nname = 'b'\n", []string{"3: node.name: Key 'node.name' has already been defined."}},
		{"invalid UTF-8", "[node]\nname = '\xff'\n", []string{"2: node.name: invalid UTF-8 byte: 0xff"}},
		{"table without an end", "[node\nname = 'a'\n", []string{"1: expected '.' or ']' to end table name, but got '\\n' instead"}},
		{"key without a value", "\n[node]\nname\n", []string{"3: node: expected '.' or '=', but got '\\n' instead"}},
		{"escaped end of line", "[node]\nname = \"a\\\nb\"\n", []string{`2: node.name: invalid escape in string '\\n'`}},
		{"behind a mark of the order of bytes", "\ufeffnode.name = 0x\n", []string{`1: node.name: must be in quotes: "0x"`}},
		{"values that cannot be read", "[limits]\r\nworkers = 0\r\nservices = 99999999999999999999 # many\r\nstrikes = 0x\r\nnope = 3\r\n" +
			"spill_after = 10s\r\nregion_count = -1e400\r\n[group_send]\r\nenabled = yes\r\n[[domain]]\r\nname = 'a'\r\nusers = [1, # one\r\n 2x]\r\n" +
			"[[class]]\nname = 'x'\nslots = 12_\nslot_size = 4 KiB\nmax_run = .5\n[other]\nx = 0b2\n", []string{
			"2: limits.workers: must be 1 to 4095, got 0",
			"3: limits.services: must be 1 to 65535, got 99999999999999999999",
			"4: limits.strikes: must be 0 to 1048576, got 0x (not a value of TOML)",
			"5: limits.nope: unknown key",
			`6: limits.spill_after: must be in quotes: "10s"`,
			"7: limits.region_count: must be 0 to 65535, got -1e400",
			"9: group_send.enabled: must be true or false, got yes (not a value of TOML)",
			"12: domain[0].users: must be an array of names or numeric ids of users, got 2x (not a value of TOML) in it",
			"16: class[0].slots: must be 64 to 65536, got 12_ (not a value of TOML)",
			"17: class[0].slot_size: must be a multiple of 64 from 128 to 65536, got 4 KiB (not a value of TOML)",
			"18: class[0].max_run: must be 1 to 511, got .5 (not a value of TOML)",
			"19: other: unknown section"}},
		{"sections that cannot be read", "node = 0x\nlog = { level = info, format = 0o9 }\npeer = 12_\nclass = [0x]\n", []string{
			"1: node: must be a table, written [node]; got 0x (not a value of TOML)",
			`2: log.format: must be "console", "json" or "auto", got 0o9 (not a value of TOML)`, `2: log.level: must be in quotes: "info"`,
			"3: peer: must be an array of tables, each written [[peer]]; got 12_ (not a value of TOML)",
			"4: class: must be tables only, each written [[class]]"}},
		{"values that cannot be read before the end", "[limits]\nstrikes = 0x\nservices = 12_\nservices = 3\nworkers = 0x\n", []string{
			"2: limits.strikes: got 0x (not a value of TOML)", "3: limits.services: got 12_ (not a value of TOML)",
			"4: limits.services: Key 'limits.services' has already been defined."}},
		{"unknown sections", "x = 1\n[nodes]\na = 1\n[[zebra]]\n", []string{
			"1: x: unknown key", `2: nodes: unknown section, did you mean "node"?`, "4: zebra: unknown section"}},
		{"section is a value", "node = 3\n", []string{"1: node: must be a table, written [node]; got an integer"}},
		{"section is an array", "\n[[log]]\n", []string{"2: log: must be a table, written [log]; got an array of tables"}},
		{"array is a section", "\n[peer]\n", []string{"2: peer: must be an array of tables, each written [[peer]]; got a table"}},
		{"array of values", "peer = [1]\n", []string{"1: peer: must be tables only, each written [[peer]]"}},
		{"no class", "class = []\n", []string{"1: class: at least one is needed; leave it out to get the default"}},
		{"no domain", "domain = []\n", []string{"1: domain: at least one is needed; leave it out to get the default"}},
		{"missing keys", "\n[[class]]\n[[peer]]\n[node]\nlisten = ':1'\n", []string{
			"2: class[0].max_run: is required", "2: class[0].name: is required", "2: class[0].slot_size: is required",
			"2: class[0].slots: is required", "3: peer[0].address: is required", "3: peer[0].name: is required"}},
		{"classes clash", class("a", 128) + class("a", 128), []string{
			`7: class[1].name: "a" is already used on line 2`, "8: class[1].slot_size: 128 is already used on line 3"}},
		{"run too long", class("a", 128) + "[[class]]\nname = 'b'\nslot_size = 192\nslots = 64\nmax_run = 17\n", []string{
			"10: class[1].max_run: must be at most a quarter of slots, which is 16, got 17"}},
		{"run of bad slots", "[[class]]\nname = 'b'\nslot_size = 192\nslots = 1\nmax_run = 17\n", []string{
			"4: class[0].slots: must be 64 to 65536, got 1"}},
		{"too many classes", nine, []string{"41: class[8]: at most 8 are possible, got 9"}},
		{"domain names", "[[domain]]\nname = 'a'\nusers = [1]\n[[domain]]\nname = 'a'\nusers = [2]\n", []string{
			`5: domain[1].name: "a" is already used on line 2`}},
		{"user twice", "[[domain]]\nname = 'a'\nusers = ['alice', 'alice', 'bob']\n[[domain]]\nname = 'b'\nusers = [\n 1001]\n", []string{
			`6: domain[1].users: user id 1001 is already admitted by domain "a" (line 1)`}},
		{"group twice", "[[domain]]\nname = 'a'\ngroups = ['dba']\n[[domain]]\nname = 'b'\ngroups = ['2001']\n", []string{
			`6: domain[1].groups: group id 2001 is already admitted by domain "a" (line 1)`}},
		{"two open domains", "[[domain]]\nname = 'a'\n[[domain]]\nname = 'b'\n", []string{
			`3: domain[1].users: user id 1000 is already admitted by domain "a" (line 1)`}},
		{"peer without listen", "[fabric]\n[node]\n" + peers, []string{"2: node.listen: is required when there are peers"}},
		{"peer without node", "[fabric]\n" + peers, []string{"1: node.listen: is required when there are peers"}},
		{"peer is this node", "[node]\nlisten = ':1'\nname = 'b'\n" + peers, []string{`5: peer[0].name: "b" is the name of this node`}},
		{"peer is this host", "[node]\nlisten = ':1'\n[[peer]]\nname = 'host-1'\naddress = 'b:1'\n", []string{
			`4: peer[0].name: "host-1" is the name of this node`}},
		{"peer twice", "[node]\nlisten = ':1'\n" + peers + peers, []string{
			`7: peer[1].name: "b" is already used on line 4`, `8: peer[1].address: "b:1" is already used on line 5`}},
		{"tls without files", "[tls]\nmode = 'required'\nkey = '/k'\n", []string{
			`1: tls.ca: is required with tls.mode = "required"; rdmad certs init makes the files and prints their paths`,
			`1: tls.cert: is required with tls.mode = "required"; rdmad certs init makes the files and prints their paths`}},
		{"encrypted data of verbs", "[fabric]\nprovider = 'verbs'\n[tls]\nmode = 'required'\ncert = '/c'\nkey = '/k'\nca = '/a'\ndata = 'tls'\n", []string{
			`8: tls.data: "tls" needs fabric.provider = "tcp", or "auto" where that is tcp: data of "verbs" cannot be encrypted`}},
		{"tls with a bad file", "[tls]\nmode = 'required'\ncert = 'c'\nkey = '/k'\nca = '/a'\n", []string{`3: tls.cert: must be an absolute path; what is there is not shown, as it may be a secret`}},
		{"allowed twice", "[node]\nlisten = ':1'\n" + peers + "[tls]\nallow = ['b',\n'b']\n", []string{`7: tls.allow: has "b" twice`}},
		{"paths that are the same", "[node]\nsocket = '/run//a.sock'\n[observe]\nsocket = '/run/./a.sock'\ncounters = '/run/b/../a.sock.lock'\n", []string{
			`4: observe.socket: "/run/./a.sock" is node.socket`, `5: observe.counters: "/run/b/../a.sock.lock" is the lock of node.socket`}},
		{"port twice", "[node]\nlisten = '127.0.0.1:7471'\n[observe]\nlisten = ':7471'\n", []string{
			`4: observe.listen: ":7471" has the port of node.listen, which is "127.0.0.1:7471"; take another one`}},
		{"port of data", "[node]\nlisten = ':7471'\n[fabric]\nprovider = 'tcp'\nlisten = '10.0.0.1:7471'\n[observe]\nlisten = '127.0.0.1:7472'\n" + peers, []string{
			`5: fabric.listen: "10.0.0.1:7471" has the port of node.listen, which is ":7471"; take another one`}},
		{"inline", "node = { listen = ':1', nam = 'x' }\npeer = [\n { name = 'b' } ]\n", []string{
			`1: node.nam: unknown key, did you mean "name"?`, "2: peer[0].address: is required"}},
		{"dotted", "log.level = 'x'\nagent.\"count\" = 0\n", []string{
			`1: log.level: must be "debug", "info", "warn" or "error", got "x"`, "2: agent.count: must be 1 to 64, got 0"}},
		{"too large", strings.Repeat("#", MaxFileSize+1), []string{"1: the file has more than 262144 bytes"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := parse("f", []byte(test.doc), fakeSystem())
			want := "f:" + strings.Join(test.want, "\nf:")
			if got := err.Error(); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// The decoder's cost grows with the square of the depth: depth must be refused
// before the decoder sees it.
func TestDeepNesting(t *testing.T) {
	fill := func(unit string) string { return strings.Repeat(unit, (MaxFileSize-40)/len(unit)) }
	for _, doc := range []string{
		"x = " + fill("["),
		"x = " + fill("{a="),
		"x = " + fill("{a=["),
		"x = {" + fill("a.") + "a=1}",
		"x = [1, 2.5, {" + fill("'a'.") + "a=1}]",
		fill("a.") + "a = 1",
		"[" + fill("a.") + "a]",
		"[[" + fill("a . ") + "a]]",
	} {
		_, err := Parse("deep", []byte("\n"+doc))
		if want := "deep:2: nested more than 32 levels deep"; err == nil || err.Error() != want {
			t.Errorf("%.20s...: %v", doc, err)
		}
	}
	wide := "x = [" + strings.Repeat("{a.b = 1.5}, ", 1000) + "]"
	if x := indexLines([]byte(wide)); x.tooDeep != 0 {
		t.Error("a long array was taken for a deep one")
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.toml")
	if _, err := Load(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte("[agent]\ncount = 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if err != nil || c.Agent.Count != 3 {
		t.Errorf("good file: %v, %v", c, err)
	}
	if err := os.WriteFile(path, []byte("[agent]\ncount = 300\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var one Error
	_, err = Load(path)
	if !errors.As(err, &one) || one.File != path || one.Line != 2 || one.Key != "agent.count" {
		t.Errorf("bad file: %v", err)
	}
	if _, err := Load(filepath.Dir(path)); err == nil {
		t.Error("a directory was accepted")
	}
}
