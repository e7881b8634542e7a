package event

import "github.com/rs/zerolog"

// What the machine can bring about: devices, descriptors, the kernel.
const (
	FabricFallback  Code = "fabric-fallback"
	FabricNoTCP     Code = "fabric-no-tcp"
	FabricPortTaken Code = "fabric-port-taken"
	FabricEvent     Code = "fabric-event"
	FabricClose     Code = "fabric-close"
	DeviceOpenToAll Code = "device-open-to-all"
	CQFailed        Code = "cq-failed"
	CQArm           Code = "cq-arm"
	AgentUnsettled  Code = "agent-unsettled"
	PollerFailed    Code = "poller-failed"
	TimerFailed     Code = "timer-failed"
	AcceptFailed    Code = "accept-failed"
)

var hostEvents = []Info{
	{
		Code: FabricFallback, Level: zerolog.WarnLevel,
		Meaning: "fabric.provider is \"auto\", there is no usable RDMA, and data goes over tcp.",
		Cause:   "No device, no permission for it, a port that is down, or a program without the RDMA provider.",
		Action:  "`rdmad doctor` names it. Set fabric.provider = \"tcp\" if that is what is wanted.",
		Shown:   "TestEventsOfHost",
	},
	{
		Code: FabricNoTCP, Level: zerolog.WarnLevel,
		Meaning: "RDMA is in use, and there is no tcp to fall back to.",
		Cause:   "fabric.listen cannot be listened on.",
		Action:  "Correct fabric.listen.",
		Shown:   "not: needs an RDMA device",
	},
	{
		Code: FabricPortTaken, Level: zerolog.WarnLevel,
		Meaning: "A core that went on for another one found the port of fabric.listen taken, and takes data connections at another one, which peers are told.",
		Cause:   "A program that listened there between the two, such as one that was given the port by chance (ip_local_port_range).",
		Action:  "If a firewall lets peers connect to the configured port only, end that program (`ss -ltnp`) and run `rdmad upgrade`. Keep the port from others: `sysctl net.ipv4.ip_local_reserved_ports`.",
		Shown:   "TestFabricPortTaken",
	},
	{
		Code: FabricEvent, Level: zerolog.WarnLevel,
		Meaning: "The RDMA device reports an event, such as a port that is down.",
		Cause:   "A cable, a switch, the driver.",
		Action:  "`rdmad doctor`, `rdma link`, `dmesg`. After \"device fatal\", once the device is back, `rdmad upgrade`: a core opens devices when it starts only.",
		Shown:   "TestRDMAPortFlaps",
	},
	{
		Code: FabricClose, Level: zerolog.WarnLevel,
		Meaning: "A fabric device could not be closed in good order.",
		Cause:   "The device has failed.",
		Action:  "None by itself; see `rdmad doctor`.",
		Shown:   "not: needs a close that fails",
	},
	{
		Code: DeviceOpenToAll, Level: zerolog.WarnLevel,
		Meaning: "Every local user can open the RDMA device, and only the daemon needs to.",
		Cause:   "The distribution's udev rule, or that of the package rdmad-rdma, which leaves the nodes the mode that the kernel gives them.",
		Action:  "Copy /usr/share/doc/rdmad-rdma/examples/90-rdmad-only.rules into /etc/udev/rules.d, and run `udevadm control --reload && udevadm trigger --subsystem-match=infiniband_verbs --subsystem-match=misc`; without the package, write such a rule with a group of the daemon's user; docs/security.md.",
		Shown:   "TestOpenDeviceNodes",
	},
	{
		Code: CQFailed, Level: zerolog.ErrorLevel,
		Meaning: "A completion queue of the device failed. Its lanes break and are opened again.",
		Cause:   "The device or its driver.",
		Action:  "`rdmad doctor`, `dmesg`.",
		Shown:   "not: needs a device that fails",
	},
	{
		Code: CQArm, Level: zerolog.ErrorLevel,
		Meaning: "A completion queue cannot be armed; its agent polls instead of sleeping.",
		Cause:   "The device or its driver.",
		Action:  "`rdmad doctor`, `dmesg`.",
		Shown:   "not: needs a device that fails",
	},
	{
		Code: AgentUnsettled, Level: zerolog.WarnLevel,
		Meaning: "An agent cannot keep to its processor of agent.cpus; it runs on any.",
		Cause:   "The processor was taken from the daemon since it started, or a system call filter refuses sched_setaffinity.",
		Action:  "Correct agent.cpus, the cpuset of the unit, or its SystemCallFilter.",
		Shown:   "not: needs a processor that goes away",
	},
	{
		Code: PollerFailed, Level: zerolog.ErrorLevel,
		Meaning: "An agent's wait for events failed.",
		Cause:   "A defect, or a kernel that refuses epoll to the daemon: a system call filter.",
		Action:  "Check SystemCallFilter of the unit. If there is none, report it.",
		Shown:   "not: needs a kernel that refuses epoll",
	},
	{
		Code: TimerFailed, Level: zerolog.ErrorLevel,
		Meaning: "An agent's timer failed; groups are held back longer.",
		Cause:   "As for poller-failed.",
		Action:  "As for poller-failed.",
		Shown:   "not: needs a kernel that refuses timerfd",
	},
	{
		Code: AcceptFailed, Level: zerolog.ErrorLevel,
		Meaning: "A connection of a worker or a peer could not be accepted. The daemon tries again; workers are told why they cannot attach.",
		Cause:   "The limit of descriptors is reached.",
		Action:  "Raise LimitNOFILE of the service; `rdmad config explain-memory` says how many are needed.",
		Shown:   "TestEventsOfHost",
	},
}
