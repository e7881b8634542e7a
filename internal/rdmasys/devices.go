package rdmasys

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmad/rdmad/internal/fabric/verbs"
)

const (
	classDir = "sys/class/infiniband"
	nodeDir  = "sys/class/infiniband_verbs"
	netDir   = "sys/class/net"
)

// maxFile is more than any file of /sys holds, which is a page.
const maxFile = 4 << 10

// maxEntries bounds the ports of a device and the entries of a GID table: both
// are numbered by a byte or little more in hardware.
const maxEntries = 4096

// Devices describes the RDMA devices of a machine whose root directory is root,
// by name. Limits and MaxMTU are never filled. ActiveMTU is that of the network
// interface behind a RoCE port, and 0 where it is not known. Chosen and Why follow
// the rules of ChooseGID.
//
// A machine without any gives none. The error says why the list itself cannot be
// read.
func Devices(root fs.FS) ([]verbs.DeviceInfo, error) {
	entries, err := fs.ReadDir(root, classDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list RDMA devices: %w", err)
	}
	nodes := deviceNodes(root)
	var all []verbs.DeviceInfo
	for _, e := range entries {
		dir := path.Join(classDir, e.Name())
		all = append(all, verbs.DeviceInfo{
			Name: e.Name(), Node: nodes[e.Name()],
			GUID: read(root, dir, "node_guid"), Firmware: read(root, dir, "fw_ver"),
			Ports: ports(root, dir),
		})
	}
	return all, nil
}

// deviceNodes maps names of devices to their character devices.
func deviceNodes(root fs.FS) map[string]string {
	nodes := map[string]string{}
	entries, err := fs.ReadDir(root, nodeDir)
	if err != nil {
		return nodes
	}
	for _, e := range entries {
		if name := read(root, nodeDir, e.Name(), "ibdev"); name != "" {
			nodes[name] = "/dev/infiniband/" + e.Name()
		}
	}
	return nodes
}

// ports describes the ports of the device in dir by number.
func ports(root fs.FS, dir string) []verbs.PortInfo {
	list := []verbs.PortInfo{}
	for _, n := range numbered(root, path.Join(dir, "ports")) {
		at := path.Join(dir, "ports", strconv.Itoa(n))
		p := verbs.PortInfo{
			Number: n, State: afterColon(read(root, at, "state")), LinkLayer: read(root, at, "link_layer"),
			LID: int(number(read(root, at, "lid"))),
		}
		p.GIDs = gids(root, at, p.LinkLayer)
		p.Chosen, p.Why = ChooseGID(p.LinkLayer, p.GIDs)
		p.ActiveMTU = roceMTU(root, p)
		list = append(list, p)
	}
	return list
}

// gids reads the filled entries of a port's GID table by index.
func gids(root fs.FS, port, linkLayer string) []verbs.GID {
	list := []verbs.GID{}
	for _, i := range numbered(root, path.Join(port, "gids")) {
		index := strconv.Itoa(i)
		addr, err := netip.ParseAddr(read(root, port, "gids", index))
		if err != nil || addr.Zone() != "" || !addr.Is6() || addr.IsUnspecified() {
			continue // an entry that is not in use reads as zero
		}
		list = append(list, verbs.GID{
			Index: i, Addr: addr, Type: gidType(read(root, port, "gid_attrs", "types", index), linkLayer),
			Netdev: read(root, port, "gid_attrs", "ndevs", index),
		})
	}
	return list
}

// PartitionKey returns an entry of a port's partition key table, 0 if it is empty, and how many entries the table has, 0 if it is not
// known.
func PartitionKey(root fs.FS, device string, port, index int) (key uint16, entries int) {
	table := path.Join(classDir, device, "ports", strconv.Itoa(port), "pkeys")
	return uint16(number(read(root, table, strconv.Itoa(index)))), len(numbered(root, table))
}

// gidType translates the kernel's name of a type, which has one for InfiniBand
// and RoCE v1.
func gidType(kernel, linkLayer string) string {
	switch {
	case linkLayer == linkInfiniBand:
		return "IB"
	case kernel == "IB/RoCE v1":
		return "RoCE v1"
	}
	return kernel
}

// roceHeaders is what the kernel subtracts from the MTU of a network interface
// before it looks for the largest path MTU that fits: all headers that a RoCE
// packet can have.
const roceHeaders = 108

// roceMTU returns the path MTU that the interface of the chosen GID allows, or 0
// when it is not known.
func roceMTU(root fs.FS, p verbs.PortInfo) int {
	i := slices.IndexFunc(p.GIDs, func(g verbs.GID) bool { return g.Index == p.Chosen })
	if p.LinkLayer != "Ethernet" || i < 0 || !isName(p.GIDs[i].Netdev) {
		return 0
	}
	room := int(number(read(root, netDir, p.GIDs[i].Netdev, "mtu"))) - roceHeaders
	for _, mtu := range []int{4096, 2048, 1024, 512, 256} {
		if mtu <= room {
			return mtu
		}
	}
	return 0
}

// isName reports whether a word that a file held can be an entry of a directory.
func isName(s string) bool { return s != "" && s != "." && s != ".." && !strings.Contains(s, "/") }

// numbered returns the entries of a directory that are numbers, in order.
func numbered(root fs.FS, dir string) []int {
	entries, err := fs.ReadDir(root, dir)
	if err != nil {
		return nil
	}
	var ns []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && n >= 0 && n < maxEntries && strconv.Itoa(n) == e.Name() {
			ns = append(ns, n)
		}
	}
	slices.SortFunc(ns, cmp.Compare[int])
	return ns
}

// read returns the first line of a file without the spaces around it, or "" when
// there is nothing to read. What cannot be printed is replaced.
func read(root fs.FS, elem ...string) string {
	name := path.Join(elem...)
	if !fs.ValidPath(name) {
		return ""
	}
	f, err := root.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	line = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f {
			return '?'
		}
		return r
	}, line)
	return strings.TrimSpace(line)
}

// afterColon returns the words of a value such as "4: ACTIVE".
func afterColon(s string) string {
	if _, words, ok := strings.Cut(s, ":"); ok {
		return strings.TrimSpace(words)
	}
	return s
}

// number reads a number of 31 bits as the kernel writes them, decimal or with 0x;
// 0 for anything else.
func number(s string) int64 {
	n, err := strconv.ParseUint(s, 0, 31)
	if err != nil {
		return 0
	}
	return int64(n)
}
