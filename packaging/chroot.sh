#!/bin/sh
# Installs, runs, upgrades, exchanges, removes and purges packages in a small Debian. It
# runs in mount and pid namespaces of its own, so nothing is left mounted and no process
# is left running, however it ends.
#
# usage: chroot.sh ROOT, where ROOT/packages has old.deb, new.deb and, for RDMA, rdma.deb
set -eu
root=$1

mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=0755 tmpfs "$root/run"

in_root() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"; }
say() { printf '== %s\n' "$*"; }
fail() {
	printf 'FAILED: %s\n' "$*"
	exit 1
}

# Every file with its mode and owner, and the content of those that say who there is. What
# dpkg, apt and the tools for users write for themselves is left out: logs, state, backups.
listing() {
	(cd "$root" && find . -xdev \( -path ./proc -o -path ./packages -o -path ./var/lib/dpkg -o -path ./var/lib/apt/lists -o -path ./var/lib/apt/extended_states -o -path ./var/log -o -path ./var/cache -o -path ./dev \) -prune \
		-o ! -path './etc/*-' ! -path ./etc/.pwd.lock ! -path './run' -printf '%p %M %u:%g %y\n' | sort)
	(cd "$root/run" && find . -mindepth 1 -printf 'run %p %M %U:%G\n' | sort)
	for f in passwd group shadow gshadow; do sort "$root/etc/$f"; done
}

daemon=
stop() {
	[ -z "$daemon" ] && return
	kill -TERM "$daemon"
	wait "$daemon" || fail "the daemon ended with status $?: $(cat "$root/tmp/daemon.log")"
	daemon=
	rm -f "$root/tmp/daemon.log" "$root/tmp/echo.log"
}
# Runs the daemon and a service as their users would be, and calls it.
call_through_daemon() {
	chroot "$root" setpriv --reuid rdmad --regid rdmad --init-groups /usr/bin/rdmad run >"$root/tmp/daemon.log" 2>&1 &
	daemon=$!
	n=0
	until in_root rdmad status >/dev/null 2>&1; do
		n=$((n + 1))
		[ "$n" -lt 300 ] || fail "no status: $(in_root rdmad status 2>&1; cat "$root/tmp/daemon.log")"
		sleep 0.1
	done
	chroot "$root" setpriv --reuid nobody --regid rdmad --clear-groups /usr/bin/rdmad echo >"$root/tmp/echo.log" 2>&1 &
	echo_service=$!
	n=0
	until [ "$(in_root rdmad call echo/echo hello 2>/dev/null)" = hello ]; do
		n=$((n + 1))
		[ "$n" -lt 300 ] || fail "no answer: $(in_root rdmad call echo/echo hello 2>&1; cat "$root/tmp/echo.log")"
		sleep 0.1
	done
	kill "$echo_service"
	wait "$echo_service" || true
	# Who is neither root nor in the group is kept out.
	if chroot "$root" setpriv --reuid nobody --regid nogroup --clear-groups /usr/bin/rdmad status >/dev/null 2>&1; then
		fail "a stranger may attach"
	fi
}

# There is no systemd here: something in its place says of each unit whether it runs, and
# writes down what it is told to do. Both units are enabled, and run.
units_on() {
	mkdir -p "$root/run/systemd/system" "$root/run/units" "$root/etc/systemd/system/sockets.target.wants" "$root/etc/systemd/system/multi-user.target.wants"
	cat >"$root/usr/bin/systemctl" <<-'EOF'
		#!/bin/sh
		echo "$*" >>/run/units/did
		case "$*" in
		"start "*) touch "/run/units/$2" ;;
		"stop "*) rm -f "/run/units/$2" ;;
		"show --property=ActiveState --value "*) [ -e "/run/units/$4" ] && echo active || echo inactive ;;
		"show --property=MainPID --value "*) echo 0 ;;
		"--quiet is-active "*) [ -e "/run/units/$3" ] ;;
		"--no-reload disable "*) rm -f /etc/systemd/system/*.wants/"$3" ;;
		daemon-reload) ;;
		*) exit 1 ;;
		esac
	EOF
	chmod 755 "$root/usr/bin/systemctl"
	ln -s /usr/lib/systemd/system/rdmad.socket "$root/etc/systemd/system/sockets.target.wants"
	ln -s /usr/lib/systemd/system/rdmad.service "$root/etc/systemd/system/multi-user.target.wants"
	in_root systemctl start rdmad.socket
	in_root systemctl start rdmad.service
}
units_are() {
	for unit in rdmad.socket rdmad.service; do
		want=no
		for u in "$@"; do [ "$u" != "$unit" ] || want=yes; done
		have=no
		[ ! -e "$root/run/units/$unit" ] || have=yes
		[ "$have" = "$want" ] || fail "$unit runs: $have, want $want, after $(cat "$root/run/units/did")"
	done
}
units_off() {
	units_are
	rm -r "$root/run/systemd" "$root/run/units" "$root/usr/bin/systemctl"
}

before=$(listing)

say install
in_root dpkg -i /packages/old.deb
in_root rdmad version
in_root rdmad config check
in_root getent passwd rdmad
in_root getent group rdmad
# No package of a manual reader is in a minimal system, but the pages are there.
gzip -dc "$root/usr/share/man/man1/rdmad.1.gz" | grep -q '^.SH' || fail "no manual"

say run
call_through_daemon
stop

say "install again"
in_root dpkg -i /packages/old.deb

say "upgrade with a changed configuration, beside a running daemon"
echo '# changed here' >>"$root/etc/rdmad/config.toml"
call_through_daemon
in_root dpkg -i /packages/new.deb
tail -n 1 "$root/etc/rdmad/config.toml" | grep -q 'changed here' || fail "the configuration was replaced"
# A program that does not answer in time, on a slow machine, is not taken: it is offered again.
n=0
until in_root rdmad status | grep -q "$(in_root dpkg-query -W -f '${Version}' rdmad | sed 's/-1$//')"; do
	[ $((n % 100)) -ne 0 ] || kill -USR2 "$daemon"
	n=$((n + 1))
	[ "$n" -lt 500 ] || fail "the core is still the old one: $(cat "$root/tmp/daemon.log")"
	sleep 0.1
done
stop

if [ -e "$root/packages/rdma.deb" ]; then
	say "exchange for rdmad-rdma, and back"
	in_root dpkg -i /packages/rdma.deb
	in_root rdmad version | grep -q '^providers: tcp, verbs$' || fail "no verbs in rdmad-rdma"
	in_root getent passwd rdmad >/dev/null || fail "the user is gone with rdmad"
	tail -n 1 "$root/etc/rdmad/config.toml" | grep -q 'changed here' || fail "the configuration was replaced"
	call_through_daemon
	stop
	in_root dpkg -i /packages/new.deb
	in_root dpkg --purge rdmad-rdma
	in_root rdmad config check

	say "exchange by apt-get, which removes one before it installs the other, beside units that run"
	units_on
	in_root apt-get install -y --no-install-recommends /packages/rdma.deb
	units_are rdmad.socket rdmad.service
	[ -L "$root/etc/systemd/system/sockets.target.wants/rdmad.socket" ] || fail "the socket unit is not enabled any more"
	in_root apt-get install -y --no-install-recommends /packages/new.deb
	units_are rdmad.socket rdmad.service
	tail -n 1 "$root/etc/rdmad/config.toml" | grep -q 'changed here' || fail "the configuration was replaced"
	say "exchange by dpkg, which goes on beside them"
	: >"$root/run/units/did"
	in_root dpkg -i /packages/rdma.deb
	in_root dpkg -i /packages/new.deb
	units_are rdmad.socket rdmad.service
	if grep -E '^(start|stop)' "$root/run/units/did"; then
		fail "that was not needed"
	fi
	say "remove one that runs, and have it again an hour later"
	in_root dpkg --remove rdmad
	units_are
	[ -L "$root/etc/systemd/system/sockets.target.wants/rdmad.socket" ] || fail "the socket unit is enabled until a purge"
	touch -d '61 minutes ago' "$root/run/rdmad.stopped"
	in_root dpkg -i /packages/new.deb
	units_are
	in_root dpkg --purge rdmad-rdma
	say "purge one that runs"
	in_root systemctl start rdmad.service
	in_root dpkg --purge rdmad
	units_off
	in_root dpkg -i /packages/new.deb
	echo '# changed here' >>"$root/etc/rdmad/config.toml"
fi

say remove
in_root dpkg --remove rdmad
[ ! -e "$root/usr/bin/rdmad" ] || fail "the program is left"
[ -e "$root/etc/rdmad/config.toml" ] || fail "the configuration was removed before a purge"
in_root getent passwd rdmad >/dev/null || fail "the user was removed before a purge"

say "purge, with a file in /etc/rdmad that is not the package's"
touch "$root/etc/rdmad/a-key.pem"
in_root dpkg --purge rdmad
[ -e "$root/etc/rdmad/a-key.pem" ] || fail "a key was removed"
in_root getent passwd rdmad >/dev/null || fail "the user of a key was removed"
rm "$root/etc/rdmad/a-key.pem"

say "install, remove and purge at once"
in_root dpkg -i /packages/new.deb
in_root dpkg --purge rdmad

after=$(listing)
if [ "$before" != "$after" ]; then
	printf '%s\n' "$before" >"$root/before"
	printf '%s\n' "$after" >"$root/after"
	diff "$root/before" "$root/after" || true
	fail "something is left over, or gone"
fi
say "nothing is left over"
