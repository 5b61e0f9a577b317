#!/usr/bin/env bash
#
# ullaged under a real systemd: boots a Debian 12 in a virtual machine, with this build installed as `make install`
# does, and runs scenes.sh in it. Not a part of CI: it needs root, debootstrap, qemu-system-x86 and a mirror of Debian's.
#
#   tests/vm/run.sh [FOLDER]     FOLDER (build/vm) keeps the root for the next time: 600 MB; the disk takes 2 GB more
#
# The card is the fake driver's, installed where a real one would be. Without /dev/kvm it takes about four minutes;
# ULLAGE_VM_ACCEL=kvm is faster where that works. Prints the scenes' TAP; what the console and the journal said lies
# in FOLDER/console.log and FOLDER/journal.log. Exits with 1 if a scene failed, 2 if there was none.
set -eu
cd "$(dirname "$0")/../.."
folder=$(realpath -m "${1:-build/vm}")
accel=${ULLAGE_VM_ACCEL:-tcg,thread=multi}
mirror=${ULLAGE_VM_MIRROR:-http://deb.debian.org/debian}
root=$folder/root
build=$PWD/build/release
packages=systemd,systemd-sysv,dbus,udev,linux-image-cloud-amd64,libpam-systemd,procps,curl
packages+=,zlib1g,libncurses6,libjansson4,libmicrohttpd12,libsqlite3-0,libprotobuf-c1,libjpeg62-turbo,libpng16-16

fail() {
    echo "tests/vm/run.sh: $1" >&2
    exit 2
}

[ "$(id -u)" = 0 ] || fail "run it as root: debootstrap and the files of the machine's root need that"
for tool in debootstrap qemu-system-x86_64 mke2fs; do
    command -v "$tool" >/dev/null || fail "$tool is missing: apt-get install debootstrap qemu-system-x86 e2fsprogs"
done
mkdir -p "$folder"

# A root that was not made to its end has no mark.
if [ ! -e "$folder/made" ]; then
    rm -rf "$root"
    debootstrap --variant=minbase --include="$packages" bookworm "$root" "$mirror" >"$folder/debootstrap.log" ||
        fail "debootstrap failed: see $folder/debootstrap.log"
    chroot "$root" apt-get clean
    touch "$folder/made"
fi

# --- a fresh copy, with what is to be tried
trap 'rm -rf "$folder/copy" "$folder/disk"' EXIT
rm -rf "$folder/copy"
cp -a "$root" "$folder/copy"
root=$folder/copy
make --no-print-directory install DESTDIR="$root" >"$folder/install.log" || fail "make install failed: see $folder/install.log"
sed "s|^$root||" "$build/install_manifest.txt" >"$root/opt/manifest"
install -m 755 "$build/tests/fakecuda/fakectl" "$build/tests/e2e/guests/guest" tests/vm/scenes.sh "$root/opt"
install -m 644 "$build"/tests/fakecuda/lib{cuda,nvidia-ml}.so.1 "$root/usr/lib/x86_64-linux-gnu"
install -m 644 tests/vm/scenes.service "$root/etc/systemd/system"
install -D -m 644 tests/vm/cards.conf "$root/etc/systemd/system/ullaged.service.d/cards.conf"
install -D -m 644 tests/vm/cards.conf "$root/etc/systemd/user/ullaged.service.d/cards.conf"
echo '/dev/vda / ext4 defaults 0 1' >"$root/etc/fstab"
echo ullage-vm >"$root/etc/hostname"
mkdir -p "$root/var/log/journal"
chroot "$root" useradd -m -u 1001 ada
chroot "$root" useradd -m -u 1002 bob
chroot "$root" systemctl -q enable ullaged.service scenes.service
mke2fs -q -t ext4 -L root -d "$root" "$folder/disk" 2000M

# --- the machine: the scenes' output is its second serial line
kernel=$(ls "$root"/boot/vmlinuz-*)
initrd=$(ls "$root"/boot/initrd.img-*)
rm -f "$folder"/{scenes.tap,console.log,journal.log}
timeout 1800 qemu-system-x86_64 -accel "$accel" -cpu max -smp 2 -m 1536 -nodefaults -display none -no-reboot \
    -kernel "$kernel" -initrd "$initrd" -append "root=/dev/vda rw console=ttyS0 panic=-1" \
    -drive "file=$folder/disk,format=raw,if=virtio,cache=unsafe" \
    -serial "file:$folder/console.log" -serial "file:$folder/scenes.tap" -serial "file:$folder/journal.log" ||
    fail "the machine did not end well: see $folder/console.log"
tr -d '\r' <"$folder/scenes.tap"
grep -q '^1\.\.' "$folder/scenes.tap" || fail "the scenes did not end: see $folder/console.log"
! grep -q '^not ok' "$folder/scenes.tap"
