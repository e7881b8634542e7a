package faultpoint

// Role says which process passes a point.
type Role string

const (
	// Client is a worker that makes requests.
	Client Role = "client"
	// Service is a worker that answers them.
	Service Role = "service"
	// Core is a daemon's core, which another one replaces, at work on messages.
	Core Role = "core"
	// Control is a core that starts, ends, or deals with workers and peers.
	Control Role = "control"
	// Rotating is a core that gives a domain new memory, because of what a process has done to the old.
	Rotating Role = "rotating"
	// Supervisor is the process that starts cores: there tests do something to others.
	Supervisor Role = "supervisor"
)

// Point is a step at which a process can be made to end.
type Point struct {
	// Name is what Here is called with.
	Name string
	// Role is the process that the tests of faults kill there. Others may pass it.
	Role Role
	// After says what has happened.
	After string
}

// Points are all steps, in the order in which a process comes to them. Nobody may
// change it.
var Points = []Point{
	{"attach.connected", Client, "the socket is connected, nothing is said"},
	{"attach.hello_sent", Client, "hello is sent, the welcome not received"},
	{"attach.welcomed", Client, "the descriptors have come, nothing is mapped"},
	{"attach.mapped", Client, "the segments of the domain and the worker are mapped"},
	{"resolve.before", Client, "a method is to be looked up"},
	{"lane.received", Client, "a lane's descriptor has come"},
	{"lane.mapped", Client, "the lane is mapped"},
	{"resolve.after", Client, "the daemon has named the route"},

	{"claim.before_cas", Client, "the cursor is read, no slot is claimed"},
	{"claim.after_cas", Client, "one more slot of the run is claimed"},
	{"claim.refused", Client, "a slot of the run was not free, those before it are claimed"},
	{"claim.given_back", Client, "those before it are free again"},
	{"claim.complete", Client, "the whole run is claimed, the cursor is before it"},
	{"claim.before_late", Client, "the cursor is behind the run, the sender may be too"},
	{"claim.after_late", Client, "the sender is told to come back"},
	{"claim.after_cursor", Client, "the cursor has moved behind the run"},
	{"claim.held", Client, "the run is the client's, nothing is written"},
	{"wait.announced", Client, "a wait for free slots is announced"},

	{"publish.before", Client, "header and payload are written"},
	{"publish.after", Client, "the word is PUB, no mark is set"},
	{"bell.marked", Client, "the lane's or worker's mark is set, the agent may sleep"},
	{"bell.before", Client, "the agent sleeps, and is to be woken"},
	{"bell.rung", Client, "it is woken"},
	{"revoke.after", Client, "the request is taken back, its slots are a claim again"},
	{"abort.before", Client, "a claim is to be given back"},
	{"abort.after", Client, "it is given back, and waiters are told"},

	{"sleep.announced", Client, "the worker is about to sleep"},
	{"hint.read", Client, "a hint is taken, the ring still has it"},
	{"hint.after_head", Client, "the ring has room for another"},
	{"answer.seen", Client, "the answer is there and the future taken"},
	{"answer.read", Client, "it is copied"},
	{"free.after_slot", Client, "one more slot is free, the last of the run first"},
	{"answer.consumed", Client, "all slots of the run are free"},
	{"freed.before_look", Client, "nobody has looked who waits for them"},
	{"freed.counted", Client, "waiters want more, and are told how many there are"},
	{"freed.before_bell", Client, "the waiters are this process's to wake"},
	{"freed.before_wake", Client, "the bell has moved, they sleep still"},

	{"region.before_ask", Client, "a region is to be made"},
	{"region.received", Client, "its descriptor has come"},
	{"region.answered", Client, "it is mapped"},
	{"export.before", Client, "a node is to be told of it"},
	{"export.after", Client, "the node knows it"},
	{"region.unmapped", Client, "it is unmapped, the daemon has it still"},
	{"region.freed", Client, "the daemon is told"},
	{"close.before", Client, "the session is to end in good order"},
	{"close.said", Client, "goodbye is said, the socket is open"},
	{"close.after", Client, "the socket is closed, the process lives"},

	{"register.before", Service, "a method is to be offered"},
	{"register.after", Service, "it is offered, its handler is not in the table"},
	{"mapped.before", Service, "a lane is mapped, the daemon does not know"},
	{"mapped.after", Service, "the daemon may deliver from it"},
	{"pick.before", Service, "the request is RECV"},
	{"pick.after", Service, "it is PICKED"},
	{"handler.before", Service, "its handler is to run"},
	{"handler.after", Service, "its handler has run, the answer's payload is written"},
	{"conclude.before_header", Service, "the header is still the request's"},
	{"conclude.after_header", Service, "the answer is written as a whole"},
	{"finish.before", Service, "the word is to be DONE"},
	{"finish.after", Service, "the word is DONE"},
	{"serve.over", Service, "the request is served, its hint is with its worker"},
	{"hint.staged", Service, "the hint is in the ring, the tail before it"},
	{"report.published", Service, "the tail is behind it"},
	{"report.before_bell", Service, "the agent sleeps, and is to be woken"},
	{"report.over", Service, "the agent knows"},

	{"op.written", Service, "an operation is in its ring, the tail before it"},
	{"op.after_tail", Service, "the tail is behind it, no mark is set"},
	{"op.before_bell", Service, "the agent sleeps, and is to be woken"},
	{"op.submitted", Service, "the agent knows"},
	{"opsleep.announced", Service, "a wait for results is announced"},
	{"result.read", Service, "a result is taken, the ring still has it"},
	{"result.after_head", Service, "the ring has room for another"},

	{"journal.before", Core, "the journal has all but the head of a request that is to be taken"},
	{"journal.entered", Core, "the journal has the request, its word is PUB"},
	{"take.after", Core, "the word is TAKEN"},
	{"post.before", Core, "requests or answers are journalled, nothing is posted"},
	{"post.after", Core, "they are posted, no completion has been seen"},
	{"record.before", Core, "a request has arrived, the records have all but its head"},
	{"record.accepted", Core, "the records have it, nobody else"},
	{"record.assigned", Core, "a process is to have it"},
	{"deliver.before", Core, "the answer word is still that of the request before it"},
	{"deliver.after", Core, "the word is RECV, no hint is stored"},
	{"wake.published", Core, "hints are in the worker's ring, it may sleep"},
	{"wake.before_bell", Core, "the worker sleeps, and is to be woken by this process"},
	{"record.before_end", Core, "the answer is in the slots, the record is active"},
	{"record.ended", Core, "the record is done, the answer is not sent"},
	{"hand.before", Core, "the answer has arrived, the word is TAKEN"},
	{"hand.after", Core, "the word is ANS, the journal has the request"},
	{"journal.noted", Core, "the slots are about to be freed, or an error to be written"},
	{"journal.before_strike", Core, "all is done, the journal has the request"},
	{"journal.struck", Core, "the journal has it no more"},
	{"sweep.freed", Core, "one more slot of a dead worker is free"},

	{"core.started", Control, "the core has its configuration, and nothing else"},
	{"core.handed", Control, "it has what the last core has left"},
	{"adopt.incarnation", Control, "it has the incarnation, its own versions are kept"},
	{"adopt.domain", Control, "a domain has its segment again"},
	{"adopt.worker", Control, "one more worker is adopted, nothing is said to it"},
	{"adopt.region", Control, "one more region is adopted"},
	{"adopt.lane", Control, "one more lane is adopted, nothing moves in it"},
	{"adopt.before_dispatch", Control, "all lanes are, nothing that waits is given to a process"},
	{"adopt.after_dispatch", Control, "it is, local lanes do not agree yet"},
	{"core.adopted", Control, "everything is adopted, nobody is served"},
	{"core.ready", Control, "the supervisor is told so"},
	{"adopt.resumed", Control, "a worker is told"},
	{"adopt.had", Control, "it has said what it has"},
	{"depot.before_put", Control, "something is to be kept"},
	{"depot.after_put", Control, "it is kept"},
	{"depot.before_update", Control, "what is known of it is to change"},
	{"depot.after_update", Control, "it has changed"},
	{"depot.before_drop", Control, "it is to be kept no more"},
	{"depot.after_drop", Control, "it is not"},
	{"enlist.kept", Control, "a new worker is kept, nothing is said to it"},
	{"welcome.sent", Control, "it has its welcome, the depot does not say so"},
	{"bye.heard", Control, "a worker has said goodbye, nobody else knows"},
	{"detach.begun", Control, "the connection of a worker has ended"},
	{"detach.done", Control, "it gets no more requests"},
	{"bury.done", Control, "what it held is free, but for regions"},
	{"bury.told", Control, "those who answer its requests are told, or about to be"},
	{"bury.freed", Control, "its regions are free too, it is kept still"},
	{"gone.heard", Control, "a peer has said that a caller is gone, nothing is done"},
	{"gone.dropped", Control, "one more of its requests is answered that no handler has started on"},
	{"gone.notified", Control, "processes with others of them are told, the peer has no answer"},
	{"suspend.out", Control, "the session has ended, a lane to the peer is suspended"},
	{"suspend.in", Control, "a lane from the peer is"},
	{"repeat.export", Control, "a region is named again in a new session"},
	{"repeat.over", Control, "all are, and the peer is told"},
	{"open.before_ask", Control, "a lane is to be opened, the list of what was sent is made"},
	{"open.answered", Control, "the peer has said what it knows of that"},
	{"open.connected", Control, "the connection is made, the agent does not know"},
	{"open.up", Control, "the lane is up, nothing is sent again"},
	{"open.resynced", Control, "what the peer has not seen is sent again"},
	{"resend.queued", Control, "one more request is, none of them posted"},
	{"accept.queried", Control, "the peer is to be told what is known of its requests"},
	{"accept.sent", Control, "it is, there is no connection"},
	{"accept.connected", Control, "there is, the agent does not know"},
	{"accept.up", Control, "the lane is up"},
	{"spill.before", Control, "answers that their worker does not take are copied"},
	{"spill.sent", Control, "the copies are in its socket"},
	{"spill.moved", Control, "one more of their slots is free"},

	{"rotate.kept", Rotating, "a domain's new memory is kept, the old one is as it was"},
	{"rotate.retired", Rotating, "what was under way in the old one has its outcome"},

	{"supervise.started", Supervisor, "a core runs, the supervisor does nothing yet"},
	{"supervise.ended", Supervisor, "no core runs"},
}
