package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/cmd/rdmad/bundle"
	"github.com/rdmad/rdmad/internal/doctor"
	"github.com/rdmad/rdmad/internal/version"
)

// bundleFlags are the flags of a support bundle.
type bundleFlags struct {
	config, socket, unit, output string
	configNamed                  bool
	limit                        time.Duration
	json                         bool
}

// bundleResult is a bundle as JSON.
type bundleResult struct {
	File    string   `json:"file"`
	Bytes   int64    `json:"bytes"`
	Missing []string `json:"missing"`
}

func newSupportBundle() *cobra.Command {
	var f bundleFlags
	c := &cobra.Command{
		Use:   "support-bundle",
		Short: "Collect what is needed to find out what is wrong with this node into one file",
		Long: "Collect versions, the findings of rdmad doctor, the configuration, the daemon's state, its distinct errors and\n" +
			"its log, what its goroutines and threads do, its limits, and what the kernel tells of RDMA and has logged, into\n" +
			"a compressed tar archive that only its owner may read. It works when the daemon is down or hangs: each part has\n" +
			"its time, and what could not be had is listed in MANIFEST, with the reason. Run it as root, or as the user of\n" +
			"the daemon: others may see less.\n\n" +
			"No key is in it, and no secret that looks like one: of the configuration only known keys are kept, of keys and\n" +
			"certificates their paths, and values of names such as \"password\" and \"token\" are taken out of every text. Look\n" +
			"at it before it leaves your hands all the same: logs can say anything, and names of nodes, users, services and\n" +
			"processes are in it.\n\n" +
			"Exit status: 0 if the file was written, also without some parts; 1 if not, and then nothing is left of it.",
		Example: "  rdmad support-bundle\n" +
			"  rdmad support-bundle -c /etc/rdmad/config.toml -o /tmp/node-a.tar.gz\n" +
			"  ssh node-a rdmad support-bundle -o - > node-a.tar.gz",
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			f.configNamed = c.Flags().Changed("config")
			switch {
			case f.limit <= 0:
				return usagef("--limit %v: want more than 0", f.limit)
			case f.json && f.output == "-":
				return usagef("--json and --output -: only one can be printed")
			}
			return f.run(c.Context(), c.OutOrStdout())
		},
	}
	configFlag(c, &f.config, daemonsConfig)
	c.Flags().StringVar(&f.socket, "socket", "", "the daemon's socket (default: $RDMAD_SOCKET, or else node.socket of the configuration)")
	c.Flags().StringVarP(&f.output, "output", "o", "", "the `file` to write, - for standard output (default: rdmad-support-NODE-TIME.tar.gz in this directory)")
	c.Flags().StringVar(&f.unit, "unit", "rdmad.service", "the systemd `unit` whose journal is looked at if the daemon logs to no file")
	c.Flags().DurationVar(&f.limit, "limit", 10*time.Second, "how long each part may take; all are collected at the same time")
	jsonFlag(c, &f.json)
	return c
}

// run collects and writes the bundle, and says what is in it.
func (f *bundleFlags) run(ctx context.Context, out io.Writer) error {
	at := time.Now()
	doc := doctorFlags{config: f.config, socket: f.socket, configNamed: f.configNamed}
	subject := doc.load(ctx)
	cfg, socket := subject.cfg, cmp.Or(subject.socket, doc.socketOf(subject.cfg))
	s := &bundle.Sources{
		Socket: socket, Unit: f.unit, Limit: f.limit, Config: cfg, ConfigFrom: subject.from, ConfigErr: subject.err, InForce: subject.inForce,
		Doctor: func(ctx context.Context) []doctor.Finding {
			e := doc.env(ctx)
			e.ConfigErr = bundle.Places(e.ConfigErr)
			return doctor.Run(ctx, e)
		},
		Devices: func() ([]byte, error) {
			devices, source, _, err := rdmaDevices(os.DirFS("/"))
			if err != nil {
				return nil, err
			}
			var b bytes.Buffer
			err = writeJSON(&b, describeDevices(devices, source))
			return b.Bytes(), err
		},
	}
	had := bundle.Collect(ctx, s.Parts())
	if ctx.Err() != nil {
		return fmt.Errorf("support-bundle: interrupted, nothing was written")
	}
	name := fmt.Sprintf("rdmad-support-%s-%s", cfg.Node.Name, at.UTC().Format("20060102-150405"))
	write := func(w io.Writer) error {
		return bundle.WriteTo(w, name, fmt.Sprintf("rdmad %s, support bundle of node %s", version.Version, cfg.Node.Name), at, had)
	}
	if f.output == "-" {
		if err := write(out); err != nil {
			return fmt.Errorf("support-bundle: %w", err)
		}
		return nil
	}
	file := cmp.Or(f.output, name+".tar.gz")
	if err := bundle.WriteFile(file, write); err != nil {
		return fmt.Errorf("support-bundle: %w", err)
	}
	return f.print(out, file, bundle.Missing(had))
}

func (f *bundleFlags) print(out io.Writer, file string, missing []string) error {
	info, err := os.Stat(file)
	if err != nil {
		return fmt.Errorf("support-bundle: %w", err)
	}
	if f.json {
		return writeJSON(out, bundleResult{File: file, Bytes: info.Size(), Missing: append([]string{}, missing...)})
	}
	text := fmt.Sprintf("%s: %d bytes\n", file, info.Size())
	if len(missing) > 0 {
		text += fmt.Sprintf("not had (MANIFEST says why): %s\n", strings.Join(missing, " "))
	}
	_, err = io.WriteString(out, text)
	return err
}
