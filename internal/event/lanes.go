package event

import "github.com/rs/zerolog"

// What can happen to lanes, regions, and the connections that carry them.
const (
	LaneNotOpened       Code = "lane-not-opened"
	LaneRefused         Code = "lane-refused"
	LaneClosed          Code = "lane-closed"
	LaneNotConnected    Code = "lane-not-connected"
	FabricLeft          Code = "fabric-left"
	EndpointClose       Code = "endpoint-close"
	OpsNotConnected     Code = "ops-not-connected"
	OpsClosed           Code = "ops-closed"
	RegionNotRegistered Code = "region-not-registered"
	RegionNotExported   Code = "region-not-exported"
	RegistrationClose   Code = "registration-close"
)

var laneEvents = []Info{
	{
		Code: LaneNotOpened, Level: zerolog.WarnLevel,
		Meaning: "A lane to a peer, or to services of this node, could not be opened; requests that need it fail.",
		Cause:   "The peer refuses it, most often because its [[class]] differ; the fabric cannot connect; or there is no memory, such as huge pages where memory.hugepages requires them.",
		Action:  "The field error has the reason, and the other node's line lane-refused has its own. To compare what both daemons use: `rdmad status --json | jq -r .config.toml > peer.toml` on the peer, and with that file `rdmad config diff peer.toml` here. Memory: `rdmad doctor`.",
		Shown:   "TestEventsOfLanes",
	},
	{
		Code: LaneRefused, Level: zerolog.WarnLevel,
		Meaning: "A lane that a peer wants to open was refused.",
		Cause:   "The [[class]] or [[domain]] of the two nodes differ.",
		Action:  "The field error says what differs. To compare all that both daemons use: `rdmad status --json | jq -r .config.toml > peer.toml` on the peer, and with that file `rdmad config diff peer.toml` here. A changed [[class]], or name of a [[domain]], counts after a restart, whatever `rdmad config show` reads in the file.",
		Shown:   "TestEventsOfLanes",
	},
	{
		Code: LaneClosed, Level: zerolog.WarnLevel,
		Meaning: "The connection of a lane broke. It is opened again at once, and what is under way in it goes on.",
		Cause:   "The network, the peer's core, or an RDMA error, which the field error explains.",
		Action:  "Single ones need nothing. Many: `rdmad doctor --peer NAME`.",
		Shown:   "TestLinkResets",
	},
	{
		Code: LaneNotConnected, Level: zerolog.WarnLevel,
		Meaning: "A peer opened a lane, and its connection did not come.",
		Cause:   "The data port is not reachable from the peer: fabric.listen, fabric.advertise, a firewall.",
		Action:  "`rdmad doctor --peer NAME` on the peer.",
		Shown:   "not: the peer must vanish between two messages",
	},
	{
		Code: FabricLeft, Level: zerolog.WarnLevel,
		Meaning: "A link leaves RDMA for tcp for a while, because RDMA keeps failing.",
		Cause:   "The device, its port, the RDMA network, or a limit of locked memory (RLIMIT_MEMLOCK) that lanes do not fit into.",
		Action:  "`rdmad doctor`. The link tries RDMA again by itself.",
		Shown:   "TestRDMAFailover",
	},
	{
		Code: EndpointClose, Level: zerolog.WarnLevel,
		Meaning: "A connection could not be closed in good order.",
		Cause:   "The device has failed.",
		Action:  "None by itself; see `rdmad doctor`.",
		Shown:   "not: needs a close that fails",
	},
	{
		Code: OpsNotConnected, Level: zerolog.WarnLevel,
		Meaning: "There is no connection for operations on regions with a peer; they wait for the next one.",
		Cause:   "As for lane-not-opened.",
		Action:  "As for lane-not-opened.",
		Shown:   "not: the data port must fail between two connections of one session",
	},
	{
		Code: OpsClosed, Level: zerolog.WarnLevel,
		Meaning: "A connection for operations on regions broke. It is made again, and reads and writes are done again.",
		Cause:   "As for lane-closed.",
		Action:  "As for lane-closed.",
		Shown:   "TestRegionsAfterReconnect",
	},
	{
		Code: RegionNotRegistered, Level: zerolog.WarnLevel,
		Meaning: "A region could not be registered with the fabric.",
		Cause:   "The limit of locked memory, or of the device.",
		Action:  "Set LimitMEMLOCK=infinity for the service; `rdmad doctor` compares.",
		Shown:   "not: needs an RDMA device at its limit",
	},
	{
		Code: RegionNotExported, Level: zerolog.WarnLevel,
		Meaning: "A region could not be made known to a peer again after the link came back; operations on it fail.",
		Cause:   "As for region-not-registered.",
		Action:  "As for region-not-registered.",
		Shown:   "not: needs an RDMA device at its limit",
	},
	{
		Code: RegistrationClose, Level: zerolog.WarnLevel,
		Meaning: "The registration of a region could not be ended in good order.",
		Cause:   "The device has failed.",
		Action:  "None by itself; see `rdmad doctor`.",
		Shown:   "not: needs a device that fails",
	},
}
