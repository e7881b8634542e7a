//go:build !race

package client

const copyFirst = false
