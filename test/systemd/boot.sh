#!/bin/bash
# Boots systemd in namespaces of its own, over a copy of this machine's files that is thrown
# away. $1 is a directory with rdmad, config.toml, units/ and inside.sh, which systemd runs;
# what that says goes to $1/out.
set -e
dir=$1
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt
mkdir -p /mnt/up /mnt/work /mnt/root
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/up,workdir=/mnt/work /mnt/root
root=/mnt/root
mount -t proc proc $root/proc
mount -t sysfs sysfs $root/sys
mount -t cgroup2 cgroup2 $root/sys/fs/cgroup
for d in run tmp dev; do mount -t tmpfs tmpfs $root/$d; done
for d in null zero full random urandom tty; do
	touch $root/dev/$d
	mount --bind /dev/$d $root/dev/$d
done
mkdir -p $root/dev/shm $root/tmp/x $root/etc/rdmad
mount --bind "$dir" $root/tmp/x
rm -rf $root/etc/systemd/system/*
cp -r "$dir"/units/* $root/etc/systemd/system/
cp "$dir"/config.toml $root/etc/rdmad/
cp "$dir"/rdmad $root/usr/bin/rdmad
ip link set lo up
cd $root
mkdir old
pivot_root . old
umount -l /old
exec env -i container=rdmad-test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --unit=test.target --log-target=console --show-status=no
