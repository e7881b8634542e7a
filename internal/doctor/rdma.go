package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rdmad/rdmad/internal/fabric/libfabric"
	"github.com/rdmad/rdmad/internal/fabric/verbs"
	"github.com/rdmad/rdmad/internal/rdmasys"
)

// checkModules: the kernel lets processes use RDMA devices.
func checkModules(_ context.Context, e *Env) []Finding {
	const name = "modules"
	if !e.opensNodes() {
		return nil
	}
	// Built into the kernel they may have no directory of their own.
	modules := []struct{ name, class string }{{"ib_uverbs", "sys/class/infiniband_verbs"}}
	if e.wantsCM() != "" {
		modules = append(modules, struct{ name, class string }{"rdma_ucm", "sys/class/misc/rdma_cm"})
	}
	var loaded []string
	var found []Finding
	for _, m := range modules {
		_, err := fs.Stat(e.Root, "sys/module/"+m.name)
		if err != nil {
			_, err = fs.Stat(e.Root, m.class)
		}
		if err != nil {
			found = append(found, one(e.severity(), name, fmt.Sprintf("modprobe %s (for good: echo %s >> /etc/modules-load.d/rdmad.conf)", m.name, m.name),
				"the kernel module %s is not loaded", m.name)...)
			continue
		}
		loaded = append(loaded, m.name)
	}
	if len(found) == 0 {
		found = good(name, "loaded: %s", strings.Join(loaded, ", "))
	}
	return found
}

// cmNode is the device node of librdmacm.
const cmNode = "/dev/infiniband/rdma_cm"

// opensNodes reports whether the configuration asks for a fabric that opens RDMA devices, be it through libfabric. Those are the ones
// that lock memory.
func (e *Env) opensNodes() bool { return e.locksMemory() }

// wantsCM returns what in the configuration asks for librdmacm, "" if nothing does.
func (e *Env) wantsCM() string {
	switch {
	case e.wantsRDMA() && e.Config.Verbs.Connect == verbs.ConnectCM:
		return `verbs.connect = "rdmacm"`
	case e.Config.Fabric.Provider == libfabric.Name && strings.HasPrefix(e.Config.Libfabric.Provider, "verbs"):
		return fmt.Sprintf("libfabric.provider = %q", e.Config.Libfabric.Provider)
	}
	return ""
}

// isUsed reports whether the daemon would open the device.
func (e *Env) isUsed(d verbs.DeviceInfo) bool {
	if len(e.Devices) == 1 {
		return true
	}
	if !e.wantsRDMA() {
		// Domains of libfabric are named after devices: mlx5_0, mlx5_0-xrc, rdmap0s6-rdm. Without one libfabric chooses.
		domain := e.Config.Libfabric.Domain
		return domain == d.Name || strings.HasPrefix(domain, d.Name+"-")
	}
	v := e.Config.Verbs
	used, _, err := rdmasys.Choose(e.Devices, v.Device, v.Port, v.GIDIndex)
	return err == nil && d.Name == used.Name || d.Name == v.Device
}

// checkNodes: the device nodes can be opened, and not by everybody.
func checkNodes(_ context.Context, e *Env) []Finding {
	if !e.opensNodes() {
		return nil
	}
	var found []Finding
	for _, d := range e.Devices {
		if d.Node == "" {
			continue
		}
		level := Warn // a device that is not used
		if e.isUsed(d) {
			level = e.severity()
		}
		found = append(found, e.checkNode(d.Node, d.Name, level)...)
	}
	if why := e.wantsCM(); why != "" {
		found = append(found, e.checkNode(cmNode, why, e.severity())...)
	}
	return found
}

// checkNode opens one node, which is for the named purpose.
func (e *Env) checkNode(node, purpose string, level Level) []Finding {
	const name = "device node"
	info, statErr := fs.Stat(e.Root, inRoot(node))
	owner := ""
	if statErr == nil {
		owner = fmt.Sprintf(", mode %04o", info.Mode().Perm())
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			owner += fmt.Sprintf(", owner %d:%d", st.Uid, st.Gid)
		}
	}
	if err := e.OpenNode(node); err != nil {
		return one(level, name, nodeRemedy(err, node), "%s (%s%s) cannot be opened by this user: %v", node, purpose, owner, err)
	}
	if statErr == nil && info.Mode().Perm()&0o002 != 0 {
		return one(Warn, name,
			`a udev rule: KERNEL=="uverbs*|rdma_cm", MODE="0660", GROUP="rdma"; with the daemon's user in that group`,
			"%s (%s%s) can be opened, by any local user too: only the daemon needs it", node, purpose, owner)
	}
	return good(name, "%s (%s%s) can be opened", node, purpose, owner)
}

// nodeRemedy says what usually keeps a node from being opened.
func nodeRemedy(err error, node string) string {
	switch {
	case errors.Is(err, syscall.EPERM):
		return fmt.Sprintf("the device cgroup forbids it; docker: --device %s, Kubernetes: a device plugin, systemd: DeviceAllow=%s rw", node, node)
	case errors.Is(err, fs.ErrPermission):
		return "add the daemon's user to the group of the node: usermod -a -G rdma USER, with GROUP=\"rdma\", MODE=\"0660\" in a udev rule"
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("modprobe -a ib_uverbs rdma_ucm; in a container: --device %s", node)
	}
	return "see the kernel's log: dmesg"
}

// checkPort: the device, its port and its GID can be used.
func checkPort(_ context.Context, e *Env) []Finding {
	const name = "port"
	if !e.wantsRDMA() {
		return nil
	}
	if e.DevicesErr != nil {
		return one(e.severity(), name, "install the library for the device (ibverbs-providers, rdma-core); modprobe ib_uverbs; ibv_devices must list it",
			"devices cannot be used: %v", e.DevicesErr)
	}
	v := e.Config.Verbs
	d, p, err := rdmasys.Choose(e.Devices, v.Device, v.Port, v.GIDIndex)
	switch {
	case errors.Is(err, rdmasys.ErrNoDevice):
		return one(e.severity(), name, "how to get one, for instance soft RoCE: rdmad devices", "%v", err)
	case err != nil:
		return one(e.severity(), name, "ip link set dev INTERFACE up, or choose another by verbs.device and verbs.port; see: rdmad devices", "%v", err)
	}
	found := good(name, "port %d of %s is %s (%s), MTU %s", p.Number, d.Name, p.State, p.LinkLayer, mtuText(p.ActiveMTU))
	if p.ActiveMTU != 0 && v.MTU > p.ActiveMTU {
		found = one(e.severity(), name, fmt.Sprintf("set verbs.mtu = 0, or raise the MTU of the network interface to %d and more", v.MTU+200),
			"verbs.mtu = %d, but port %d of %s has %d: the device is not opened", v.MTU, p.Number, d.Name, p.ActiveMTU)
	}
	found = append(found, e.checkRoom(d)...)
	found = append(found, e.checkGID(d, p)...)
	return append(found, e.checkPKey(d, p)...)
}

// checkRoom: the device has as many objects as the plan needs, if it tells.
func (e *Env) checkRoom(d verbs.DeviceInfo) (found []Finding) {
	p := planOf(e.Config)
	for _, has := range []struct {
		what  string
		limit int
	}{{"queue pairs", d.Limits.MaxQP}, {"memory regions", d.Limits.MaxMR}, {"protection domains", d.Limits.MaxPD}} {
		if has.limit > 0 && has.limit < p.lanes {
			found = append(found, one(e.severity(), "device", "have fewer [[class]], [[domain]] or [[peer]]",
				"%s needs %d %s, %s has %d", p, p.lanes, has.what, d.Name, has.limit)...)
		}
	}
	return found
}

func mtuText(n int) string {
	if n == 0 {
		return "not known to this build"
	}
	return fmt.Sprint(n)
}

// checkGID: the GID that is configured or chosen exists and suits the network.
func (e *Env) checkGID(d verbs.DeviceInfo, p verbs.PortInfo) []Finding {
	const name = "gid"
	index, why := p.Chosen, "chosen: "+p.Why
	if e.Config.Verbs.GIDIndex != verbs.AutoGID {
		index, why = e.Config.Verbs.GIDIndex, "configured"
	}
	if index < 0 {
		return one(e.severity(), name, "ip address add ADDRESS/LENGTH dev INTERFACE, or set verbs.gid_index to one of: rdmad devices",
			"no GID of port %d of %s will do: %s", p.Number, d.Name, p.Why)
	}
	i := slices.IndexFunc(p.GIDs, func(g verbs.GID) bool { return g.Index == index })
	if i < 0 {
		return one(e.severity(), name, "set verbs.gid_index = -1 or one of: rdmad devices",
			"verbs.gid_index = %d: port %d of %s has no such GID, but %d others", index, p.Number, d.Name, len(p.GIDs))
	}
	g := p.GIDs[i]
	text := fmt.Sprintf("GID %d of port %d of %s is %s, %s (%s)", g.Index, p.Number, d.Name, g.Addr, g.Type, why)
	switch {
	case g.Type == "RoCE v1":
		return one(Warn, name, "set verbs.gid_index to one of RoCE v2, the same version on both ends; see: rdmad devices",
			"%s: routers do not pass RoCE v1 on", text)
	case p.LinkLayer == "Ethernet" && rdmasys.IsLinkLocal(g.Addr):
		return one(Warn, name, "ip address add ADDRESS/LENGTH dev INTERFACE, then restart the daemon", "%s: it is good within one subnet only", text)
	}
	return good(name, "%s", text)
}

// fullMember is the bit of a partition key that limited members have not: they reach full members only, and not each other.
const fullMember = 1 << 15

// checkPKey: the partition key that is configured exists, and lets nodes talk to each other.
func (e *Env) checkPKey(d verbs.DeviceInfo, p verbs.PortInfo) []Finding {
	const name = "pkey"
	index := e.Config.Verbs.PKeyIndex
	key, entries := rdmasys.PartitionKey(e.Root, d.Name, p.Number, index)
	remedy := fmt.Sprintf("set verbs.pkey_index to an entry that is not 0x0000; see: grep . /sys/class/infiniband/%s/ports/%d/pkeys/*", d.Name, p.Number)
	switch {
	case entries == 0:
		return nil
	case index >= entries:
		return one(e.severity(), name, remedy, "verbs.pkey_index = %d: the partition key table of port %d of %s has %s", index, p.Number, d.Name, entriesText(entries))
	case key&^fullMember == 0:
		return one(e.severity(), name, remedy, "verbs.pkey_index = %d: that entry of port %d of %s is empty", index, p.Number, d.Name)
	case key&fullMember == 0:
		return one(Warn, name, "have the subnet manager make the nodes full members of the partition",
			"partition key %#04x, entry %d of port %d of %s, is that of a limited member: peers that are limited members, too, cannot be reached", key, index, p.Number, d.Name)
	}
	return good(name, "partition key %#04x, entry %d of port %d of %s", key, index, p.Number, d.Name)
}

func entriesText(n int) string {
	if n == 1 {
		return "1 entry"
	}
	return fmt.Sprintf("%d entries", n)
}

// The bounds beyond which checkTimeout warns.
const (
	shortTry      = 500 * time.Microsecond
	longDetection = 30 * time.Second
)

// checkTimeout: a peer that is gone is noticed soon, but not too soon.
func checkTimeout(_ context.Context, e *Env) []Finding {
	const name = "timeout"
	if !e.wantsRDMA() {
		return nil
	}
	v := e.Config.Verbs
	if v.Timeout == 0 {
		return one(Warn, name, "set verbs.timeout = 14", "verbs.timeout = 0: a queue pair waits for ever for a peer that is gone")
	}
	try := 4096 * time.Nanosecond << v.Timeout
	total := try * time.Duration(v.RetryCount+1)
	text := fmt.Sprintf("verbs.timeout = %d is %v per try; with verbs.retry_count = %d a peer that is gone is noticed after %v, up to 4 times that on some devices",
		v.Timeout, round(try), v.RetryCount, round(total))
	switch {
	case try < shortTry:
		return one(Warn, name, "set verbs.timeout = 14", "%s: congestion alone can break connections", text)
	case total > longDetection:
		return one(Warn, name, "lower verbs.timeout: each 1 less halves it", "%s: calls to it hang that long", text)
	}
	return good(name, "%s", text)
}

// round keeps three digits or so of a duration.
func round(d time.Duration) time.Duration {
	unit := time.Microsecond
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}
