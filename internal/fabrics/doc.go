// Package fabrics opens the devices that a node's data goes over: the provider that the
// configuration names, or the best that there is, with tcp behind it. It says how each came
// to be chosen, and tells of what a device reports.
package fabrics
