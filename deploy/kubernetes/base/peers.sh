#!/bin/sh
# Makes the configuration of this node of what all nodes are given:
#
#   peers.sh GIVEN MADE
#
# GIVEN/config.toml is copied to MADE/config.toml, with a [[peer]] for each line of
# GIVEN/peers that does not name this node. A line is a name and an address. The result is
# checked, so that a mistake is the init container's and not the daemon's.
set -eu
given=$1
made=$2
self=${RDMAD_NODE_NAME:?the name of this node}

cp "$given/config.toml" "$made/config.toml"
known=
# Also a last line without an end.
while read -r name address rest || [ -n "$name" ]; do
	case "$name" in
	'' | '#'*) continue ;;
	esac
	if [ -z "$address" ] || [ -n "$rest" ]; then
		echo "peers: want a name and an address in each line, got: $name $address $rest" >&2
		exit 2
	fi
	if [ "$name" = "$self" ]; then
		known=yes
		continue
	fi
	printf '\n[[peer]]\nname = "%s"\naddress = "%s"\n' "$name" "$address" >>"$made/config.toml"
done <"$given/peers"
if [ -z "$known" ]; then
	echo "peers: no line for this node, $self: others do not know it" >&2
	exit 2
fi
exec rdmad config check --config "$made/config.toml"
