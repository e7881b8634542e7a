package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/cmd/rdmad/table"
	"github.com/rdmad/rdmad/internal/nodecert"
)

const (
	aDay = 24 * time.Hour
	// maxDays bounds how long certificates may be valid: a century.
	maxDays = 36525
)

func newCerts() *cobra.Command {
	c := &cobra.Command{
		Use:   "certs",
		Short: "Make and show the certificates by which nodes know each other",
		Long: "Make and show the certificates by which nodes know each other if tls.mode is \"required\". Every node\n" +
			"has one of its own, signed by a private authority of the cluster.",
		Example: "  rdmad certs init --dir certs a b\n  rdmad certs show certs/*.pem",
		RunE:    chooseCommand,
	}
	c.AddCommand(newCertsInit(), newCertsShow())
	return c
}

// madeCert is the certificate of a node as "rdmad certs init" shows it.
type madeCert struct {
	Node     string    `json:"node"`
	Name     string    `json:"name"`
	Cert     string    `json:"cert"`
	Key      string    `json:"key"`
	CA       string    `json:"ca"`
	NotAfter time.Time `json:"not_after"`
	// Config are the lines for the node's configuration.
	Config string `json:"config"`
}

func newCertsInit() *cobra.Command {
	var p nodecert.Plan
	var caDays, days int
	var asJSON bool
	c := &cobra.Command{
		Use:   "init --dir DIR NODE...",
		Short: "Make a private authority for a cluster, and a certificate for each node",
		Long: "Make a private authority in a directory, unless it has one already, and a certificate and a key\n" +
			"for each named node. Each node needs ca.pem and its own two files, and no node needs ca-key.pem:\n" +
			"keep that, with the directory, where new nodes are set up. Whoever has it can be any node.",
		Example: "  rdmad certs init --dir certs --name lab a b\n" +
			"  rdmad certs init --dir certs c              # another node, later\n" +
			"  rdmad certs init --dir certs --force a      # a new certificate for a",
		Args: wantArgs(1, math.MaxInt, "the name of a node or several"),
		RunE: func(c *cobra.Command, args []string) error {
			if p.Dir == "" {
				return usagef("--dir is required: where the files are to be")
			}
			for flag, n := range map[string]int{"--ca-days": caDays, "--days": days} {
				if n < 1 || n > maxDays {
					return usagef("%s %d: want 1 to %d", flag, n, maxDays)
				}
			}
			for _, node := range args {
				if err := nodecert.CheckName(node); err != nil {
					return usagef("%v", err)
				}
			}
			p.Nodes, p.NodeValid = args, time.Duration(days)*aDay
			if c.Flags().Changed("ca-days") { // or it may be an authority of any age
				p.CAValid = time.Duration(caDays) * aDay
			}
			made, err := nodecert.Make(p)
			if err != nil {
				return fmt.Errorf("certs: %w", err)
			}
			list := describeMade(made)
			if asJSON {
				return writeJSON(c.OutOrStdout(), list)
			}
			_, err = io.WriteString(c.OutOrStdout(), madeText(made, list))
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&p.Dir, "dir", "", "the `directory` of the authority and of what it makes (required)")
	f.StringVar(&p.Cluster, "name", "", "the name of a new authority's cluster (default rdmad)")
	f.IntVar(&caDays, "ca-days", int(nodecert.DefaultCAValid/aDay), "how many days a new authority is valid")
	f.IntVar(&days, "days", 730, "how many days certificates of nodes are valid")
	f.BoolVar(&p.Force, "force", false, "replace certificates and keys of nodes that exist; never the authority")
	jsonFlag(c, &asJSON)
	return c
}

func describeMade(made *nodecert.Made) []madeCert {
	list := make([]madeCert, len(made.Nodes))
	for i, n := range made.Nodes {
		list[i] = madeCert{
			Node: n.Node, Name: nodecert.URI(n.Node).String(), Cert: n.Files.Cert, Key: n.Files.Key, CA: n.Files.CA, NotAfter: n.Until.UTC(),
			Config: fmt.Sprintf("[tls]\nmode = \"required\"\ncert = %q\nkey = %q\nca = %q\n", n.Files.Cert, n.Files.Key, n.Files.CA),
		}
	}
	return list
}

func madeText(made *nodecert.Made, list []madeCert) string {
	var b strings.Builder
	what := "used again"
	if made.NewCA {
		what = "new"
	}
	fmt.Fprintf(&b, "authority %s: %s\n", made.CA, what)
	t := table.New("NODE", "NAME", "CERTIFICATE", "KEY", "EXPIRES")
	for _, m := range list {
		t.Row(m.Node, m.Name, m.Cert, m.Key, table.Date(m.NotAfter))
	}
	t.Print(&b)
	fmt.Fprintf(&b, "\nCopy %s and a node's own two files to the node, nothing else, and correct the paths below if they differ there.\n", filepath.Base(made.CA))
	for _, m := range list {
		fmt.Fprintf(&b, "\n# node %s\n%s", m.Node, m.Config)
	}
	return b.String()
}

func newCertsShow() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "show FILE...",
		Short: "Show the names, the validity and the fingerprint of certificates",
		Long: "Show the names, the validity and the fingerprint of all certificates in PEM files. Private keys in\n" +
			"them are neither shown nor needed, and files with nothing else are passed over.",
		Example: "  rdmad certs show certs/ca.pem certs/a.pem",
		Args:    wantArgs(1, math.MaxInt, "a PEM file or several"),
		RunE: func(c *cobra.Command, args []string) error {
			var list []nodecert.Info
			var failed, passedOver error
			for _, file := range args {
				infos, err := inTime(c.Context(), file, func() ([]nodecert.Info, error) { return nodecert.Show(file) })
				switch {
				case err != nil && c.Context().Err() != nil:
					return fmt.Errorf("certs: %w", err)
				case errors.Is(err, nodecert.ErrKeyOnly): // of certs/*.pem, say
					passedOver = errors.Join(passedOver, fmt.Errorf("certs: %w", err))
				case err != nil:
					failed = errors.Join(failed, fmt.Errorf("certs: %w", err))
				}
				list = append(list, infos...)
			}
			if len(list) == 0 { // an empty list would look like what the files have
				return errors.Join(failed, passedOver)
			}
			if asJSON {
				return errors.Join(writeJSON(c.OutOrStdout(), list), failed)
			}
			_, err := io.WriteString(c.OutOrStdout(), certsText(list, time.Now()))
			return errors.Join(err, failed)
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

func certsText(list []nodecert.Info, now time.Time) string {
	var b strings.Builder
	t := table.New("FILE", "NODE", "NAMES", "ISSUER", "FROM", "UNTIL", "SHA-256", "")
	for _, i := range list {
		node, mark := i.Node, ""
		if i.Authority {
			node = "(authority)"
		}
		switch {
		case now.After(i.Until):
			mark = "<- expired"
		case now.Before(i.From):
			mark = "<- not valid yet"
		}
		t.Row(i.File, node, strings.Join(i.Names, ","), i.Issuer, table.Date(i.From), table.Date(i.Until), i.Fingerprint, mark)
	}
	t.PrintRows(&b)
	return b.String()
}
