// Package peerproto is the bootstrap protocol between daemons: frames of a 4-byte
// big-endian length and that many bytes of JSON, over TCP, with or without TLS.
// docs/protocol.md describes it. What the messages bring about is the business of
// package daemon; here is what they look like, and how two daemons compare their clocks.
package peerproto

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/printable"
	"github.com/rdmad/rdmad/slots"
)

const (
	// Version is that of the protocol: daemons of different ones do not talk to each other.
	Version = 4
	// Magic is in each hello, so that other programs' connections are told apart.
	Magic = "rdmad-peer"
	// MaxHello bounds a frame before the peer is known, in bytes, and MaxFrame afterwards.
	MaxHello = 4 << 10
	MaxFrame = 1 << 20
)

// Type says what a message is about, and with that which of its fields count.
type Type string

const (
	// TypeHello opens the conversation in both directions.
	TypeHello Type = "hello"
	// TypeReady ends the handshake; sent by the side that dialled.
	TypeReady Type = "ready"
	// TypeClock asks for the receiver's clock, and answers, between hello and ready.
	TypeClock Type = "clock"
	// TypeReject ends the conversation, with a reason.
	TypeReject Type = "reject"
	// TypeDirectory replaces what is known of the sender's services.
	TypeDirectory Type = "directory"
	// TypeOpen asks for the answering end of a lane; TypeAccept or TypeRefuse
	// answers.
	TypeOpen   Type = "open"
	TypeAccept Type = "accept"
	TypeRefuse Type = "refuse"
	// TypeBroken says that the sender's end of a lane's connection is gone; Seq
	// is that of the open that made it.
	TypeBroken Type = "broken"
	// TypePing is answered by TypePong.
	TypePing Type = "ping"
	TypePong Type = "pong"
	// TypeExport makes a region of the sender's known; TypeExported or TypeRefuse
	// answers.
	TypeExport   Type = "export"
	TypeExported Type = "exported"
	// TypeUnexport takes it back; TypeUnexported answers when no handler can reach
	// it any more.
	TypeUnexport   Type = "unexport"
	TypeUnexported Type = "unexported"
	// TypeRevoke says that the owner of a region is dead: operations on it are to
	// fail. The region is taken back later.
	TypeRevoke Type = "revoke"
	// TypeRepeated says that the sender has exported again what there is of what it had
	// exported in the last session: the receiver forgets the rest. It comes in every
	// session, once, before the first open of a lane.
	TypeRepeated Type = "repeated"
	// TypeGone says that a caller is gone: nobody waits for its requests any more.
	// TypeNoted answers.
	TypeGone  Type = "gone"
	TypeNoted Type = "noted"
	// TypeTrace asks the receiver to follow requests of the sender that are marked, and what
	// it knows of some. TypeTraced answers. It is sent only to who says to know it.
	TypeTrace  Type = "trace"
	TypeTraced Type = "traced"
	// TypeDrain says that the sender takes no new requests.
	TypeDrain Type = "drain"
	// TypeDrained answers it, with its Seq: none of the sender's requests is under
	// way, and its lanes to the receiver are down.
	TypeDrained Type = "drained"
	// TypeUndrain says that the sender takes new requests again. A peer that does not know
	// it ends the connection, and takes this node for in service in the next one.
	TypeUndrain Type = "undrain"
)

// Message is the envelope of all messages; Seq of an answer is that of its
// question.
type Message struct {
	Type      Type     `json:"type"`
	Seq       uint64   `json:"seq,omitempty"`
	Hello     *Hello   `json:"hello,omitempty"`
	Clock     int64    `json:"clock,omitempty"`
	Reason    string   `json:"reason,omitempty"`
	Directory Listings `json:"directory,omitempty"`
	Lane      *Lane    `json:"lane,omitempty"`
	// Caller, of a gone, is the attach id of the caller at the sender's node.
	Caller int     `json:"caller,omitempty"`
	Region *Region `json:"region,omitempty"`
	Trace  *Trace  `json:"trace,omitempty"`
}

// Hello introduces a daemon.
type Hello struct {
	Magic       string `json:"magic"`
	Protocol    int    `json:"protocol"`
	ABI         uint32 `json:"abi"`
	Node        string `json:"node"`
	Incarnation string `json:"incarnation"`
	// Core tells the cores of an incarnation apart: a later one has a larger number.
	Core int64 `json:"core"`
	// Fabrics are the providers that may carry the link, the best first.
	Fabrics Fabrics `json:"fabrics"`
	// Now is the sender's CLOCK_MONOTONIC in nanoseconds. Clocks says that the sender
	// answers TypeClock.
	Now    int64 `json:"now"`
	Clocks bool  `json:"clocks,omitempty"`
	// Session, of the side that dials, names the connection. Lost is the name of the
	// last one between the two that the sender knows to have ended.
	Session uint64 `json:"session,omitempty"`
	Lost    uint64 `json:"lost,omitempty"`
	// Traces: the sender answers to a trace.
	Traces bool `json:"traces,omitempty"`
}

// Listing is a method in a directory.
type Listing struct {
	Domain  string `json:"domain"`
	Service string `json:"service"`
	Method  string `json:"method"`
	ID      uint32 `json:"id"`
	Answer  int    `json:"answer"`
	// Carries: all processes that serve it know slots.FlagCarry.
	Carries bool `json:"carries,omitempty"`
}

// Lane describes one end of a lane to the other.
type Lane struct {
	Domain string `json:"domain,omitempty"`
	Class  string `json:"class,omitempty"`
	// Number tells the lanes of a class apart, from 0 on.
	Number   int              `json:"number,omitempty"`
	Geometry slots.Geometry   `json:"geometry,omitzero"`
	Address  []byte           `json:"address"`
	Key      fabric.RemoteKey `json:"key"`
	// Mirror, of an open: what the receiver called its end of the lane when it was last
	// open, 0 for nothing; of an accept: what it is called. Sent, of an open or a gone,
	// are the requests that the sender waits for. Verdicts, of an accept, is a byte for each of
	// them if the end is the one that was asked for; else nothing is known of them.
	Mirror   uint64 `json:"mirror,omitempty"`
	Sent     []byte `json:"sent,omitempty"`
	Verdicts []byte `json:"verdicts,omitempty"`
	// Incoming, of a broken lane: requests came in by the sender's end.
	Incoming bool `json:"incoming,omitempty"`
	// Bulk: it is no lane but a connection for operations on regions. NoAtomics, of its accept: the
	// sender's device has no atomic operations.
	Bulk      bool `json:"bulk,omitempty"`
	NoAtomics bool `json:"no_atomics,omitempty"`
}

// Region names a region of the sender's domain; see slots.RegionID.
type Region struct {
	Domain     string           `json:"domain"`
	Index      uint32           `json:"index"`
	Generation uint32           `json:"generation"`
	Key        fabric.RemoteKey `json:"key,omitzero"`
}

// ID returns the region's name in its domain.
func (r *Region) ID() slots.RegionID { return slots.MakeRegionID(r.Index, r.Generation) }

// Trace is about requests of the sender's domain that are followed.
type Trace struct {
	Domain string `json:"domain"`
	// Key is in the marks of those that are to be followed, for so many milliseconds.
	Key    uint32 `json:"key,omitempty"`
	Millis int64  `json:"ms,omitempty"`
	// Marks are the requests that are asked about, and Stages what is known, in an answer.
	Marks  Marks  `json:"marks,omitempty"`
	Stages Stages `json:"stages,omitempty"`
}

// Stage is what the node of a handler knows of a request that it has followed. Times
// are in nanoseconds since its arrival there, 0 for not yet or unknown; Now is that of the
// answer.
type Stage struct {
	Mark      uint64 `json:"mark"`
	Given     int64  `json:"given,omitempty"`
	Began     int64  `json:"began,omitempty"`
	Ended     int64  `json:"ended,omitempty"`
	Collected int64  `json:"collected,omitempty"`
	Posted    int64  `json:"posted,omitempty"`
	Now       int64  `json:"now"`
	// Picked is when it was first seen that the handler had begun.
	Picked int64 `json:"picked,omitempty"`
	// Queued: it had to wait for a process. Again is how often it was taken back from one.
	Queued bool `json:"queued,omitempty"`
	Again  int  `json:"again,omitempty"`
	// Worker, Name and PID are of the process that has or had it.
	Worker int    `json:"worker,omitempty"`
	Name   string `json:"name,omitempty"`
	PID    int    `json:"pid,omitempty"`
	// Answers is how many answers there were in the group that carried its.
	Answers int `json:"answers,omitempty"`
}

// About returns what the answer says of a request, or nil. The answer may be nil, too.
func (b *Trace) About(mark uint64) *Stage {
	if b == nil {
		return nil
	}
	for i := range b.Stages {
		if b.Stages[i].Mark == mark {
			return &b.Stages[i]
		}
	}
	return nil
}

// ErrFrame is returned for bytes that are no message, and for a message that does not fit a frame.
var ErrFrame = errors.New("malformed frame")

// Write writes one frame. A message that does not fit it is ErrFrame, and nothing is written then.
func Write(w io.Writer, m *Message) error {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode %s: %w", m.Type, err)
	}
	if len(data) > MaxFrame {
		return fmt.Errorf("%w: %s of %d bytes, at most %d", ErrFrame, m.Type, len(data), MaxFrame)
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...))
	return err
}

// Read reads one frame of at most limit bytes. Errors wrap ErrFrame for
// bytes that are no message, else they are the reader's.
func Read(r io.Reader, limit int) (*Message, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n == 0 || uint64(n) > uint64(limit) {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrFrame, n, limit)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, err
	}
	return decode(data)
}

// maxProblem bounds what is said of a frame that is none, in bytes: encoding/json repeats numbers that do not fit, however long.
const maxProblem = 200

// decode decodes the body of a frame.
func decode(data []byte) (*Message, error) {
	var m Message
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("%w: %s", ErrFrame, printable.Limited(err.Error(), maxProblem))
	}
	if m.Type == "" {
		return nil, fmt.Errorf("%w: no type", ErrFrame)
	}
	return m.own(), nil
}
