package event

import "github.com/rs/zerolog"

// What can happen to the daemon's own processes, its configuration, and what is kept for the next core.
const (
	CoreDied         Code = "core-died"
	CoreNoStart      Code = "core-no-start"
	CoreKilled       Code = "core-killed"
	CoreStalled      Code = "core-stalled"
	CoreHung         Code = "core-hung"
	SupervisorGone   Code = "supervisor-gone"
	UpgradeFailed    Code = "upgrade-failed"
	NoteLost         Code = "note-lost"
	ReloadRefused    Code = "reload-refused"
	ReloadPending    Code = "reload-pending"
	TakeoverFailed   Code = "takeover-failed"
	WorkerNotAdopted Code = "worker-not-adopted"
	LaneNotAdopted   Code = "lane-not-adopted"
	RegionNotAdopted Code = "region-not-adopted"
	NotKept          Code = "not-kept"
	NotDropped       Code = "not-dropped"
	StoreClose       Code = "store-close"
	ManagerDeaf      Code = "manager-deaf"
)

var processEvents = []Info{
	{
		Code: CoreDied, Level: zerolog.ErrorLevel,
		Meaning: "The core has ended without being told to. The supervisor starts another, which adopts the workers; they see a pause.",
		Cause:   "A crash, the kernel's out-of-memory killer, a watchdog, or somebody's kill. The field error has the signal or the exit status.",
		Action:  "Look for the line before it from the core, and for the kernel's: `journalctl -k | grep -i oom`. If it comes again and again: `rdmad support-bundle` and report it.",
		Shown:   "TestEventsOfProcesses",
	},
	{
		Code: CoreNoStart, Level: zerolog.ErrorLevel,
		Meaning: "The first core could not start, so the daemon has ended.",
		Cause:   "What the configuration asks for is not to be had here: a device, an address, a certificate. The core's own line just before names it. A program with services in its core may also end itself before they are registered.",
		Action:  "Run `rdmad doctor`, correct the configuration, and check it with `rdmad config check`.",
		Shown:   "TestEventsOfProcesses",
	},
	{
		Code: CoreKilled, Level: zerolog.ErrorLevel,
		Meaning: "The core did not stop within node.drain_timeout and ten seconds more, and was killed.",
		Cause:   "The core hangs, or was stopped by a debugger or a signal.",
		Action:  "Report it with the log since the stop. Nothing needs to be cleaned up.",
		Shown:   "TestCoreIsKilled",
	},
	{
		Code: CoreHung, Level: zerolog.ErrorLevel,
		Meaning: "The core made no progress for node.hang_limit, or was not ready 10 minutes after its start, so the supervisor ends it and starts another, which adopts the workers.",
		Cause:   "As of core-stalled, or somebody has stopped the core, perhaps with a debugger: use node.hang_limit = \"0s\" then.",
		Action:  "Its stacks are in the log after this line, unless it could not run at all. If it comes again: `rdmad support-bundle` and report it.",
		Shown:   "TestHangingCoreIsReplaced",
	},
	{
		Code: CoreStalled, Level: zerolog.ErrorLevel,
		Meaning: "Something in the core makes no progress: the field parts names the agents, or the conductor. As long as that is so the supervisor does not hear that all is well, and the service manager's watchdog is not fed.",
		Cause:   "A hanging device driver, a machine that swaps or has far too few processors, or a defect.",
		Action:  "Look at the machine with `vmstat 1`; if it lasts, the supervisor ends the core after node.hang_limit and its stacks are in the log.",
		Shown:   "TestWatchdogStalls",
	},
	{
		Code: SupervisorGone, Level: zerolog.ErrorLevel,
		Meaning: "The supervisor has died and the core ends, too.",
		Cause:   "Somebody killed the supervisor, or the out-of-memory killer did.",
		Action:  "Start the service again, if the service manager does not: `systemctl start rdmad`. If the service manager restarts it, workers stay attached by its store of descriptors; after a start by hand they attach again.",
		Shown:   "TestEventsOfProcesses",
	},
	{
		Code: UpgradeFailed, Level: zerolog.ErrorLevel,
		Meaning: "The core was not replaced by the new program. Either the old core goes on or the old program was started again.",
		Cause:   "The new program cannot take over what the old one keeps, or does not start. The field error says which.",
		Action:  "See `rdmad status`, line upgrade. Install a program that fits and run `rdmad upgrade`, or restart the service, which ends all attachments.",
		Shown:   "TestEventsOfProcesses",
	},
	{
		Code: NoteLost, Level: zerolog.WarnLevel,
		Meaning: "The core was not told something for its status, such as how an upgrade or a reload went.",
		Cause:   "The core was just dying.",
		Action:  "None: the next core is told.",
		Shown:   "not: the core must die within microseconds; the next core gets the note anyway",
	},
	{
		Code: ReloadRefused, Level: zerolog.ErrorLevel,
		Meaning: "The configuration was to be reloaded and has problems. All of the old one stays in force.",
		Cause:   "An error in the file or in the environment; each problem is in the field error.",
		Action:  "Correct the file, check it with `rdmad config check`, and run `rdmad reload`.",
		Shown:   "TestReloadRefused",
	},
	{
		Code: ReloadPending, Level: zerolog.WarnLevel,
		Meaning: "The configuration was reloaded, and the named keys count only after a restart. The others are in force.",
		Cause:   "The file changes keys that cannot be changed while the daemon runs.",
		Action:  "See `rdmad config diff`. Restart when it suits: `systemctl restart rdmad` ends attachments, so drain first.",
		Shown:   "TestReloadPending",
	},
	{
		Code: TakeoverFailed, Level: zerolog.ErrorLevel,
		Meaning: "The new core could not go on where the last one ended. All attachments end, and workers must attach again.",
		Cause:   "The core before it was of another layout, the machine's memory is damaged, or what is kept does not fit the configuration.",
		Action:  "None for the workers that attach again by themselves. If it happens without an upgrade, report it.",
		Shown:   "not: needs what is kept by another layout or boot, which upgrades refuse before",
	},
	{
		Code: WorkerNotAdopted, Level: zerolog.ErrorLevel,
		Meaning: "One worker could not be adopted from the last core; its attachment ends.",
		Cause:   "Its process died with the core, or a limit of memory or descriptors was reached.",
		Action:  "Compare `ulimit -n` and the memory of the service with `rdmad config explain-memory`. The worker attaches again.",
		Shown:   "not: needs memory that cannot be mapped, at one moment of a takeover",
	},
	{
		Code: LaneNotAdopted, Level: zerolog.ErrorLevel,
		Meaning: "One lane could not be adopted from the last core; requests in it end with an error that says whether they may have been executed.",
		Cause:   "As for worker-not-adopted; or a process that was not adopted may still be at work in the lane, whose slots are then given to nobody else.",
		Action:  "As for worker-not-adopted. Without such a worker, a process of the domain has marked slots as those of one that does not exist: see damaged domains, in `rdmad status`.",
		Shown:   "not: needs memory that cannot be mapped, or a process that spoils slots, at one moment of a takeover",
	},
	{
		Code: RegionNotAdopted, Level: zerolog.ErrorLevel,
		Meaning: "One region could not be adopted from the last core; operations on it fail.",
		Cause:   "As for worker-not-adopted.",
		Action:  "As for worker-not-adopted. The worker makes the region again.",
		Shown:   "not: needs memory that cannot be mapped, at one moment of a takeover",
	},
	{
		Code: NotKept, Level: zerolog.ErrorLevel,
		Meaning: "Something is not kept for the next core or the next supervisor. All goes on; if the core, or the supervisor, dies now, what it is about is lost.",
		Cause:   "The supervisor's limit of descriptors, or the service manager's store of them, is full; or the service manager did not take it, which is told by manager-deaf, too.",
		Action:  "Raise LimitNOFILE and FileDescriptorStoreMax of the unit; `rdmad config explain-memory` says how many are needed. The service manager is given what is not in its store again when it has room, and when it listens.",
		Shown:   "TestEventsOfHost",
	},
	{
		Code: NotDropped, Level: zerolog.ErrorLevel,
		Meaning: "Something that has ended is still kept for the next core, which will find out.",
		Cause:   "The supervisor does not read. One that is gone is told by supervisor-gone.",
		Action:  "See whether the supervisor runs: `rdmad status` has its process id.",
		Shown:   "not: needs a supervisor that lives and has lost its end of the connection",
	},
	{
		Code: StoreClose, Level: zerolog.WarnLevel,
		Meaning: "The service manager's store was not left in good order when the daemon ended.",
		Cause:   "The service manager does not read its socket.",
		Action:  "None. What is left there is dropped at the next start.",
		Shown:   "not: needs a close that fails",
	},
	{
		Code: ManagerDeaf, Level: zerolog.WarnLevel,
		Meaning: "The service manager does not take what the daemon tells it.",
		Cause:   "NOTIFY_SOCKET names a socket that nobody reads, or that is not there: the variable may be left over from another service.",
		Action:  "Look at the service manager: `systemctl status`, `journalctl -u rdmad`. When it listens it is told again what it must know. Where none has started the daemon, unset NOTIFY_SOCKET.",
		Shown:   "TestEventsOfNotify",
	},
}
