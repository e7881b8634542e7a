package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/cmd/rdmad/table"
	"github.com/rdmad/rdmad/internal/fabric/libfabric"
	"github.com/rdmad/rdmad/internal/fabric/verbs"
	"github.com/rdmad/rdmad/internal/rdmasys"
)

// Where a description of a device comes from.
const (
	fromVerbs = "verbs"
	fromSysfs = "sysfs"
)

// device is a device as "rdmad devices" shows it.
type device struct {
	verbs.DeviceInfo
	// Limits hides that of DeviceInfo: null where they are not known.
	Limits *verbs.Limits `json:"limits"`
	// Used marks the device that [verbs] means while it names none, and
	// UsedPort its port; 0 for the others.
	Used     bool `json:"used"`
	UsedPort int  `json:"used_port"`
	// Source is fromVerbs, or fromSysfs where less is known.
	Source string `json:"source"`
}

func newDevices() *cobra.Command {
	var asJSON, ofi bool
	c := &cobra.Command{
		Use:   "devices",
		Short: "Show the RDMA devices of this machine, their ports and GIDs",
		Long: "Show the RDMA devices of this machine, their ports, GIDs and limits, and which of them is used\n" +
			"while [verbs] names none. It needs no daemon and no configuration. A build without the verbs\n" +
			"provider shows what /sys tells, which is all but the limits. A build with libfabric adds what that offers, and why some of it\n" +
			"cannot be used; with --libfabric there is nothing else.",
		Example: "  rdmad devices\n  rdmad devices --libfabric --json",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if ofi {
				list, err := libfabric.Devices()
				if err != nil {
					return err
				}
				if asJSON {
					return writeJSON(c.OutOrStdout(), append([]libfabric.DeviceInfo{}, list...))
				}
				_, err = io.WriteString(c.OutOrStdout(), strings.TrimPrefix(libfabricText(list, nil), "\n"))
				return err
			}
			devices, source, why, err := rdmaDevices(os.DirFS("/"))
			if err != nil {
				return err
			}
			list := describeDevices(devices, source)
			if asJSON {
				return writeJSON(c.OutOrStdout(), list)
			}
			_, err = io.WriteString(c.OutOrStdout(), devicesText(list, why)+libfabricText(libfabric.Devices()))
			return err
		},
	}
	jsonFlag(c, &asJSON)
	c.Flags().BoolVar(&ofi, "libfabric", false, "show what libfabric offers")
	return c
}

// rdmaDevices lists the devices of the machine with the given root directory: as
// libibverbs sees them or, where it cannot tell, as /sys does; why says what kept
// libibverbs from it.
func rdmaDevices(root fs.FS) (devices []verbs.DeviceInfo, source string, why, err error) {
	if devices, why = verbs.Devices(); why == nil {
		return devices, fromVerbs, nil, nil
	}
	devices, err = rdmasys.Devices(root)
	return devices, fromSysfs, why, err
}

func describeDevices(devices []verbs.DeviceInfo, source string) []device {
	used, port, err := rdmasys.Choose(devices, "", 0, verbs.AutoGID)
	list := make([]device, len(devices))
	for i, d := range devices {
		// Lists are lists in JSON, also if they are empty.
		d.Ports = append([]verbs.PortInfo{}, d.Ports...)
		for j := range d.Ports {
			d.Ports[j].GIDs = append([]verbs.GID{}, d.Ports[j].GIDs...)
		}
		list[i] = device{DeviceInfo: d, Source: source}
		if source == fromVerbs && d.Err == "" {
			list[i].Limits = &d.Limits
		}
		if err == nil && d.Name == used.Name {
			list[i].Used, list[i].UsedPort = true, port.Number
		}
	}
	return list
}

// getDevice says how to get a device on a machine that has none.
const getDevice = `This machine has no RDMA device.

With an adapter: its driver must be loaded (lspci | grep -i -E 'mellanox|infiniband|ethernet'; rdma link), and in a
container /sys/class/infiniband and /dev/infiniband must be the host's.
To try without one, soft RoCE makes a device of any network interface, here eth0:

    modprobe rdma_rxe                          # the kernel needs CONFIG_RDMA_RXE
    modprobe ib_uverbs                         # makes /dev/infiniband/uverbs*
    rdma link add rxe0 type rxe netdev eth0    # of the package iproute2

The provider tcp needs no device.
`

// devicesText describes the devices for people. why says what kept libibverbs from
// describing them, if anything did.
func devicesText(list []device, why error) string {
	if len(list) == 0 {
		return getDevice
	}
	var b strings.Builder
	used := false
	for i, d := range list {
		if i > 0 {
			b.WriteByte('\n')
		}
		d.write(&b)
		used = used || d.Used
	}
	if !used {
		_, _, err := rdmasys.Choose(infos(list), "", 0, verbs.AutoGID)
		fmt.Fprintf(&b, "\nNone of them can be used: %v.\n", err)
	}
	if why != nil {
		fmt.Fprintf(&b, "\nLimits are not known: %v.\n", why)
	}
	return b.String()
}

func infos(list []device) []verbs.DeviceInfo {
	all := make([]verbs.DeviceInfo, len(list))
	for i, d := range list {
		all[i] = d.DeviceInfo
	}
	return all
}

func (d *device) write(b *strings.Builder) {
	fmt.Fprintf(b, "device %s: node %s, GUID %s, firmware %s\n", d.Name, orDash(d.Node), orDash(d.GUID), orDash(d.Firmware))
	if d.Err != "" {
		fmt.Fprintf(b, "  cannot be opened: %s (see: rdmad doctor)\n", d.Err)
	}
	for _, p := range d.Ports {
		fmt.Fprintf(b, "  port %d: %s, %s, MTU %s, LID %d", p.Number, orDash(p.State), orDash(p.LinkLayer), mtuText(p), p.LID)
		if p.Number == d.UsedPort {
			b.WriteString(" <- used while verbs.device and verbs.port name no other")
		}
		b.WriteByte('\n')
		t := table.New("    INDEX", "GID", "TYPE", "NETDEV", "")
		for _, g := range p.GIDs {
			mark := ""
			if g.Index == p.Chosen {
				mark = "<- chosen: " + p.Why
			}
			t.Row(fmt.Sprintf("    %d", g.Index), g.Addr, g.Type, g.Netdev, mark)
		}
		t.PrintRows(b)
	}
	if l := d.Limits; l != nil {
		fmt.Fprintf(b, "  limits: %d QPs of %d WRs and %d SGEs, %d CQs of %d CQEs, %d MRs of %d bytes, %d PDs, %d reads and atomics per QP, atomics: %s\n",
			l.MaxQP, l.MaxQPWR, l.MaxSGE, l.MaxCQ, l.MaxCQE, l.MaxMR, l.MaxMRSize, l.MaxPD, l.MaxRdAtomic, atomicsText(*l))
	}
}

func mtuText(p verbs.PortInfo) string {
	active, most := "unknown", ""
	if p.ActiveMTU != 0 {
		active = fmt.Sprint(p.ActiveMTU)
	}
	if p.MaxMTU != 0 {
		most = fmt.Sprintf(" of %d", p.MaxMTU)
	}
	return active + most
}

func atomicsText(l verbs.Limits) string {
	switch {
	case l.AtomicGlobal:
		return "yes, also with respect to processors"
	case l.Atomic:
		return "yes, among queue pairs of this device"
	}
	return "no"
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
