// Package rdmasys reads what the kernel tells about RDMA devices below /sys, and
// chooses among devices as the configuration asks.
//
// It needs neither libibverbs nor access to the devices, so it works in every
// build and for every user. The kernel's files are not trusted: one that is
// missing, unreadable or makes no sense leaves its field empty, and never hides
// another device.
//
// The types are those of the verbs provider, which knows more: what a device can
// do (its limits) is not in /sys.
package rdmasys
