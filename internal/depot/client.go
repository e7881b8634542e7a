package depot

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/shm"
)

// Item is what is kept under a key.
type Item struct {
	Key  string
	Meta json.RawMessage
	// FDs are the descriptors, in the order in which they were put. They belong to
	// whoever has the item.
	FDs []int
}

// Close closes the item's descriptors: what nobody has taken over.
func (i *Item) Close() {
	shm.CloseFDs(i.FDs)
	i.FDs = nil
}

// Client is the core's end. Its methods are safe for concurrent use. Those of a nil
// Client do nothing: what a core without a depot puts is not kept.
type Client struct {
	conn  *conn
	notes chan struct{} // closed when nobody waits for notes any more
}

// Open takes over the descriptor that Store.Pair has made and returns what is kept, in
// the order in which it was put. note is called, from one goroutine, with what the
// supervisor has to tell from then on; it must return. The caller must Close the
// client, and the items.
func Open(f *os.File, note func(json.RawMessage)) (*Client, []Item, error) {
	conn, err := newConn(f)
	if err != nil {
		return nil, nil, err
	}
	var items []Item
	for {
		m, fds, err := conn.recv()
		switch {
		case err != nil:
			for i := range items {
				items[i].Close()
			}
			return nil, nil, errors.Join(fmt.Errorf("depot: taking over: %w", err), conn.close())
		case m.Op == opEnd:
			c := &Client{conn: conn, notes: make(chan struct{})}
			go c.read(note)
			return c, items, nil
		case m.Op == opPut:
			items = append(items, Item{Key: m.Key, Meta: m.Meta, FDs: fds})
		default:
			shm.CloseFDs(fds)
		}
	}
}

// read takes the supervisor's notes until it is gone or the client is closed.
func (c *Client) read(note func(json.RawMessage)) {
	defer close(c.notes)
	for {
		m, fds, err := c.conn.recv()
		if err != nil && !errors.Is(err, ErrInvalid) {
			return
		}
		shm.CloseFDs(fds)
		if err == nil && m.Op == opNote && note != nil {
			note(m.Meta)
		}
	}
}

// Put keeps an item, in place of the one that has the key. The descriptors stay the
// caller's, who may close them: the depot has its own. After an error nothing is kept under the key: the
// next core is better off without an item than with one that is another's by now.
func (c *Client) Put(key string, meta any, fds ...int) error {
	faultpoint.Here("depot.before_put")
	err := c.say(opPut, key, meta, fds...)
	if err != nil {
		_ = c.say(opDrop, key, nil) // takes no descriptors, and fails only if nothing can be said at all
	}
	faultpoint.Here("depot.after_put")
	return err
}

// Update changes the metadata of an item.
func (c *Client) Update(key string, meta any) error {
	faultpoint.Here("depot.before_update")
	err := c.say(opMeta, key, meta)
	faultpoint.Here("depot.after_update")
	return err
}

// Drop ends the keeping of an item. A key that is not there is no error.
func (c *Client) Drop(key string) error {
	faultpoint.Here("depot.before_drop")
	err := c.say(opDrop, key, nil)
	faultpoint.Here("depot.after_drop")
	return err
}

// Ready says that the core serves.
func (c *Client) Ready() error { return c.say(opReady, "", nil) }

func (c *Client) say(what op, key string, meta any, fds ...int) error {
	if c == nil {
		return nil
	}
	m := &message{Op: what, Key: key}
	if meta != nil {
		data, err := json.Marshal(meta)
		if err != nil {
			return fmt.Errorf("%w: metadata of %s: %w", ErrInvalid, key, err)
		}
		m.Meta = data
	}
	return c.conn.send(m, fds...)
}

// Close ends the client. What was put stays kept.
func (c *Client) Close() error {
	if c == nil {
		return nil
	}
	err := c.conn.close()
	<-c.notes
	return err
}
