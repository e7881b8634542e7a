package daemon

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/slots"
)

// The bootstrap protocol between daemons: frames of a 4-byte big-endian length
// and that many bytes of JSON, over TCP. docs/protocol.md describes it.
const (
	peerProtocol = 1
	peerMagic    = "rdmad-peer"
	// maxHello bounds a frame before the peer is known, maxFrame afterwards.
	maxHello = 4 << 10
	maxFrame = 1 << 20
)

type peerType string

const (
	// peerHello opens the conversation in both directions.
	peerHello peerType = "hello"
	// peerReady ends the handshake; sent by the side that dialled.
	peerReady peerType = "ready"
	// peerReject ends the conversation, with a reason.
	peerReject peerType = "reject"
	// peerDirectory replaces what is known of the sender's services.
	peerDirectory peerType = "directory"
	// peerOpen asks for the answering end of a lane; peerAccept or peerRefuse
	// answers.
	peerOpen   peerType = "open"
	peerAccept peerType = "accept"
	peerRefuse peerType = "refuse"
	// peerBroken says that the sender's end of a lane's connection is gone; Seq
	// is that of the open that made it.
	peerBroken peerType = "broken"
	// peerPing is answered by peerPong.
	peerPing peerType = "ping"
	peerPong peerType = "pong"
	// peerExport makes a region of the sender's known; peerExported or peerRefuse
	// answers.
	peerExport   peerType = "export"
	peerExported peerType = "exported"
	// peerUnexport takes it back; peerUnexported answers when no handler can reach
	// it any more.
	peerUnexport   peerType = "unexport"
	peerUnexported peerType = "unexported"
	// peerRevoke says that the owner of a region is dead: operations on it are to
	// fail. The region is taken back later.
	peerRevoke peerType = "revoke"
	// peerDrain says that the sender takes no new requests.
	peerDrain peerType = "drain"
	// peerDrained answers it: none of the sender's requests is under way, and
	// its lanes to the receiver are down.
	peerDrained peerType = "drained"
)

// peerMessage is the envelope of all messages; Seq of an answer is that of its
// question.
type peerMessage struct {
	Type      peerType    `json:"type"`
	Seq       uint64      `json:"seq,omitempty"`
	Hello     *helloBody  `json:"hello,omitempty"`
	Clock     int64       `json:"clock,omitempty"`
	Reason    string      `json:"reason,omitempty"`
	Directory []listing   `json:"directory,omitempty"`
	Lane      *laneBody   `json:"lane,omitempty"`
	Region    *regionBody `json:"region,omitempty"`
}

// helloBody introduces a daemon.
type helloBody struct {
	Magic       string `json:"magic"`
	Protocol    int    `json:"protocol"`
	ABI         uint32 `json:"abi"`
	Node        string `json:"node"`
	Incarnation string `json:"incarnation"`
	Fabric      string `json:"fabric"`
	// Now is the sender's CLOCK_MONOTONIC in nanoseconds.
	Now int64 `json:"now"`
}

// listing is a method in a directory.
type listing struct {
	Domain  string `json:"domain"`
	Service string `json:"service"`
	Method  string `json:"method"`
	ID      uint32 `json:"id"`
	Answer  int    `json:"answer"`
}

// laneBody describes one end of a lane to the other.
type laneBody struct {
	Domain   string           `json:"domain,omitempty"`
	Class    string           `json:"class,omitempty"`
	Geometry slots.Geometry   `json:"geometry,omitzero"`
	Address  []byte           `json:"address"`
	Key      fabric.RemoteKey `json:"key"`
	// Incoming, of a broken lane: requests came in by the sender's end.
	Incoming bool `json:"incoming,omitempty"`
	// Bulk: it is no lane but a connection for operations on regions.
	Bulk bool `json:"bulk,omitempty"`
}

// regionBody names a region of the sender's domain; see slots.RegionID.
type regionBody struct {
	Domain     string           `json:"domain"`
	Index      uint32           `json:"index"`
	Generation uint32           `json:"generation"`
	Key        fabric.RemoteKey `json:"key,omitzero"`
}

func (r *regionBody) id() slots.RegionID { return slots.MakeRegionID(r.Index, r.Generation) }

var errFrame = errors.New("malformed frame")

// writePeer writes one frame.
func writePeer(w io.Writer, m *peerMessage) error {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode %s: %w", m.Type, err)
	}
	if len(data) > maxFrame {
		return fmt.Errorf("%w: %s of %d bytes, at most %d", errFrame, m.Type, len(data), maxFrame)
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...))
	return err
}

// readPeer reads one frame of at most limit bytes. Errors wrap errFrame for
// bytes that are no message, else they are the reader's.
func readPeer(r io.Reader, limit int) (*peerMessage, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n == 0 || uint64(n) > uint64(limit) {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", errFrame, n, limit)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, err
	}
	return decodePeer(data)
}

// decodePeer decodes the body of a frame.
func decodePeer(data []byte) (*peerMessage, error) {
	var m peerMessage
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", errFrame, err)
	}
	if m.Type == "" {
		return nil, fmt.Errorf("%w: no type", errFrame)
	}
	return &m, nil
}
