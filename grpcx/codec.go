package grpcx

import (
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// codecV1 makes an encoding.CodecV2 of an encoding.Codec.
type codecV1 struct{ encoding.Codec }

// Marshal returns one buffer with the message.
func (c codecV1) Marshal(v any) (mem.BufferSlice, error) {
	b, err := c.Codec.Marshal(v)
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

// Unmarshal parses a copy, which the codec may keep.
func (c codecV1) Unmarshal(data mem.BufferSlice, v any) error {
	return c.Codec.Unmarshal(data.Materialize(), v)
}

// marshal encodes a message. The caller must free it.
func marshal(c encoding.CodecV2, v any, limit int) (mem.BufferSlice, error) {
	if v == nil {
		return nil, nil // as in gRPC
	}
	data, err := c.Marshal(v)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "grpc: error while marshaling: %v", err)
	}
	if n := data.Len(); n > limit {
		data.Free()
		return nil, status.Errorf(codes.ResourceExhausted, "trying to send message larger than max (%d vs. %d)", n, limit)
	}
	return data, nil
}

// appendMessage appends a message to a frame that has everything else.
func appendMessage(b []byte, data mem.BufferSlice) []byte {
	for _, d := range data {
		b = append(b, d.ReadOnlyData()...)
	}
	return b
}

// decode parses a message of a frame into v. The codec may keep b.
func decode(b []byte, c encoding.CodecV2, v any, limit int) error {
	if len(b) > limit {
		return status.Errorf(codes.ResourceExhausted, "grpc: received message larger than max (%d vs. %d)", len(b), limit)
	}
	if err := c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, v); err != nil {
		return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	return nil
}

// buffers are for frames on their way out.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// keptBuffer is the largest buffer that is kept for later frames.
const keptBuffer = 64 << 10

// withBuffer calls f with an empty buffer, which is used again after it returns. f
// leaves what has become of the buffer in *b.
func withBuffer(f func(b *[]byte) error) error {
	b := buffers.Get().(*[]byte)
	*b = (*b)[:0]
	err := f(b)
	if cap(*b) <= keptBuffer {
		buffers.Put(b)
	}
	return err
}
