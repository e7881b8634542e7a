// Package status is what a daemon tells of itself: the JSON of "rdmad status --json", of the
// web page's data, and of traces, as Go types. The daemon fills them in and tools read them;
// there is nothing here that does either. Fields are added, but do not change their meaning:
// tools of other releases read them, too.
package status
