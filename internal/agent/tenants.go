package agent

import "os"

// ownPID is the process id of the core, and of the services in it.
var ownPID = os.Getpid()

// ExpectNone ends the wait for tenants.
func (d *Domain) ExpectNone() {
	d.Expecting = false
	for _, m := range d.methods {
		if m != nil && m.deserted() {
			d.refuseQueue(m)
		}
	}
}

// DismissOwn lets services of this process take no new requests, and returns how many they have.
func (d *Domain) DismissOwn() (busy int) {
	for _, w := range d.present {
		if w.PID == ownPID {
			w.leaving = true
			busy += w.outstanding
		}
	}
	return busy
}
