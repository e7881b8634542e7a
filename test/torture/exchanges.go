package main

import (
	"context"

	"github.com/rdmad/rdmad/client"
)

// regionSize is how much a handler writes into the caller's region.
const regionSize = 64 << 10

// streamed exchanges some messages with a handler. What becomes of one without an answer
// nobody knows.
func streamed(c *caller, m *client.Method, s style, remote bool) error {
	since := now()
	st, err := m.Stream(context.Background())
	if err != nil {
		return c.unmade(s, remote, since, err)
	}
	defer st.Close()
	for range many {
		k, err := c.begin(s, remote, false)
		if err != nil {
			return err
		}
		k.flags = 0 // the end of the stream is no outcome of a message
		k.encode(k.bytes)
		err = st.Send(context.Background(), k.bytes)
		var answer []byte
		if err == nil {
			answer, err = st.Recv(context.Background())
		}
		if err != nil {
			c.endAs(k, outStreamLost, err)
			return nil
		}
		c.end(k, answer, nil)
	}
	return nil
}

// regions lets a handler write into a region, and checks what is there. A region whose
// fate is open is not used again.
func regions(c *caller, m *client.Method, s style, remote bool) error {
	if c.region == nil {
		since := now()
		r, err := c.conn.AllocRegion(context.Background(), regionSize)
		if err != nil {
			return c.unmade(s, remote, since, err)
		}
		c.region = r
	}
	ref, err := c.region.Ref(0, regionSize, client.MayWrite)
	if err != nil {
		return err
	}
	k, err := c.begin(s, remote, false)
	if err != nil {
		return err
	}
	k.flags = headRegion
	k.encode(k.bytes)
	answer, err := m.CallRegions(context.Background(), k.bytes, ref)
	switch {
	case err == nil && !filled(c.region.Bytes(), k.seed(false)):
		c.endAs(k, outWrong, nil)
	case outcomeOf(err) == outFailed:
		// The handler ran, and its connection for the bytes broke: it was asked for no error.
		c.endAs(k, outRegionLost, err)
	default:
		c.end(k, answer, err)
	}
	if err != nil {
		_ = c.region.Free() // again, or after the end of the connection, it does nothing
		c.region = nil
	}
	return nil
}
