// Package randomfill fills scattered pages of a client's memory with random bytes that both
// sides can make again from a seed. It is what a store does that reads pages for a client:
//
//	client                                                        server
//	  offers its address and two regions        -- CONNECT -->
//	  says what it wants: seed, size of pages,  -- REQUEST -->      checks it
//	  which pages of each region, and a number                     makes the bytes (MT19937-64)
//	  of its own                                <-- writes ---      of each page, to its place
//	  waits for the number                      <-- immediate --    with the last of the writes
//	  compares every byte of both regions
//
// CONNECT travels over the control link, with the connection data of package perf; REQUEST is a
// send over the fabric. Each page of each region is one write.
//
// That the immediate arrives says that all pages have arrived only if the device keeps the
// order of writes. Of one that does not, all other writes are completed before the last one is
// posted.
package randomfill
