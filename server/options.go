package server

import "github.com/rdmad/rdmad/internal/attach"

// Option changes how Attach works.
type Option func(*options)

type options struct {
	name    string
	workers int
	wait    Mode
	large   int64
	streams int
}

// Name sets the name under which the process shows up in the daemon's status; the
// default is the program's name. The daemon shows 64 bytes of it at most, and a question
// mark for each that is not printable ASCII.
func Name(name string) Option { return func(o *options) { o.name = name } }

// Workers sets how many handlers may run at once in this process, 1 to 1024;
// the default is 4. A worker beyond the first costs nothing until requests wait
// for about a millisecond because all running handlers are busy.
func Workers(n int) Option { return func(o *options) { o.workers = min(max(n, 1), maxWorkers) } }

// LargeMessages bounds the memory, in bytes, for requests and answers that fit no run of
// slots: those that are coming in, and those that their callers have not fetched yet. A message
// of a stream that is larger than 256 KiB counts too, from when its handler waits for it until that
// asks for the next one or returns. The default is 4 GiB. Beyond it such requests are not executed, such answers fail, and
// streams with such messages end.
func LargeMessages(bytes int64) Option { return func(o *options) { o.large = max(bytes, 0) } }

// Streams sets how many handlers of streams may run at once in this process; the default
// is 1024. Callers that open more get an ErrNotExecuted. Besides its large messages, which
// LargeMessages bounds, each takes up to 256 KiB in each direction. What handlers have left for callers who do not fetch it, up
// to 256 KiB for each stream, is bounded by as much as n of them have room for.
func Streams(n int) Option { return func(o *options) { o.streams = max(n, 0) } }

const (
	defaultWorkers = 4
	maxWorkers     = 1024
	defaultLarge   = 4 << 30
	defaultStreams = 1024
)

// MethodOption describes a method to its callers; see Handle.
type MethodOption func(*attach.Method)

// AnswerSize declares how large answers get, in bytes, so that callers reserve
// room for them in the slots of their requests. Callers may ask for more. The
// default is DefaultAnswerSize. More than the largest class of slots takes ([[class]],
// 2125696 bytes by default) is refused by Handle with ErrInvalid: answers that are
// larger than what is declared are fetched in parts.
func AnswerSize(n int) MethodOption { return func(m *attach.Method) { m.Answer = max(n, 0) } }

// AnswerLikeRequest declares that answers are no larger than their requests.
func AnswerLikeRequest() MethodOption {
	return func(m *attach.Method) { m.Answer = attach.AnswerLikeRequest }
}

// DefaultAnswerSize is the room for answers of methods that declare nothing.
const DefaultAnswerSize = 960
