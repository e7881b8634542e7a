package grpcx

import (
	"encoding/binary"
	"fmt"
	"strings"

	"google.golang.org/grpc/metadata"
)

const (
	// maxValues is how many values the metadata of a block may have.
	maxValues = 1024
	// maxName is the longest name of a node or a codec in a head.
	maxName = 63
)

// head is what comes before the messages of a direction.
type head struct {
	// node is where the sender runs, as it says itself.
	node string
	// codec is the name of the codec of all messages. Of a caller only; empty means
	// "proto".
	codec string
	md    metadata.MD
}

func (h *head) append(b []byte) ([]byte, error) {
	b = appendText(b, h.node)
	b = appendText(b, h.codec)
	return appendMetadata(b, h.md)
}

// parseHead reads the block of a head. The metadata is not nil.
func parseHead(block []byte) (h head, err error) {
	c := cursor{s: string(block)}
	h.node = c.text(maxName)
	h.codec = c.text(maxName)
	if h.md, err = readMetadata(&c); err != nil {
		return head{}, err
	}
	if err := c.end("a head"); err != nil {
		return head{}, err
	}
	return h, nil
}

// appendMetadata appends metadata, without the keys that belong to the transport.
func appendMetadata(b []byte, md metadata.MD) ([]byte, error) {
	n := 0
	for k, vs := range md {
		if reserved(k) {
			continue
		}
		for _, v := range vs {
			if err := checkSent(k, v); err != nil {
				return b, err
			}
			n++
		}
	}
	if n > maxValues {
		return b, fmt.Errorf("%d values of metadata, at most %d", n, maxValues)
	}
	b = binary.AppendUvarint(b, uint64(n))
	for k, vs := range md {
		if reserved(k) {
			continue
		}
		for _, v := range vs {
			b = appendText(appendText(b, k), v)
		}
	}
	return b, nil
}

// readMetadata reads what appendMetadata has appended. Keys that belong to the
// transport, which a correct peer does not send, are an error.
func readMetadata(c *cursor) (metadata.MD, error) {
	n := int(c.number(maxValues))
	md := metadata.MD{}
	for range n {
		k, v := c.text(maxBlock), c.text(maxBlock)
		if c.bad {
			return nil, fmt.Errorf("%w: metadata", errFrame)
		}
		if reserved(k) {
			return nil, fmt.Errorf("%w: metadata with the key %.80q", errFrame, k)
		}
		if err := checkSent(k, v); err != nil {
			return nil, fmt.Errorf("%w: %w", errFrame, err)
		}
		md[k] = append(md[k], v)
	}
	if c.bad {
		return nil, fmt.Errorf("%w: metadata", errFrame)
	}
	return md, nil
}

// reserved reports whether a key is one of those that gRPC's transports use
// themselves. Users' values for them are left out, as gRPC does.
func reserved(key string) bool {
	switch key {
	case "content-type", "user-agent", "grpc-message-type", "grpc-encoding", "grpc-message", "grpc-status", "grpc-timeout", "te":
		return true
	}
	return strings.HasPrefix(key, ":")
}

// checkMetadata returns an error for the first pair that gRPC does not allow where it looks before it
// sends: keys of digits, lower-case letters and "_-.", and printable values except under keys that end in
// "-bin". It does not look at trailers, nor at what handlers give grpc.SetHeader and grpc.SendHeader.
func checkMetadata(md metadata.MD) error {
	for k, vs := range md {
		if reserved(k) {
			continue
		}
		for _, v := range vs {
			if err := checkPair(k, v); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkPair(key, value string) error {
	return check(key, value, func(c byte) bool { return c >= 0x20 && c <= 0x7e })
}

// checkSent has the rules for what goes over the wire. Those for values are HTTP/2's: RFC 9110, section 5.5.
func checkSent(key, value string) error {
	return check(key, value, func(c byte) bool { return c >= 0x20 && c != 0x7f || c == '\t' })
}

func check(key, value string, allowed func(c byte) bool) error {
	if key == "" {
		return fmt.Errorf("there is an empty key in the metadata")
	}
	for _, c := range []byte(key) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '.' && c != '-' && c != '_' {
			return fmt.Errorf("metadata key %.80q contains illegal characters not in [0-9a-z-_.]", key)
		}
	}
	if strings.HasSuffix(key, "-bin") {
		return nil
	}
	for _, c := range []byte(value) {
		if !allowed(c) {
			return fmt.Errorf("metadata key %.80q contains value with non-printable ASCII characters", key)
		}
	}
	return nil
}
