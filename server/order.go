package server

import "github.com/rdmad/rdmad/slots"

// orders makes requests of the same order wait for each other: one of them at a time
// is ready or in its handler, the others wait behind it in the order in which they
// came. It blocks nobody and, once it has grown to what was the most at a time,
// allocates nothing. pool.mu guards it.
type orders struct {
	// nodes are the requests, rows the orders that have one; each that is not used
	// is in a list from freeNode or freeRow on. 0 ends every list.
	nodes []orderNode
	rows  []orderRow
	// table has the rows by the hash of their keys, linked by next.
	table             [1 << orderBits]int32
	freeNode, freeRow int32
	// ready are the requests that may start, oldest first.
	ready orderList
}

type orderNode struct {
	hint slots.Hint
	key  orderKey
	next int32
}

type orderRow struct {
	key     orderKey
	next    int32
	waiting orderList
}

type orderList struct{ first, last int32 }

// orderKey names an order: the lane, its number and the method. 0 names none.
type orderKey uint64

// orderBits is how many bits the hash of an orderKey has.
const orderBits = 8

// hash takes the upper bits of a product with the golden ratio, on which all of the key's bits have a part.
func (k orderKey) hash() int { return int(uint64(k) * 0x9e3779b97f4a7c15 >> (64 - orderBits)) }

// orderOf returns the order of the request that h names. Its header can be anything: a
// wrong one costs nobody but the domain's own processes their order.
func (p *pool) orderOf(h slots.Hint) orderKey {
	r := p.server.lanes[h.Lane()].Load()
	if r == nil || h.Index() >= r.Geometry().Slots {
		return 0 // not a hint of ours
	}
	var head slots.Header
	if !head.Decode(r.HeaderAt(h.Index())) || head.Order == 0 {
		return 0
	}
	return orderKey(uint64(h.Lane())<<48 | uint64(head.Order)<<32 | uint64(head.Method))
}

// add takes in a request.
func (o *orders) add(k orderKey, h slots.Hint) {
	n := o.node(k, h)
	if row := o.find(k); row != 0 {
		o.push(&o.rows[row].waiting, n)
		return
	}
	row := o.row(k)
	o.rows[row].next, o.table[k.hash()] = o.table[k.hash()], row
	o.push(&o.ready, n)
}

// take takes the oldest request that may start. done must follow.
func (o *orders) take() (k orderKey, h slots.Hint, ok bool) {
	n := o.pop(&o.ready)
	if n == 0 {
		return 0, 0, false
	}
	k, h = o.nodes[n].key, o.nodes[n].hint
	o.nodes[n] = orderNode{next: o.freeNode}
	o.freeNode = n
	return k, h, true
}

// done lets the next request of the order start.
func (o *orders) done(k orderKey) {
	row := o.find(k)
	if row == 0 {
		return
	}
	if n := o.pop(&o.rows[row].waiting); n != 0 {
		o.push(&o.ready, n)
		return
	}
	link := &o.table[k.hash()]
	for *link != row {
		link = &o.rows[*link].next
	}
	*link = o.rows[row].next
	o.rows[row] = orderRow{next: o.freeRow}
	o.freeRow = row
}

// find returns the row of an order, or 0.
func (o *orders) find(k orderKey) int32 {
	row := o.table[k.hash()]
	for row != 0 && o.rows[row].key != k {
		row = o.rows[row].next
	}
	return row
}

func (o *orders) node(k orderKey, h slots.Hint) int32 {
	if o.freeNode == 0 {
		if len(o.nodes) == 0 {
			o.nodes = append(o.nodes, orderNode{})
		}
		o.nodes = append(o.nodes, orderNode{})
		o.freeNode = int32(len(o.nodes) - 1)
	}
	n := o.freeNode
	o.freeNode = o.nodes[n].next
	o.nodes[n] = orderNode{hint: h, key: k}
	return n
}

func (o *orders) row(k orderKey) int32 {
	if o.freeRow == 0 {
		if len(o.rows) == 0 {
			o.rows = append(o.rows, orderRow{})
		}
		o.rows = append(o.rows, orderRow{})
		o.freeRow = int32(len(o.rows) - 1)
	}
	row := o.freeRow
	o.freeRow = o.rows[row].next
	o.rows[row] = orderRow{key: k}
	return row
}

func (o *orders) push(l *orderList, n int32) {
	if l.first == 0 {
		l.first = n
	} else {
		o.nodes[l.last].next = n
	}
	l.last = n
}

func (o *orders) pop(l *orderList) int32 {
	n := l.first
	if n != 0 {
		l.first = o.nodes[n].next
		o.nodes[n].next = 0
	}
	return n
}

// next takes the next request that may start, for b, with mu held. One with an order
// is alone in its batch: nobody else ever handles it, and the next of its order is let
// go when the batch is over.
func (p *pool) next(b *batch) (slots.Hint, bool) {
	for {
		if b.n == 0 {
			if k, h, ok := p.orders.take(); ok {
				b.order = k
				return h, true
			}
		}
		h, ok := p.pop()
		if !ok || !h.Ordered() {
			return h, ok
		}
		k := p.orderOf(h)
		if k == 0 {
			return h, true // to be handled like any other
		}
		p.orders.add(k, h)
	}
}

// aside reports whether requests wait that were taken from the daemon and may start;
// mu is held.
func (p *pool) aside() bool {
	return len(p.again)+len(p.waiting) > 0 || p.orders.ready.first != 0
}
