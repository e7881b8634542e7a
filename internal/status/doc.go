// Package status is what a daemon tells of itself: the JSON of "rdmad status --json", of the
// web page's data, and of traces, as Go types. The daemon fills them in, for the most part, and tools read them;
// histograms of counters are described here, for who reads counters without a daemon. Fields are added, but do not change their meaning:
// tools of other releases read them, too.
package status
