#!/bin/busybox sh
# The first process of the guest. It makes the host's files the guest's, sets up
# two RDMA devices, and starts the agent. Everything that it writes to is memory.

/bin/busybox mkdir -p /proc /sys /dev /host /live /run /rw /new
/bin/busybox --install -s /bin
export PATH=/bin

fail() {
	echo "lab: the guest cannot start: $*"
	exec poweroff -f
}

mount -t proc proc /proc && mount -t sysfs sysfs /sys && mount -t devtmpfs devtmpfs /dev || fail "no /proc, /sys or /dev"
while read -r module; do
	insmod "/modules/$module" || fail "module $module"
done </modules/order

# The host's files three times: "host" is cached and for what does not change
# while a guest runs, "live" is never cached, and "run" is the directory of this
# run with the agent and its token.
share() { mount -t 9p -o "trans=virtio,version=9p2000.L,ro,msize=524288,cache=$3" "$1" "$2"; }
share host /host loose && share live /live none && share run /run none || fail "no files of the host"
mount -t tmpfs -o size=75%,mode=755 tmpfs /rw || fail "no memory"
mkdir -p /rw/root/upper /rw/root/scratch /rw/tmp/upper /rw/tmp/scratch
chmod 1777 /rw/tmp/upper
over() { mount -t overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/scratch" overlay "$3"; }
over /host /rw/root /new && over /live/tmp /rw/tmp /new/tmp || fail "no root file system"
for dir in /live/* /live/.[!.]*; do
	name=${dir##*/}
	case $name in
	bin | boot | dev | etc | lib* | opt | proc | run | sbin | sys | tmp | usr | var | lost+found) ;;
	*) if [ -d "$dir" ] && [ ! -L "$dir" ]; then mount --bind "$dir" "/new/$name" || fail "$name of the host"; fi ;;
	esac
done
mount -t proc proc /new/proc && mount -t sysfs sysfs /new/sys && mount -t devtmpfs devtmpfs /new/dev || fail "no system files"
mkdir -p /new/dev/pts /new/dev/shm /new/dev/hugepages
mount -t devpts -o ptmxmode=666 devpts /new/dev/pts
mount -t tmpfs -o mode=1777 tmpfs /new/dev/shm
mount -t hugetlbfs hugetlbfs /new/dev/hugepages
mount -t cgroup2 cgroup2 /new/sys/fs/cgroup || fail "no control groups"
mount -t tmpfs -o mode=755 tmpfs /new/run
mkdir -p /new/run/lab/live /new/run/lock /new/sys/fs/cgroup/lab
mount --bind /live /new/run/lab/live
dd if=/run/lab of=/new/run/lab/lab bs=512k 2>/dev/null && chmod 755 /new/run/lab/lab || fail "no agent"
cp /run/token /new/run/lab/token && chmod 600 /new/run/lab/token || fail "no token"

hostname lab
rm -f /new/etc/hosts
echo "127.0.0.1 localhost lab" >/new/etc/hosts
ip link set lo up
ip addr add 10.0.2.15/24 dev eth0 && ip link set eth0 up || fail "no network to the host"

# An RDMA device needs a network device with an address; its entry 1 in the table
# of GIDs is then the address, as RoCE v2.
device() {
	number=$1
	shift
	[ -d "/sys/class/net/dummy$number" ] || ip link add "dummy$number" type dummy || fail "dummy$number"
	for address; do ip addr add "$address/24" dev "dummy$number"; done
	ip link set "dummy$number" up
	chroot /new /usr/bin/env PATH=/usr/sbin:/usr/bin:/sbin:/bin rdma link add "rxe$number" type rxe netdev "dummy$number" ||
		fail "rxe$number"
}
device 0 10.9.9.1 10.9.9.2
device 1 10.9.8.1

ulimit -l unlimited
ulimit -n 65536
chroot /new /run/lab/lab agent --listen 10.0.2.15:7 --token /run/lab/token --live /run/lab/live \
	--groups /sys/fs/cgroup/lab &
# The shell also takes leave of processes whose parents have died.
wait $!
fail "the agent ended with status $?"
