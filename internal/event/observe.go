package event

import "github.com/rs/zerolog"

// What can go wrong with looking at the daemon.
const (
	CountersNone   Code = "counters-none"
	CountersLeft   Code = "counters-left"
	ObserveOpen    Code = "observe-open"
	ObserveEnded   Code = "observe-ended"
	ObserveTrouble Code = "observe-trouble"
)

var observeEvents = []Info{
	{
		Code: CountersNone, Level: zerolog.ErrorLevel,
		Meaning: "The counters are not in a file, because it cannot be made. Everything else works; status and metrics have them.",
		Cause:   "No room on the file system of observe.counters, or a directory that the daemon may not write to.",
		Action:  "Make room, or set observe.counters to a path on a tmpfs, and restart; or set it to \"off\".",
		Shown:   "TestEventsOfObserving",
	},
	{
		Code: CountersLeft, Level: zerolog.WarnLevel,
		Meaning: "The file of counters could not be removed, or not be let go of, when the daemon started or stopped.",
		Cause:   "Its directory has become read-only, or something else lies there.",
		Action:  "Remove it by hand.",
		Shown:   "not: needs a directory that changes between two steps",
	},
	{
		Code: ObserveOpen, Level: zerolog.WarnLevel,
		Meaning: "HTTP is served at an address that is not of this machine alone, and there is no authentication.",
		Cause:   "observe.listen names an address of the network, or all of them.",
		Action:  "Listen at 127.0.0.1, or let a firewall or a proxy decide who may connect.",
		Shown:   "TestEventsOfObserving",
	},
	{
		Code: ObserveEnded, Level: zerolog.ErrorLevel,
		Meaning: "A socket for HTTP does not work any more; everything else does.",
		Cause:   "The kernel refuses to accept connections.",
		Action:  "`rdmad upgrade` starts another core, and workers stay attached. If it comes again, report it.",
		Shown:   "not: needs a kernel that refuses accept",
	},
	{
		Code: ObserveTrouble, Level: zerolog.WarnLevel,
		Meaning: "Something went wrong with a connection or a request by HTTP; the daemon goes on with the others. The field error says what.",
		Cause:   "No descriptors left for connections, which are accepted again in a while; a request with a semicolon in its query; or, if it says panic, a defect.",
		Action:  "For descriptors, raise LimitNOFILE of the service. Report a panic, with its stack: `rdmad support-bundle`.",
		Shown:   "not: needs a failure of accept at one moment, or a defect",
	},
}
