package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/fabric/verbs"
	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/shm"
)

func TestConfig(t *testing.T) {
	m := healthy(t)
	m.expect(t, "config", OK, "test.toml", m.Config.Digest())
	_, m.ConfigErr = config.Parse("bad.toml", []byte("[agent]\ncount = 0\nidle = 'x'\n"))
	m.expect(t, "config", Fail, "bad.toml:2: agent.count: ", "bad.toml:3: agent.idle: ", "rdmad config example")
	m.ConfigErr = fs.ErrPermission
	m.expect(t, "config", Fail, "permission", "--config")
	m.ConfigErr = fs.ErrNotExist
	m.expect(t, "config", Warn, "assume the defaults")
	m.ConfigNamed = true
	m.expect(t, "config", Fail, "does not exist")
}

func TestProvider(t *testing.T) {
	m := healthy(t)
	m.expect(t, "provider", OK, "verbs")
	m.Built = false
	m.expect(t, "provider", Fail, "-tags verbs", "libibverbs-dev")
	m.Config.Fabric.Provider = "auto"
	m.expect(t, "provider", Warn, `"auto"`, "-tags verbs")
	m.Config.Fabric.Provider = "libfabric"
	m.expect(t, "provider", Fail, "libfabric", "fabric.provider")
}

// Who uses what a few bytes of a peer can end is told so.
func TestLibfabric(t *testing.T) {
	m := healthy(t)
	m.expectNone(t, "libfabric")
	m.Config.Fabric.Provider = "libfabric"
	m.expect(t, "libfabric", Warn, "tcp;ofi_rxm", "others are kept out", `fabric.provider = "tcp"`)
	m.Config.Libfabric.Provider = "verbs;ofi_rxm"
	m.expect(t, "libfabric", Warn, "verbs;ofi_rxm", "so can others")
	m.Config.Libfabric.Provider = "shm"
	m.expectNone(t, "libfabric")
}

func TestSocket(t *testing.T) {
	m := healthy(t)
	dir := func(mode os.FileMode) { m.files["run/rdmad"] = &fstest.MapFile{Mode: mode} }
	m.expect(t, "socket", OK, "makes it")
	m.Writable = func(dir string) bool { return dir != "/" }
	m.expect(t, "socket", Fail, "may not make it in /", "install -d -o USER /run/rdmad")
	m.Writable = func(string) bool { return true }
	dir(os.ModeDir | 0o755)
	m.expect(t, "socket", OK, "0755")
	dir(os.ModeDir | 0o777)
	m.expect(t, "socket", Warn, "any user", "chmod o-w /run/rdmad")
	dir(os.ModeDir | os.ModeSticky | 0o777)
	m.expect(t, "socket", OK)
	dir(0o644)
	m.expect(t, "socket", Fail, "not a directory", "node.socket")
	dir(os.ModeDir | 0o700)
	m.expect(t, "socket", OK)
	m.Config.Domains = append(m.Config.Domains, config.Domain{Name: "x", Users: []string{"1"}})
	m.expect(t, "socket", Warn, "chmod go+x /run/rdmad")
	// Of a configuration that is not known, node.socket is not known either: but who named a socket means that one.
	delete(m.files, "run/rdmad")
	m.files["srv/mine"] = &fstest.MapFile{Mode: os.ModeDir | 0o711}
	m.Writable = func(string) bool { return false }
	m.Config, m.ConfigErr, m.Socket, m.SocketNamed = config.Default(), fs.ErrNotExist, "/srv/mine/a.sock", true
	m.expect(t, "socket", OK, "/srv/mine has mode 0711")
}

func TestModules(t *testing.T) {
	m := healthy(t)
	m.expect(t, "modules", OK, "ib_uverbs")
	m.Config.Verbs.Connect = "rdmacm"
	m.expect(t, "modules", Fail, "rdma_ucm is not loaded", "modprobe rdma_ucm")
	m.put("sys/class/misc/rdma_cm/dev", "10:120\n")
	m.expect(t, "modules", OK, "ib_uverbs, rdma_ucm")
	delete(m.files, "sys/module/ib_uverbs/refcnt")
	m.expect(t, "modules", Fail, "modprobe ib_uverbs")
	m.Config.Fabric.Provider = "auto"
	m.expect(t, "modules", Warn, "modprobe ib_uverbs")
}

func TestDeviceNodes(t *testing.T) {
	m := healthy(t)
	m.expect(t, "device node", OK, "/dev/infiniband/uverbs0", "mode 0660", "owner 0:110")
	m.node("dev/infiniband/uverbs0", 0o666)
	m.expect(t, "device node", Warn, "any local user", `MODE="0660"`)
	for err, word := range map[error]string{
		syscall.EACCES: "usermod -a -G rdma", syscall.EPERM: "device cgroup", syscall.ENOENT: "modprobe -a ib_uverbs", syscall.EIO: "dmesg",
	} {
		m.OpenNode = func(path string) error { return &fs.PathError{Op: "open", Path: path, Err: err} }
		m.expect(t, "device node", Fail, "mlx5_0", "mode 0666", err.Error(), word)
	}
	// One that nobody uses is no failure, nor is one without a node.
	m.OpenNode = func(path string) error {
		if path == "/dev/infiniband/uverbs1" {
			return syscall.EACCES
		}
		return nil
	}
	m.node("dev/infiniband/uverbs0", 0o660)
	m.Devices = append(m.Devices, verbs.DeviceInfo{Name: "other", Node: "/dev/infiniband/uverbs1"}, verbs.DeviceInfo{Name: "bare"})
	m.expect(t, "device node", Warn, "(other) cannot be opened")
	m.Config.Verbs.Device = "other"
	m.expect(t, "device node", Fail, "(other) cannot be opened")
	m.Config.Verbs.Device, m.Config.Verbs.Connect = "", "rdmacm"
	m.OpenNode = func(path string) error {
		if path == cmNode {
			return syscall.ENOENT
		}
		return nil
	}
	m.expect(t, "device node", Fail, cmNode, "rdmacm")
}

// libfabric opens the same nodes, by those of its providers that are for RDMA.
func TestLibfabricNodes(t *testing.T) {
	m := healthy(t)
	m.Config.Fabric.Provider, m.Config.Libfabric.Provider = "libfabric", "tcp;ofi_rxm"
	m.OpenNode = func(string) error { return syscall.EACCES }
	m.expectNone(t, "device node")
	m.expectNone(t, "modules")
	m.Config.Libfabric.Provider = "efa"
	m.expect(t, "device node", Fail, "/dev/infiniband/uverbs0 (mlx5_0", "usermod -a -G rdma")
	m.expect(t, "modules", OK, "loaded: ib_uverbs\n")
	m.OpenNode = func(path string) error {
		if path == cmNode {
			return syscall.ENOENT
		}
		return nil
	}
	m.expect(t, "device node", OK)
	m.Config.Libfabric.Provider = "verbs;ofi_rxm"
	m.expect(t, "device node", Fail, cmNode, `libfabric.provider = "verbs;ofi_rxm"`)
	m.expect(t, "modules", Fail, "rdma_ucm")

	// Of several devices the one that the domain is named after counts, of which names may be beginnings of others.
	m.Devices = append(m.Devices, verbs.DeviceInfo{Name: "mlx5_01", Node: "/dev/infiniband/uverbs1"})
	m.OpenNode = func(path string) error {
		if path == "/dev/infiniband/uverbs0" {
			return syscall.EACCES
		}
		return nil
	}
	for domain, level := range map[string]Level{"": Warn, "mlx5_01": Warn, "mlx5_01-xrc": Warn, "mlx5_0": Fail, "mlx5_0-xrc": Fail} {
		m.Config.Libfabric.Domain = domain
		m.expect(t, "device node", level, "(mlx5_0")
	}
}

func TestPort(t *testing.T) {
	m := healthy(t)
	m.expect(t, "port", OK, "port 1 of mlx5_0 is ACTIVE (Ethernet), MTU 1024")
	m.expect(t, "gid", OK, "GID 3", "::ffff:192.0.2.1", "RoCE v2", "chosen: routable")
	m.Config.Verbs.MTU = 4096
	m.expect(t, "port", Fail, "verbs.mtu = 4096", "has 1024", "not opened", "raise the MTU") // see verbs.newDevice
	m.Config.Verbs.MTU = 0
	m.Config.Verbs.GIDIndex = 2
	m.expect(t, "gid", Warn, "RoCE v1", "verbs.gid_index")
	m.Config.Verbs.GIDIndex = 0
	m.expect(t, "gid", Warn, "one subnet only", "ip address add")
	m.Config.Verbs.GIDIndex = 1
	m.expect(t, "gid", Fail, "no such GID", "3 others", "rdmad devices")
	m.Config.Verbs.GIDIndex = -1
	m.Devices[0].Ports[0].Chosen, m.Devices[0].Ports[0].Why = -1, "none of 3 is of RoCE"
	m.expect(t, "gid", Fail, "will do: none of 3", "ip address add")
	m.Devices[0].Ports[0].State = "DOWN"
	m.expect(t, "port", Fail, "port 1 of mlx5_0 is DOWN", "ip link set")
	m.Config.Verbs.Device = "mlx5_9"
	m.expect(t, "port", Fail, `no device "mlx5_9"`, "mlx5_0")
	m.Devices = nil
	m.expect(t, "port", Fail, "no RDMA device", "rdmad devices")
	m.Config.Fabric.Provider = "auto"
	m.expect(t, "port", Warn, "no RDMA device")
	m.DevicesErr = errors.New("no such library")
	m.expect(t, "port", Warn, "no such library")
}

func TestPartitionKey(t *testing.T) {
	m := healthy(t)
	m.expectNone(t, "pkey") // of a device that does not tell
	const table = "sys/class/infiniband/mlx5_0/ports/1/pkeys/"
	m.put(table+"0", "0xffff\n")
	m.put(table+"1", "0x0000\n")
	m.put(table+"2", "0x8001\n")
	m.put(table+"3", "0x7fff\n")
	m.expect(t, "pkey", OK, "entry 0", "0xffff")
	m.Config.Verbs.PKeyIndex = 2
	m.expect(t, "pkey", OK, "entry 2", "0x8001")
	m.Config.Verbs.PKeyIndex = 3
	m.expect(t, "pkey", Warn, "0x7fff", "limited member", "full")
	m.Config.Verbs.PKeyIndex = 1
	m.expect(t, "pkey", Fail, "verbs.pkey_index = 1", "empty", "port 1 of mlx5_0", table)
	m.Config.Verbs.PKeyIndex = 4
	m.expect(t, "pkey", Fail, "verbs.pkey_index = 4", "4 entries", table)
	m.Config.Fabric.Provider = "auto"
	m.expect(t, "pkey", Warn, "verbs.pkey_index = 4")
	m.Config.Fabric.Provider = "tcp"
	m.expectNone(t, "pkey")
}

// On InfiniBand link-local is how GIDs are.
func TestInfiniBandGID(t *testing.T) {
	m := healthy(t)
	m.Devices[0].Ports[0] = verbs.PortInfo{Number: 1, State: "ACTIVE", LinkLayer: "InfiniBand",
		GIDs: []verbs.GID{{Addr: netip.MustParseAddr("fe80::2"), Type: "IB"}}}
	m.expect(t, "gid", OK, "fe80::2")
	m.expect(t, "port", OK, "MTU not known")
}

func TestDeviceRoom(t *testing.T) {
	m := healthy(t)
	m.Devices[0].Limits.MaxQP = 3
	m.expect(t, "device", Fail, "4 queue pairs, mlx5_0 has 3", "[[class]]")
	m.Config.Fabric.Provider = "auto"
	m.expect(t, "device", Warn)
}

func TestTimeout(t *testing.T) {
	m := healthy(t)
	m.expect(t, "timeout", OK, "67.1ms", "537ms")
	for timeout, words := range map[int][]string{0: {"for ever"}, 1: {"8µs", "congestion"}, 20: {"34.4s", "lower verbs.timeout"}, 31: {"verbs.timeout = 31"}} {
		m.Config.Verbs.Timeout = timeout
		m.expect(t, "timeout", Warn, words...)
	}
	m.Config.Verbs.Timeout, m.Config.Verbs.RetryCount = 20, 0
	m.expect(t, "timeout", OK, "4.29s")
}

func TestMemlock(t *testing.T) {
	m := healthy(t)
	const need = (128*8192 + 4160*2048 + 2*256<<10) * 2 // directions
	m.expect(t, "memlock", OK, "1 peer x 1 domain x 2 rings x 2 directions need 19.2 MiB", "this process is unlimited")
	set := func(file string, soft int) {
		m.put(file, fmt.Sprintf(limitsFile, fmt.Sprint(soft), "unlimited", "9999"))
	}
	set("proc/self/limits", need)
	m.expect(t, "memlock", OK, "is 19.2 MiB (hard limit unlimited)")
	set("proc/self/limits", need-1)
	m.expect(t, "memlock", Fail, "need 19.2 MiB", "this process", "LimitMEMLOCK=infinity")
	m.Config.Fabric.Provider = "auto"
	m.expect(t, "memlock", Warn)
	// libfabric does what its provider does.
	m.Config.Fabric.Provider, m.Config.Libfabric.Provider = "libfabric", "efa"
	m.expect(t, "memlock", Fail, "need 19.2 MiB", "LimitMEMLOCK=infinity")
	m.Config.Libfabric.Provider = "tcp;ofi_rxm"
	m.expect(t, "memlock", OK, "locks no memory")
	m.Config.Fabric.Provider = "verbs"
	// The capability counts outside containers of ordinary users only.
	m.put("proc/self/status", "Name:\trdmad\nCapEff:\t0000000000004000\n")
	m.put("proc/self/uid_map", "         0       1000          1\n")
	m.expect(t, "memlock", Fail)
	m.put("proc/self/uid_map", "         0          0 4294967295\n")
	m.expect(t, "memlock", OK, "CAP_IPC_LOCK")
	m.put("proc/self/status", "Name:\trdmad\nCapEff:\t0000000000003fff\n")
	m.expect(t, "memlock", Fail)
	// The core's limit counts as soon as there is a daemon.
	m.running()
	m.expect(t, "memlock", OK, "core (pid 77) is unlimited")
	set("proc/77/limits", 64<<10)
	m.expect(t, "memlock", Fail, "core (pid 77) is 64.0 KiB")
	for _, garbage := range []string{"", "Max locked memory", "Max locked memory  many  more  bytes\n", "\x00\xff"} {
		m.put("proc/77/limits", garbage)
		m.expect(t, "memlock", Warn, "need 19.2 MiB", "not known")
	}
	delete(m.files, "proc/77/limits")
	m.expect(t, "memlock", Warn, "not known")
}

// The numbers of a large configuration.
func TestPlan(t *testing.T) {
	var b strings.Builder
	b.WriteString("[node]\nname = 'a'\nlisten = ':1'\n[agent]\ncount = 2\n[limits]\nworkers = 10\n")
	b.WriteString("[[domain]]\nname = 'x'\nusers = [1]\n[[domain]]\nname = 'y'\nusers = [2]\n")
	for i := range 64 {
		fmt.Fprintf(&b, "[[peer]]\nname = 'n%d'\naddress = '192.0.2.%d:1'\n", i, i+1)
	}
	p := planOf(parse(t, b.String()))
	const rings = 64 * 2 * 2
	slots := uint64(128*8192 + 4160*2048)
	want := plan{
		peers: 64, domains: 2, classes: 2, parallel: 1, lanes: rings * 2,
		pinned:   rings * (slots + 2*queueBytes),
		segments: (rings + 2) * (1187840 + 8560640 + 528448 + 135232), hugepages: (rings + 2) * (1 + 5),
		files: baseFiles + 3*(rings*2+4) + 4*20, threads: baseThreads + 2, objects: 3*rings*2 + 4,
	}
	if p != want {
		t.Errorf("got  %+v\nwant %+v", p, want)
	}
	more := planOf(parse(t, b.String()+"[lanes]\nper_peer = 3\n"))
	if more.lanes != 3*p.lanes || more.pinned != 3*p.pinned || more.segments != 3*p.segments || more.hugepages != 3*p.hugepages ||
		more.files != p.files+2*3*(rings*2+4) || more.objects != 3*3*rings*2+4 || !strings.Contains(more.String(), "x 3 lanes x") {
		t.Errorf("with three lanes: %+v", more)
	}
	if p := planOf(config.Default()); p.pinned != 0 || p.lanes != 0 || p.segments == 0 {
		t.Errorf("without peers: %+v", p)
	}
}

func TestHugepages(t *testing.T) {
	m := healthy(t)
	meminfo := func(total, free, rsvd, size int) {
		m.put("proc/meminfo", fmt.Sprintf("MemTotal: 1 kB\nHugePages_Total: %d\nHugePages_Free: %d\nHugePages_Rsvd: %d\nHugepagesize: %d kB\n", total, free, rsvd, size))
	}
	m.expect(t, "hugepages", OK, `"off"`)
	for mode, level := range map[shm.HugepageMode]Level{shm.HugepagesTry: Warn, shm.HugepagesRequire: Fail} {
		m.Config.Memory.Hugepages = mode
		delete(m.files, "proc/meminfo")
		m.expect(t, "hugepages", Warn, "meminfo")
		// 2 directions and a local lane of 1 + 5 pages.
		meminfo(20, 18, 0, 2048)
		m.expect(t, "hugepages", OK, "18 more pages", "18 of 20 are free")
		meminfo(20, 18, 1, 2048)
		m.expect(t, "hugepages", level, "17 of 20", "sysctl vm.nr_hugepages=21")
		meminfo(0, 0, 0, 2048)
		m.expect(t, "hugepages", level, "sysctl vm.nr_hugepages=18")
		meminfo(1, 1, 0, 1<<20)
		m.expect(t, "hugepages", level, "default_hugepagesz=2M")
		m.put("proc/meminfo", "garbage")
		m.expect(t, "hugepages", level)
	}
	// What the daemon has already it need not get again.
	meminfo(20, 13, 0, 2048)
	m.running().Lanes = []status.Lane{{Slots: 2048, SlotSize: 4096}}
	m.expect(t, "hugepages", OK, "13 more pages")
}

func TestCgroup(t *testing.T) {
	m := healthy(t)
	m.expect(t, "cgroup", OK, "no control group")
	m.put("proc/self/cgroup", "4:memory:/old\n0::/system.slice/rdmad.service\n")
	m.expect(t, "cgroup", OK, "no control group")
	const mount, own = "sys/fs/cgroup/unified", "/system.slice/rdmad.service"
	m.put(mount+"/cgroup.controllers", "memory pids rdma\n")
	m.put(mount+own+"/memory.max", "max\n")
	m.expect(t, "cgroup", OK, "room for the 29.8 MiB")
	m.put(mount+"/system.slice/memory.max", "16777216\n")
	m.expect(t, "cgroup", Fail, "29.8 MiB", "/system.slice/memory.max is 16.0 MiB", "MemoryMax=")
	m.put(mount+"/system.slice/memory.max", "67108864\n")
	m.expect(t, "cgroup", Warn, "29.8 MiB", "is 64.0 MiB", "no room for regions", "leave it 32.0 MiB")
	m.put(mount+"/system.slice/memory.max", "lots\n")
	m.put(mount+own+"/pids.max", "64\n")
	m.expect(t, "cgroup", Warn, "65 threads", "is 64", "TasksMax=")
	m.put(mount+own+"/pids.max", "max\n")
	m.put(mount+own+"/rdma.max", "mlx5_1 hca_handle=1 hca_object=1\nmlx5_0 hca_handle=max hca_object=13\n")
	m.expect(t, "cgroup", Fail, "14 objects of mlx5_0", "allows 13", "hca_object=max")
	m.put(mount+own+"/rdma.max", "\n mlx5_0\nmlx5_0 hca_object=x\nmlx5_0 hca_handle=max hca_object=14\n")
	m.expect(t, "cgroup", OK)
	m.put("proc/self/cgroup", "0::/../../../proc\n")
	m.expect(t, "cgroup", OK)
}

func TestFiles(t *testing.T) {
	m := healthy(t)
	m.expect(t, "files", OK, "4242 are enough", "this process is 20000")
	m.put("proc/self/limits", fmt.Sprintf(limitsFile, "unlimited", "unlimited", "1024"))
	m.expect(t, "files", Warn, "is 1024", "LimitNOFILE=4242", "limits.workers")
	m.running()
	m.expect(t, "files", OK, "pid 77")
	delete(m.files, "proc/77/limits")
	m.expect(t, "files", Warn, "not known")
}

func TestRegions(t *testing.T) {
	m := healthy(t)
	m.expect(t, "regions", OK, "the domain may have 10000 regions", "limits.region_count = 256", "20000 files")
	m.put("proc/sys/vm/max_map_count", "4096\n")
	m.expect(t, "regions", OK, "2048 regions", "vm.max_map_count = 4096")
	m.Config.Domains = append(m.Config.Domains, config.Domain{Name: "x"}, config.Domain{Name: "y"})
	m.Config.Limits.RegionCount = 700
	m.expect(t, "regions", Warn, "each of 3 domains may have 682 regions", "limits.region_count = 700", "sysctl")
	m.put("proc/sys/vm/max_map_count", "what\n")
	m.put("proc/self/limits", "")
	m.expect(t, "regions", OK, fmt.Sprint(config.DefaultMaps/6)+" regions")
}

// The daemon's numbers are those of its own pid namespace: a process that has that of its core here, such as a thread of the
// kernel, is not taken for it.
func TestLimitsOfAnotherNamespace(t *testing.T) {
	m := healthy(t)
	m.running().PIDs = status.PIDs{Supervisor: 1, Core: 12}
	m.put("proc/12/stat", "12 (cpuhp/0) S 2 0 0\n")
	m.put("proc/12/limits", fmt.Sprintf(limitsFile, "65536", "65536", "1024"))
	m.put("proc/12/cgroup", "0::/\n")
	const why = "core (pid 12) is not known: no process 12 here is the child of a process 1"
	m.expect(t, "files", Warn, why, "in its container")
	m.expect(t, "memlock", Warn, why, "in its container")
	m.expect(t, "cgroup", OK, "core (pid 12) is not checked")
	m.expect(t, "regions", OK)
	m.put("proc/12/stat", "12 (rdmad) S 1 12 0\n")
	m.expect(t, "files", Warn, "RLIMIT_NOFILE of the daemon's core (pid 12) is 1024")
}
