// Package guesttest has no code, only tests: of the guest of test/lab. They are
// skipped anywhere else. Packages that need RDMA rely on what is tested here.
package guesttest
