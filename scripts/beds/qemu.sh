# shellcheck shell=bash
# Three virtual machines on one network, for the beds nfs.sh and smb.sh, which source this file.
#
# Guest 0 is a file server. Guests 1 and 2 mount its disk at /shared with the kernel's client, each with its own caches. All run Debian's
# cloud kernel under qemu, which emulates the processor: that is slow, but works on all machines. Their network is a namespace of its own.
# They share one read-only root file system.
#
# A bed sets these variables first:
#
#   here        directory of this file
#   kind        name of the bed
#   packages    Debian packages of the file server
#   programs    programs of the file server
#   size_mb     size of the shared file system
#
# and defines these functions before it calls `guests "$@"`:
#
#   add_files ROOT     adds configuration to the root file system
#   server_script      prints the script that guest 0 runs at its start
#   mount_in GUEST     mounts the shared file system
: "${here:?}" "${kind:?}" "${size_mb:?}" "${packages[0]:?}" "${programs[0]:?}"
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$here/lib.sh"
network=10.77.0

address() {
    echo "$network.$((10 + $1))"
}

# Runs a command in the network of the guests.
inside() {
    nsenter -t "$(recall network)" --net "$@"
}

# copy_programs ROOT DIRECTORY PROGRAM...: copies programs into that directory below ROOT, and the libraries that they need.
copy_programs() {
    local root=$1 directory=$2 name program library
    shift 2
    for name; do
        program=$(PATH=$PATH:/usr/sbin:/sbin command -v "$name") || ignore "needs the program $name"
        cp -L "$program" "$root$directory/"
        for library in $(ldd "$program" 2>/dev/null | grep -o '/[^ ):]*\.so[^ ):]*'); do
            mkdir -p "$root${library%/*}"
            [ -e "$root$library" ] || cp -L "$library" "$root$library"
        done
    done
}

# Runs the script that it receives up to the end mark, then prints the exit status.
agent_script() {
    cat <<'END'
#!/bin/sh
script=/tmp/script.$$
: >$script
while IFS= read -r line; do
    [ "$line" = "#__END__" ] && break
    printf '%s\n' "$line" >>$script
done
sh $script </dev/null 2>&1
status=$?
rm -f $script
printf '\n__STATUS=%s\n' $status
END
}

init_script() {
    cat <<'END'
#!/bin/sh
export PATH=/bin:/usr/sbin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for d in tmp run var; do mount -t tmpfs tmpfs /$d; done
ln -s /run /var/run
echo /bin/modprobe >/proc/sys/kernel/modprobe
modprobe -a virtio_pci virtio_net
hostname "host$GUEST"
until [ -e /sys/class/net/eth0 ]; do sleep 0.1; done
ip link set lo up
ip link set eth0 up
ip addr add "$ADDRESS/24" dev eth0
if [ "$GUEST" = 0 ]; then
    mount -t ext4 /dev/nvme1n1 /shared
    . /server
fi
nc -ll -p 9000 -e /agent &
until netstat -ltn | grep -q :9000; do sleep 0.1; done
echo "guest $GUEST is ready"
wait
END
}

# make_root PROGRAM...
make_root() {
    local root=$BED_STATE/root version=${kernel#*/vmlinuz-} table applet
    mkdir -p "$root"/{bin,dev,etc,lib/modules,host,proc,run,shared,sys,tmp,usr/sbin,var}
    mknod -m 600 "$root/dev/console" c 5 1
    cp "$(command -v busybox)" "$root/bin/busybox"
    for applet in $(busybox --list); do
        [ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
    done
    cp -r "/lib/modules/$version" "$root/lib/modules/"
    copy_programs "$root" /usr/sbin "${programs[@]}"
    copy_programs "$root" /host "$@"
    printf 'root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n' >"$root/etc/passwd"
    printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
    for table in passwd group hosts protocols services rpc netgroup; do echo "$table: files"; done >"$root/etc/nsswitch.conf"
    add_files "$root"
    agent_script >"$root/agent"
    init_script >"$root/init"
    server_script >"$root/server"
    chmod 755 "$root/agent" "$root/init"
    truncate -s 2G "$BED_STATE/root.img"
    mkfs.ext4 -q -F -O ^has_journal -d "$root" "$BED_STATE/root.img"
    rm -r "$root"
}

make_network() {
    background network "$BED_STATE/network.log" unshare --net sleep infinity
    until_true 5 has_own_network || die "cannot make a network namespace: $(cat "$BED_STATE/network.log")"
    inside ip link add bridge0 type bridge
    inside ip address add "$network.1/24" dev bridge0
    inside ip link set bridge0 up
}

has_own_network() {
    [ "$(readlink "/proc/$(recall network)/ns/net")" != "$(readlink /proc/self/ns/net)" ]
}

boot() {
    local guest=$1 disks=(-drive "if=none,id=root,format=raw,readonly=on,file=$BED_STATE/root.img" -device "nvme,drive=root,serial=root")
    inside ip tuntap add "tap$guest" mode tap
    inside ip link set "tap$guest" master bridge0 up
    if [ "$guest" = 0 ]; then
        disks+=(-drive "if=none,id=shared,format=raw,cache=unsafe,file=$BED_STATE/shared.img" -device "nvme,drive=shared,serial=shared")
    fi
    # The kernel has drivers of its own for NVMe and ext4; everything else is a module in the root file system.
    background "guest$guest" "$BED_STATE/log.$guest" nsenter -t "$(recall network)" --net \
        qemu-system-x86_64 -accel tcg -cpu max -m 512 -nodefaults -no-reboot -display none -serial "file:$BED_STATE/console.$guest" \
        -kernel "$kernel" -append "root=/dev/nvme0n1 ro init=/init console=ttyS0 quiet panic=-1 GUEST=$guest ADDRESS=$(address "$guest")" \
        "${disks[@]}" \
        -netdev "tap,id=net,ifname=tap$guest,script=no,downscript=no" -device "virtio-net-pci,netdev=net,mac=52:54:00:77:00:0$guest"
}

# run_in GUEST SCRIPT: runs a shell script there for ten minutes at most, and returns its exit status.
run_in() {
    # The inner shell expands the variables.
    # shellcheck disable=SC2016
    inside timeout 600 bash -c '
        exec 3<>"/dev/tcp/$0/9000" || exit 255
        printf "%s\n#__END__\n" "$1" >&3
        status=255
        while IFS= read -r line <&3; do
            case $line in __STATUS=*) status=${line#__STATUS=} ;; *) printf "%s\n" "$line" ;; esac
        done
        exit "$status"' "$(address "$1")" "$2" | sed -u '${/^$/d}'
}

has_booted() {
    grep -q 'is ready' "$BED_STATE/console.$1" || is_gone "guest$1"
}

# up PROGRAM...
up() {
    local guest
    need_root
    [ -c /dev/net/tun ] || ignore "needs /dev/net/tun"
    kernel=$(find /boot -name 'vmlinuz-*-cloud-amd64' | sort -V | tail -n 1)
    [ -n "$kernel" ] || ignore "needs the Debian package linux-image-cloud-amd64"
    [ ! -e "$BED_STATE" ] || die "already up, or not taken down: $BED_STATE"
    mkdir -p "$BED_STATE"
    down_on_failure
    make_root "$@"
    truncate -s "${size_mb}M" "$BED_STATE/shared.img"
    mkfs.ext4 -q -F -O ^has_journal "$BED_STATE/shared.img"
    make_network
    for guest in 0 1 2; do boot "$guest"; done
    for guest in 0 1 2; do
        if ! until_true 300 has_booted "$guest" || is_gone "guest$guest"; then
            die "guest $guest does not start: $(tail -n 5 "$BED_STATE/log.$guest" "$BED_STATE/console.$guest")"
        fi
    done
    for guest in 1 2; do mount_in "$guest" || die "guest $guest cannot mount"; done
}

# Ends all processes in the network of the guests: qemu, and connections of `exec` that would wait for a guest that is gone.
down() {
    [ -d "$BED_STATE" ] || return 0
    local holder process
    if holder=$(recall network); then
        for process in /proc/[0-9]*; do
            if [ "$process/ns/net" -ef "/proc/$holder/ns/net" ] && [ "${process#/proc/}" != "$holder" ]; then
                kill -KILL "${process#/proc/}" 2>/dev/null || true
            fi
        done
    fi
    end_all network
    rm -rf --one-file-system "$BED_STATE"
}

link() {
    # The driver in the guest does not recover if its device is set down.
    if [ "$2" = down ]; then inside ip link set "tap$1" nomaster; else inside ip link set "tap$1" master bridge0; fi
}

# guests COMMAND...: the commands of the bed.
guests() {
    BED_STATE=${BED_STATE:-${TMPDIR:-/tmp}/fsgather-bed-$kind}
    case ${1:-} in
    install) install_packages qemu-system-x86 linux-image-cloud-amd64 busybox-static iproute2 e2fsprogs "${packages[@]}" ;;
    up) up "${@:2}" ;;
    exec) run_in "$2" "$3" ;;
    link) link "$2" "$3" ;;
    stop) signal_one STOP "guest$2" ;;
    cont) signal_one CONT "guest$2" ;;
    down) down ;;
    *) usage ;;
    esac
}
