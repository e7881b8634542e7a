package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
)

// kernelPackage always depends on the newest kernel of the Debian release. Its
// "cloud" relative has no rdma_rxe.
const kernelPackage = "linux-image-amd64"

// kernel is the package of a kernel.
type kernel struct{ pkg, version string }

// release is what uname -r says in the guest.
func (k kernel) release() string { return strings.TrimPrefix(k.pkg, "linux-image-") }

// kernelDependency matches the package and the version that kernelPackage
// depends on.
var kernelDependency = regexp.MustCompile(`(?m)^Depends:.*?\b(linux-image-[0-9][a-z0-9.+-]*) \(= ([^)]+)\)`)

// parseKernel reads what apt-cache shows about kernelPackage.
func parseKernel(shown string) (kernel, error) {
	m := kernelDependency.FindStringSubmatch(shown)
	if m == nil {
		return kernel{}, fmt.Errorf("apt knows no %s: the lab needs a Debian repository and its list, run: apt-get update", kernelPackage)
	}
	return kernel{m[1], m[2]}, nil
}

// currentKernel returns the kernel that apt would install.
func currentKernel(ctx context.Context) (kernel, error) {
	shown, err := output(ctx, "", "apt-cache", "show", "--no-all-versions", kernelPackage)
	if err != nil && !isExit(err) {
		return kernel{}, err
	}
	// It fails and prints nothing when it does not know the package.
	return parseKernel(shown)
}
