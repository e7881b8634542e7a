# What the test does under systemd. Each step says "STEP name: what came of it".
step() { printf 'STEP %s: ' "$1"; shift; timeout 60 "$@" 2>&1 | tr '\n' ' '; printf '\n'; }
show() { systemctl show rdmad --value -p "$1"; }
# Waits until the service has been restarted more than $1 times, and runs. On a slow machine the watchdog may have restarted
# it once more, so nobody counts how often.
restarted() {
	for i in $(seq "$2"); do
		[ "$(show NRestarts)" -gt "$1" ] && [ "$(show ActiveState)" = active ] && break
		sleep 0.1
	done
	[ "$(show NRestarts)" -gt "$1" ] && echo more || show NRestarts
}
step start systemctl start rdmad.service
step state systemctl show rdmad --value -p ActiveState
step oom systemctl show rdmad --value -p OOMPolicy
step text systemctl show rdmad --value -p StatusText
step serves rdmad status
step seccomp grep -E '^(CapBnd|NoNewPrivs|Seccomp):' "/proc/$(show MainPID)/status"
step reload systemctl reload rdmad.service
step reloaded rdmad config diff
rdmad echo >/dev/null 2>&1 &
until rdmad services | grep -q echo; do sleep 0.1; done
step calls rdmad bench call --count 50
step stored systemctl show rdmad --value -p NFileDescriptorStore
n=$(show NRestarts)
kill -9 "$(show MainPID)"
restarted=$(restarted "$n" 600)
step restarts echo "$restarted"
step attached rdmad bench call --count 50
n=$(show NRestarts)
kill -STOP "$(rdmad status --json | sed -n 's/^ *"core": \([0-9]*\).*/\1/p' | head -1)"
restarted=$(restarted "$n" 900)
step watchdog echo "$restarted"
step stop systemctl stop rdmad.service
step result systemctl show rdmad --value -p Result
step socket systemctl start rdmad.socket
step activated rdmad status
step halt systemctl stop rdmad.service
step again rdmad status
step end true
systemctl --force poweroff
