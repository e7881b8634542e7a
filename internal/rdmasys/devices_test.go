package rdmasys

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"testing/fstest"

	"github.com/rdmad/rdmad/internal/fabric/verbs"
)

// tree makes a file system of files with their content.
func tree(files map[string]string) fstest.MapFS {
	m := fstest.MapFS{}
	for name, text := range files {
		m[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o444}
	}
	return m
}

// twoDevices is a machine with soft RoCE over eth0 and an InfiniBand adapter of
// two ports, as their drivers write it.
func twoDevices() map[string]string {
	const rxe, mlx = "sys/class/infiniband/rxe0/", "sys/class/infiniband/mlx5_0/"
	return map[string]string{
		rxe + "node_guid":                          "5054:00ff:fe12:3456\n",
		rxe + "ports/1/state":                      "4: ACTIVE\n",
		rxe + "ports/1/link_layer":                 "Ethernet\n",
		rxe + "ports/1/lid":                        "0x0\n",
		rxe + "ports/1/gids/0":                     "fe80:0000:0000:0000:5054:00ff:fe12:3456\n",
		rxe + "ports/1/gids/1":                     "0000:0000:0000:0000:0000:ffff:c000:0201\n",
		rxe + "ports/1/gids/2":                     "0000:0000:0000:0000:0000:0000:0000:0000\n",
		rxe + "ports/1/gid_attrs/types/0":          "RoCE v2\n",
		rxe + "ports/1/gid_attrs/types/1":          "RoCE v2\n",
		rxe + "ports/1/gid_attrs/ndevs/0":          "eth0\n",
		rxe + "ports/1/gid_attrs/ndevs/1":          "eth0\n",
		mlx + "node_guid":                          "b859:9f03:0012:3456\n",
		mlx + "fw_ver":                             "16.35.2000\n",
		mlx + "ports/1/state":                      "4: ACTIVE\n",
		mlx + "ports/1/link_layer":                 "InfiniBand\n",
		mlx + "ports/1/lid":                        "0x1c\n",
		mlx + "ports/1/gids/0":                     "fe80:0000:0000:0000:b859:9f03:0012:3456\n",
		mlx + "ports/1/gid_attrs/types/0":          "IB/RoCE v1\n",
		mlx + "ports/2/state":                      "1: DOWN\n",
		mlx + "ports/2/link_layer":                 "InfiniBand\n",
		mlx + "ports/2/lid":                        "0xffff\n",
		"sys/class/infiniband_verbs/abi_version":   "6\n",
		"sys/class/infiniband_verbs/uverbs0/ibdev": "mlx5_0\n",
		"sys/class/infiniband_verbs/uverbs1/ibdev": "rxe0\n",
		"sys/class/net/eth0/mtu":                   "1500\n",
	}
}

func TestDevices(t *testing.T) {
	got, err := Devices(tree(twoDevices()))
	if err != nil {
		t.Fatal(err)
	}
	want := []verbs.DeviceInfo{
		{Name: "mlx5_0", Node: "/dev/infiniband/uverbs0", GUID: "b859:9f03:0012:3456", Firmware: "16.35.2000", Ports: []verbs.PortInfo{
			{Number: 1, State: "ACTIVE", LinkLayer: "InfiniBand", LID: 0x1c, Why: "the port's own",
				GIDs: []verbs.GID{{Addr: netip.MustParseAddr("fe80::b859:9f03:12:3456"), Type: "IB"}}},
			{Number: 2, State: "DOWN", LinkLayer: "InfiniBand", LID: 0xffff, GIDs: []verbs.GID{}, Chosen: -1, Why: "the port has no GID 0"},
		}},
		{Name: "rxe0", Node: "/dev/infiniband/uverbs1", GUID: "5054:00ff:fe12:3456", Ports: []verbs.PortInfo{
			{Number: 1, State: "ACTIVE", LinkLayer: "Ethernet", ActiveMTU: 1024, Chosen: 1, Why: "RoCE v2, IPv4", GIDs: []verbs.GID{
				{Index: 0, Addr: netip.MustParseAddr("fe80::5054:ff:fe12:3456"), Type: "RoCE v2", Netdev: "eth0"},
				{Index: 1, Addr: netip.MustParseAddr("::ffff:192.0.2.1"), Type: "RoCE v2", Netdev: "eth0"},
			}},
		}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestNoDevices(t *testing.T) {
	for name, files := range map[string]map[string]string{"no class": {}, "empty class": {"sys/class/infiniband/x/y": ""}} {
		root := tree(files)
		delete(root, "sys/class/infiniband/x/y")
		if got, err := Devices(root); err != nil || len(got) != 0 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// broken fails to open what does not exist elsewhere, in every way there is.
type broken struct{ fs.FS }

func (b broken) Open(name string) (fs.File, error) {
	if name == classDir {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return b.FS.Open(name)
}

func TestUnreadableClass(t *testing.T) {
	if _, err := Devices(broken{tree(twoDevices())}); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("error %v", err)
	}
}

// A device whose files cannot be read hides no other. The real file system is
// used for what a fake one does not have: links, directories in place of files.
func TestUnreadableFiles(t *testing.T) {
	dir := t.TempDir()
	class := filepath.Join(dir, "sys/class/infiniband")
	for name, text := range twoDevices() {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"state", "gids/0"} {
		at := filepath.Join(class, "mlx5_0/ports/1", name)
		if err := errors.Join(os.Remove(at), os.Mkdir(at, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	// The kernel's class directories hold links.
	if err := errors.Join(
		os.Rename(filepath.Join(class, "rxe0"), filepath.Join(dir, "rxe0")),
		os.Symlink(filepath.Join(dir, "rxe0"), filepath.Join(class, "rxe0")),
		os.Symlink("nowhere", filepath.Join(class, "gone")),
	); err != nil {
		t.Fatal(err)
	}
	got, err := Devices(os.DirFS(dir))
	if err != nil || len(got) != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	if got[0].Name != "gone" || len(got[0].Ports) != 0 {
		t.Errorf("the dangling link: %+v", got[0])
	}
	if p := got[1].Ports[0]; p.State != "" || len(p.GIDs) != 0 || p.Chosen != -1 || p.LID != 0x1c {
		t.Errorf("the port with unreadable files: %+v", p)
	}
	if p := got[2].Ports[0]; p.State != "ACTIVE" || p.ActiveMTU != 1024 {
		t.Errorf("the other device: %+v", p)
	}
}

func TestManyGIDs(t *testing.T) {
	files := twoDevices()
	const n = 800
	for i := range n {
		at := "sys/class/infiniband/rxe0/ports/1/"
		files[fmt.Sprintf("%sgids/%d", at, i)] = fmt.Sprintf("fe80::%x\n", i+1)
		files[fmt.Sprintf("%sgid_attrs/types/%d", at, i)] = "IB/RoCE v1\n"
	}
	files["sys/class/infiniband/rxe0/ports/1/gids/177"] = "2001:db8::1\n"
	files["sys/class/infiniband/rxe0/ports/1/gids/777"] = "::ffff:10.0.0.1\n" // where libibverbs cannot be told to look
	files["sys/class/infiniband/rxe0/ports/1/gids/01"] = "2001:db8::2\n"
	files["sys/class/infiniband/rxe0/ports/1/gids/99999999"] = "2001:db8::3\n"
	got, err := Devices(tree(files))
	if err != nil {
		t.Fatal(err)
	}
	p := got[1].Ports[0]
	if len(p.GIDs) != n || p.Chosen != 177 || p.GIDs[177].Type != "RoCE v1" {
		t.Errorf("%d GIDs, chosen %d", len(p.GIDs), p.Chosen)
	}
}

func TestRoceMTU(t *testing.T) {
	for mtu, want := range map[string]int{"9000": 4096, "4204": 4096, "4203": 2048, "1500": 1024, "400": 256, "300": 0, "": 0, "-1": 0, "many": 0} {
		files := twoDevices()
		files["sys/class/net/eth0/mtu"] = mtu
		got, err := Devices(tree(files))
		if err != nil || got[1].Ports[0].ActiveMTU != want {
			t.Errorf("interface with MTU %q: %d, %v, want %d", mtu, got[1].Ports[0].ActiveMTU, err, want)
		}
	}
}

// Whatever the files hold, the devices are listed and can be chosen from.
func FuzzDevices(f *testing.F) {
	f.Add("4: ACTIVE\n", "fe80::1\n", "RoCE v2\n", "eth0\n", "1500\n")
	f.Add("", "", "", "", "")
	f.Add("ACTIVE", "::ffff:1.2.3.4%eth0", "x\x00\n", "../../etc", "0x7fffffff")
	f.Fuzz(func(t *testing.T, state, gid, kind, ndev, mtu string) {
		files := twoDevices()
		const at = "sys/class/infiniband/rxe0/ports/1/"
		files[at+"state"], files[at+"gids/1"] = state, gid
		files[at+"gid_attrs/types/1"], files[at+"gid_attrs/ndevs/1"] = kind, ndev
		files["sys/class/net/eth0/mtu"] = mtu
		got, err := Devices(tree(files))
		if err != nil || len(got) != 2 || len(got[1].Ports) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		p := got[1].Ports[0]
		if _, _, err := Choose(got, "rxe0", 1, verbs.AutoGID); (err == nil) != (p.State == Active) {
			t.Errorf("state %q: %v", p.State, err)
		}
	})
}

func TestPartitionKey(t *testing.T) {
	const table = "sys/class/infiniband/mlx5_0/ports/1/pkeys/"
	root := tree(map[string]string{table + "0": "0xffff\n", table + "1": "0x0000\n", table + "2": "0x7fff\n", table + "3": "what\n"})
	for _, c := range []struct {
		device      string
		port, index int
		key         uint16
		entries     int
	}{
		{"mlx5_0", 1, 0, 0xffff, 4}, {"mlx5_0", 1, 1, 0, 4}, {"mlx5_0", 1, 2, 0x7fff, 4}, {"mlx5_0", 1, 3, 0, 4},
		{"mlx5_0", 1, 4, 0, 4}, {"mlx5_0", 2, 0, 0, 0}, {"nope", 1, 0, 0, 0},
	} {
		if key, entries := PartitionKey(root, c.device, c.port, c.index); key != c.key || entries != c.entries {
			t.Errorf("%s port %d index %d: %#x of %d, want %#x of %d", c.device, c.port, c.index, key, entries, c.key, c.entries)
		}
	}
}
