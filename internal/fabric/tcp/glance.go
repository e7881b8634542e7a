package tcp

// Glance implements fabric.Glancer. While others had the processor, the peer has mostly answered
// on the connection that something arrived on last: a read finds it for the one system call that it takes
// anyway, where the poller would have to be asked first. Whether that is worth a read in vain is
// for the caller to know.
func (q *cq) Glance() {
	e := q.latest
	if e == nil || e.readable || e.starved || e.link != linkOpen || q.poller == nil {
		return
	}
	e.readable = true
	q.push(e)
}
