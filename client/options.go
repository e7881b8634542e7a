package client

import "github.com/rdmad/rdmad/internal/attach"

// Option changes how Attach works.
type Option func(*options)

type options struct{ name string }

// Name sets the name under which the process shows up in the daemon's status;
// the default is the program's name.
func Name(name string) Option { return func(o *options) { o.name = name } }

// CallOption changes how a Method calls; see Method.With.
type CallOption func(*callOptions)

type callOptions struct {
	answer int
	noWait bool
}

// AnswerSize sets the room to reserve for an answer, in bytes; without it the
// size that the method declared is used. A larger answer ends in ErrTooLarge.
func AnswerSize(n int) CallOption { return func(o *callOptions) { o.answer = max(n, 0) } }

// NoWait makes requests fail with ErrBackpressure instead of waiting when the
// ring is full.
func NoWait() CallOption { return func(o *callOptions) { o.noWait = true } }

// DefaultSocket is where Attach looks for the daemon when neither its argument
// nor the environment variable RDMAD_SOCKET names a socket.
const DefaultSocket = attach.DefaultSocket
