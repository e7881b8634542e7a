package slots

import "fmt"

// Status is the outcome of a request as it travels in an answer's header. The
// values are part of the layout.
type Status uint32

const (
	// StatusOK: executed, and the payload is the answer.
	StatusOK Status = 0
	// StatusRemote: executed, and the handler returned an error.
	StatusRemote Status = 1
	// StatusNoService: no such method, or nobody serves it now. Not executed.
	StatusNoService Status = 2
	// StatusTooLarge: the handler's answer did not fit. Executed.
	StatusTooLarge Status = 3
	// StatusDeadline: the deadline passed before a handler started. Not executed.
	StatusDeadline Status = 4
	// StatusNotExecuted: given back for another reason. Not executed.
	StatusNotExecuted Status = 5
	// StatusMaybeExecuted: the handler, its process, its node or the way there
	// was lost after the request was handed over.
	StatusMaybeExecuted Status = 6
	// StatusInvalid: the request broke the protocol. Not executed.
	StatusInvalid Status = 7
	// StatusNotExported: the responder's daemon does not know a region that the
	// request refers to, or not any more what the request may do with it. Not
	// executed.
	StatusNotExported Status = 8
)

var statusText = [...]string{
	StatusOK:            "ok",
	StatusRemote:        "remote error",
	StatusNoService:     "no such service",
	StatusTooLarge:      "answer too large",
	StatusDeadline:      "deadline passed",
	StatusNotExecuted:   "not executed",
	StatusMaybeExecuted: "may have been executed",
	StatusInvalid:       "invalid request",
	StatusNotExported:   "region not exported",
}

// String returns the status in words.
func (s Status) String() string {
	if int(s) < len(statusText) {
		return statusText[s]
	}
	return fmt.Sprintf("status %d", uint32(s))
}
