//go:build verbs && cgo && linux && !faultpoints

package verbs

// vulnerable and safe bound the time in which a device can be damaged: only in a build
// with the tag "faultpoints".
func (d *Device) vulnerable() {}
func (d *Device) safe()       {}

// spoil may damage a work request: only in a build with the tag "faultpoints".
func spoil(*cSend) {}
