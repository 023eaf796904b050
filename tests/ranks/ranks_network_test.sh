#!/bin/sh
# The network between two ranks is cut: each is on a host of its own, a network namespace, and they
# reach each other by a cable that is pulled while they train. Both end within zinf.timeout and name
# each other; with the cable back they go on to the bits of one rank. mpirun has another network.
[ -z "$ZINF_TEST_INSIDE" ] || ip link set lo up
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/mpirun.sh"
. "$SRCDIR/tests/support/ranks.sh"

# Namespaces of our own, so that nothing is left behind: this script again, within them.
why=
if [ -n "$ZINF_TEST_INSIDE" ]; then
    :
elif [ -n "$no_mpi" ]; then
    why=$no_mpi
elif [ -n "$ZINF_SANITIZER" ]; then
    why="under a sanitizer two ranks do not meet in time"
elif ! "${MPIRUN:-mpirun}" --version 2>/dev/null | grep -q "Open MPI"; then
    why="mpirun is not Open MPI's, which can be told the networks"
elif [ "$(id -u)" -ne 0 ]; then
    why="only root has network namespaces"
elif ! command -v ip >/dev/null || ! command -v unshare >/dev/null; then
    why="no ip or no unshare here"
elif ! unshare -n -m sh -c 'mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns &&
    ip netns add a && ip link add name bridge type bridge && ip link add name c type veth peer name d netns a' \
    >/dev/null 2>&1; then
    why="network namespaces, bridges or veth are refused here"
fi
if [ -n "$why" ]; then
    skip "a network that is cut" "$why"
    finish
fi
if [ -z "$ZINF_TEST_INSIDE" ]; then
    rm -rf "$work"
    ZINF_TEST_INSIDE=1 exec unshare -n -m "$0"
fi

# ---- two hosts and two networks ----

mkdir -p /run/netns
mount -t tmpfs tmpfs /run/netns
sed '$a 10.78.0.11 h1\n10.78.0.12 h2' /etc/hosts >"$work/hosts"
mount --bind "$work/hosts" /etc/hosts
for net in 77 78; do
    ip link add name "net$net" type bridge
    ip link set "net$net" up
done
ip addr add 10.78.0.1/24 dev net78
for host in 1 2; do
    ip netns add h$host
    ip -n h$host link set lo up
    for net in 77 78; do
        ip link add name "port$net-$host" type veth peer name "eth$net" netns h$host
        ip link set "port$net-$host" master "net$net"
        ip link set "port$net-$host" up
        ip -n h$host link set "eth$net" up
        ip -n h$host addr add "10.$net.0.1$host/24" dev "eth$net"
    done
done
cat >"$work/agent" <<'EOF2'
#!/bin/sh
host=$1
shift
exec ip netns exec "$host" unshare -u sh -c 'hostname "$0" && exec sh -c "$*"' "$host" "$@"
EOF2
chmod +x "$work/agent"

# ---- a training ----

mkdir "$work/drive"
make_rank_model
options="$options --progress none"
# shellcheck disable=SC2086 # options are words
train() { "$zinf" train --config "$work/one.json" $options "$@"; }
# shellcheck disable=SC2086
train_hosts() {
    timeout 180 "${MPIRUN:-mpirun}" --mca plm_rsh_agent "$work/agent" \
        --mca oob_tcp_if_include 10.78.0.0/24 --mca btl tcp,self \
        --mca btl_tcp_if_include 10.77.0.0/24 -H h1:1,h2:1 -np 2 -x ZINF_MPI_MODULE \
        "$zinf" train --config "$work/two.json" $options $mesh --output "$work/$axis" "$@"
}
lines() { cat "$work/$axis/log.jsonl" 2>/dev/null | wc -l; }
pull_cable() { # when the log has so many lines
    waited=0
    while [ "$(lines)" -lt "$1" ] && [ $waited -lt 2400 ]; do
        sleep 0.05
        waited=$((waited + 1))
    done
    ip link set port77-2 down
}
cut_off() {
    pull_cable 4 &
    train_hosts --steps 100000 --no-final-checkpoint >"$work/said.out" 2>"$work/said.err" </dev/null
    status=$?
    wait
    [ $status -ne 0 ] && [ $status -ne 124 ] # 124: it hung
}
# Who was asked for in vain is not asked for again at once.
plug_in() {
    ip link set port77-2 up
    for host in 1 2; do
        ip -n h$host neigh flush all
    done
    sleep 2
}
for axis in data tensor pipe; do
    keys=', "timeout": 5' mesh='' sums=4
    case $axis in
    data) sums=2 ;;
    tensor) mesh="--tensor-parallel 2" keys="$keys, \"tensor_parts\": 2" ;;
    pipe) mesh="--pipeline-parallel 2" ;;
    esac
    rank_config "$work/one.json" 2 4 nvme "$work/drive" "$keys"
    rank_config "$work/two.json" 2 $sums nvme "$work/drive" "$keys"
    check "$axis: a cable that is pulled ends both ranks" cut_off
    check "each names the other" complains "rank 1 has sent nothing for 5 s" \
        "rank 0 has sent nothing for 5 s"
    steps=$(($(lines) + 3))
    plug_in
    check "with it back both go on" run 0 train_hosts --steps $steps --resume
    check "after a step" complains "going on after step"
    check "one rank that nobody cut off" run 0 train --steps $steps --output "$work/whole" --overwrite
    check "has the same losses, norms and weights" same_result "$work/$axis" "$work/whole"
done
finish
