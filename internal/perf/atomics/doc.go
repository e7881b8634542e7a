// Package atomics has several connections of a client count on the same 8 bytes of a server's
// memory, by fetch-and-add and by compare-and-swap, and measures how long an operation takes and
// how many there are per second.
//
// That the device's operations are atomic is checked in every run and not measured apart. Each
// increment is a ticket: the value that was there before. Every ticket must be given out exactly
// once, no compare-and-swap may fail unless another one has succeeded since, and in the end the
// counter must be what it was plus the number of increments, as the server sees it and as the
// client reads it. It starts just below 2^32, so that half an operation is noticed, too.
package atomics
