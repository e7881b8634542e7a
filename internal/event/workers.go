package event

import "github.com/rs/zerolog"

// What workers can bring about.
const (
	WorkerRefused     Code = "worker-refused"
	WorkerProtocol    Code = "worker-protocol"
	WorkerStruckOut   Code = "worker-struck-out"
	DomainDamaged     Code = "domain-damaged"
	DomainNewMemory   Code = "domain-new-memory"
	DomainKeepsMemory Code = "domain-keeps-memory"
	DomainMemoryHeld  Code = "domain-memory-held"
	WorkerSlow        Code = "worker-slow"
	WorkerWatch       Code = "worker-watch"
	BellDeaf          Code = "bell-deaf"
)

var workerEvents = []Info{
	{
		Code: WorkerRefused, Level: zerolog.WarnLevel,
		Meaning: "A process wanted to attach and was refused. It has been told why.",
		Cause:   "Its user is in no [[domain]], its library is of another release, limits.workers is reached, or it is no worker at all.",
		Action:  "See the field error. Users are admitted by [[domain]], live with `rdmad reload`; versions are shown by `rdmad version`.",
		Shown:   "TestEventsOfWorkers",
	},
	{
		Code: WorkerProtocol, Level: zerolog.WarnLevel,
		Meaning: "A worker broke the protocol of its socket and was disconnected.",
		Cause:   "A library of another release, or a program that writes to the socket itself.",
		Action:  "See which program the field name is, and build it with the library of this release.",
		Shown:   "TestStrangersOnTheWorkerSocket",
	},
	{
		Code: WorkerStruckOut, Level: zerolog.WarnLevel,
		Meaning: "A worker was disconnected because of limits.strikes errors against the protocol of shared memory within 10 s.",
		Cause:   "A program that damages its own memory, a library of another release, or an attack.",
		Action:  "Find the process by the field pid. docs/security.md says what counts.",
		Shown:   "TestDomainRotation",
	},
	{
		Code: DomainDamaged, Level: zerolog.WarnLevel,
		Meaning: "The memory of a domain was damaged by one of its processes, while a process has it that was disconnected.",
		Cause:   "As for worker-struck-out: the process named by the field pid lives on and writes.",
		Action:  "End that process. The domain gets new memory.",
		Shown:   "TestDomainRotation",
	},
	{
		Code: DomainNewMemory, Level: zerolog.WarnLevel,
		Meaning: "A domain got new memory. Its workers are told to attach again.",
		Cause:   "A process of the domain that was disconnected for its errors still has the old memory.",
		Action:  "End the process named by the field pid, if it lives.",
		Shown:   "TestDomainRotation",
	},
	{
		Code: DomainKeepsMemory, Level: zerolog.ErrorLevel,
		Meaning: "A domain should have got new memory, and there is none.",
		Cause:   "No memory or descriptors are left for the daemon.",
		Action:  "Compare the limits of the service with `rdmad config explain-memory`; end the process named before.",
		Shown:   "not: needs a kernel without memory at that moment",
	},
	{
		Code: DomainMemoryHeld, Level: zerolog.ErrorLevel,
		Meaning: "A domain keeps its damaged memory, because processes that were disconnected hold too much of its earlier memory.",
		Cause:   "Processes that were struck out live on, again and again.",
		Action:  "End them: their ids are in the lines worker-struck-out. `rdmad status` shows how much is held.",
		Shown:   "not: needs many processes that live on after they were struck out",
	},
	{
		Code: WorkerSlow, Level: zerolog.WarnLevel,
		Meaning: "A worker was disconnected because it leaves too many answers unread, or for too long.",
		Cause:   "The process is stopped, swapped out, or too slow for what it asks.",
		Action:  "Look at the process. limits.spill_bytes and limits.spill_timeout say how much patience there is; both can be reloaded.",
		Shown:   "TestSpillTimeout",
	},
	{
		Code: WorkerWatch, Level: zerolog.WarnLevel,
		Meaning: "The kernel does not tell of the end of a worker that has closed its socket. The daemon looks each second whether it has ended.",
		Cause:   "The daemon's user watches as many descriptors as the kernel allows (fs.epoll.max_user_watches), or the kernel has no memory.",
		Action:  "None for one of these. Where there are many, raise the limit.",
		Shown:   "not: the kernel refuses to watch a descriptor only where it has no memory left",
	},
	{
		Code: BellDeaf, Level: zerolog.ErrorLevel,
		Meaning: "Old memory of a domain could not be taken from its agent's watch list.",
		Cause:   "A defect; the kernel refuses to end a watch that exists.",
		Action:  "Report it with the log.",
		Shown:   "not: the kernel call does not fail",
	},
}
