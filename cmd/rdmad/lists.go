package main

import (
	"math"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rdmad/rdmad/cmd/rdmad/look"
)

// newLists returns the commands that show one list of the daemon's state each.
func newLists() []*cobra.Command {
	peers := newList(look.Peers, "peers [NAME...]", "Show the peers of this node, and the links to them", "  rdmad peers\n  rdmad peers --state down --json")
	lanes := newList(look.Lanes, "lanes [LANE|CLASS...]", "Show the lanes of this node: their slots, requests and groups", "  rdmad lanes --peer b\n  rdmad lanes small --json")
	services := newList(look.Services, "services [SERVICE[/METHOD]...]", "Show the services that this node knows, its own and those of peers", "  rdmad services\n  rdmad services --peer b greeter")
	workers := newList(look.Workers, "workers [NAME|NUMBER|PID...]", "Show the processes that are attached to this node", "  rdmad workers --role service\n  rdmad workers 4711 --json")
	for _, l := range []*list{lanes, services, workers} {
		l.command.Flags().StringVar(&l.filter.Domain, "domain", "", "only those of this `domain`")
	}
	lanes.command.Flags().StringVar(&lanes.filter.Peer, "peer", "", "only those to and from this `node`")
	services.command.Flags().StringVar(&services.filter.Peer, "peer", "", "only those that this `node` serves")
	lanes.only("state", &lanes.filter.State, "up", "down")
	peers.only("state", &peers.filter.State, "connected", "draining", "down")
	workers.only("role", &workers.filter.Role, "client", "service", "tool")
	return []*cobra.Command{peers.command, lanes.command, services.command, workers.command}
}

// list is a command that shows one list.
type list struct {
	command *cobra.Command
	filter  look.Filter
	// checks look at the flags.
	checks []func() error
}

func newList(k *look.Kind, use, short, example string) *list {
	l := &list{}
	var socket string
	var asJSON bool
	l.command = &cobra.Command{
		Use:   use,
		Short: short,
		Long: short + ".\n\n" +
			"An argument is " + k.Args + "; without any all are shown.\n" +
			"With --json it is the list \"" + k.Name + "\" of \"rdmad status --json\", or what is chosen of it.\n\n" +
			"Exit status: 0, also if nothing is chosen by flags; 1 if an argument names nothing.",
		Example: example,
		Args:    wantArgs(0, math.MaxInt, ""),
		RunE: func(c *cobra.Command, args []string) error {
			for _, check := range l.checks {
				if err := check(); err != nil {
					return err
				}
			}
			l.filter.Names = args
			raw, err := look.Ask(c.Context(), socket, "rdmad-"+k.Name)
			if err != nil {
				return err
			}
			node, items, err := k.Select(raw, &l.filter)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), items)
			}
			chosen := false
			c.Flags().Visit(func(f *pflag.Flag) { chosen = chosen || f.Name != "socket" })
			return k.Print(c.OutOrStdout(), node, items, chosen)
		},
	}
	socketFlag(l.command, &socket)
	jsonFlag(l.command, &asJSON)
	return l
}

// only adds a flag that takes one of some words.
func (l *list) only(flag string, value *string, words ...string) {
	choiceFlag(l.command, value, flag, "", "only those with this "+flag, words...)
	l.checks = append(l.checks, func() error { return checkChoice(flag, *value, words...) })
}
