#!/bin/sh
# zinf launch: hostfiles and filters of DeepSpeed's launcher become the command line of the mpirun
# that is there; what is wrong in them is named. Then a training starts by it.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/mpirun.sh"
cd "$work" || exit 99
unset SLURM_STEP_ID

# What mpirun says that it is, is all that a dry run asks of it.
for kind in "mpirun (Open MPI) 4.1.4" "HYDRA build details:"; do
    name=open
    [ "${kind#HYDRA}" = "$kind" ] || name=hydra
    printf '#!/bin/sh\necho "%s"\n' "$kind" >$name && chmod +x $name
done
printf '#!/bin/sh\necho "a mail user agent"\n' >other && chmod +x other
cat >hosts <<'EOF'
# the cluster
alpha slots=4
beta  slots=4   # the new one

gamma slots=2
EOF
launch() { # mpirun, options...; the command's words without its own path
    mpirun=$1
    shift
    run 0 "$zinf" launch --mpirun "./$mpirun" --dry-run "$@" &&
        sed -i "s,$zinf,ZINF,g" "$work/said.out"
}
prints() { # words
    [ "$(cat "$work/said.out")" = "$1" ] || { echo "# instead of $1"; return 1; }
}
refuses() { # words of the message, options...
    words=$1
    shift
    "$zinf" launch --mpirun ./open --dry-run "$@" >said.out 2>said.err
    [ $? -ne 0 ] && complains "$words"
}

check "this machine" launch open --num-gpus 2 -- train --lr 1
check "by Open MPI" prints "./open --bind-to none -np 2 ZINF train --lr 1"
check "this machine, MPICH" launch hydra --num-gpus 2 -- train "--prompt=it's so"
check "by Hydra" prints "./hydra --bind-to none -np 2 ZINF train '--prompt=it'\\''s so'"
ZINF_A=1 CUDA_B=2 launch open --hostfile hosts -- train >/dev/null
grep -q -e '-x ZINF_A' said.out && grep -q -e '-x CUDA_B' said.out &&
    grep -q -e '-np 10 --host alpha:4,beta:4,gamma:2 ZINF train$' said.out
verdict $? "hosts of a file, and the environment"
launch open --hostfile hosts -- train >/dev/null
grep -q -e '-x ZINF_NET_SECRET ' said.out && ! grep -qE '[0-9a-f]{32}' said.out
verdict $? "a secret goes to other hosts by its name alone"
printf '#!/bin/sh\n[ "$1" = --version ] && echo "mpirun (Open MPI) 4.1.4" || echo "secret $ZINF_NET_SECRET"\n' \
    >tells && chmod +x tells
"$zinf" launch --mpirun ./tells --num-gpus 2 -- train >one.out 2>said.err &&
    "$zinf" launch --mpirun ./tells --num-gpus 2 -- train >two.out 2>said.err &&
    grep -qE '^secret [0-9a-f]{64}$' one.out && ! cmp -s one.out two.out
verdict $? "and is another each time"
mkdir -p home && printf 'FROM_HOME=1\nBOTH=2\n' >home/.deepspeed_env
printf '# of this cluster\nBOTH=a value\n\nPLAIN=x\n' >.deepspeed_env
HOME=$work/home launch open --hostfile hosts -- train >/dev/null
grep -q -e '-x FROM_HOME ' said.out && grep -q -e '-x PLAIN ' said.out &&
    [ "$(grep -o -e '-x BOTH ' said.out | wc -l)" = 1 ] && ! grep -q 'a value' said.out
verdict $? "variables of .deepspeed_env go to other hosts"
printf '#!/bin/sh\n[ "$1" = --version ] && echo "mpirun (Open MPI) 4.1.4" || echo "$FROM_HOME, $BOTH, $PLAIN"\n' \
    >tells && chmod +x tells
HOME=$work/home "$zinf" launch --mpirun ./tells --num-gpus 2 -- train >said.out 2>said.err
check "and have their values" says "1, a value, x"
echo 'no sign' >.deepspeed_env
check "a line that is none" refuses ".deepspeed_env, line 1: a variable is written as NAME=VALUE" \
    --num-gpus 2 -- train
rm .deepspeed_env
check "ssh is how mpirun goes there" launch open --hostfile hosts --launcher ssh -- train
check "pdsh is refused" refuses "--launcher ssh, with the same hostfile" --hostfile hosts \
    --launcher pdsh -- train
check "srun" launch open --hostfile hosts --num-nodes 2 --launcher srun -- train --lr 1
check "has words of its own" prints \
    "srun --ntasks=8 --ntasks-per-node=4 --nodelist=alpha,beta ZINF train --lr 1"
check "unlike hosts" refuses "srun starts as many ranks on each host" --hostfile hosts \
    --launcher slurm -- train
check "MPICH's list of hosts" launch hydra --hostfile hosts --num-nodes 2 -- train
check "of the first two" prints "./hydra --bind-to none -np 8 -hosts alpha:4,beta:4 ZINF train"
check "some slots of each" launch hydra --hostfile hosts --num-gpus 2 -- train
check "have parts of their own" prints "./hydra --bind-to none -np 2 -hosts alpha:2 env CUDA_VISIBLE_DEVICES=0,1 ZINF train : -np 2 -hosts beta:2 env CUDA_VISIBLE_DEVICES=0,1 ZINF train : -np 2 -hosts gamma:2 ZINF train"
check "include" launch hydra --hostfile hosts --include 'gamma@beta:3,0' -- train
check "takes hosts and slots" prints "./hydra --bind-to none -np 2 -hosts beta:2 env CUDA_VISIBLE_DEVICES=0,3 ZINF train : -np 2 -hosts gamma:2 ZINF train"
check "exclude" launch hydra --hostfile hosts --exclude 'alpha@gamma:1' -- train
check "leaves them out" prints "./hydra --bind-to none -np 4 -hosts beta:4 ZINF train : -np 1 -hosts gamma:1 env CUDA_VISIBLE_DEVICES=0 ZINF train"
check "words for mpirun" launch open --num-gpus 1 --mpirun-args=--mca --mpirun-args=a -- train
check "go to it" prints "./open --bind-to none --mca a -np 1 ZINF train"

check "no command" refuses "behind --" --num-gpus 2
check "no number" refuses "how many ranks" -- train
check "both filters" refuses "give one" --hostfile hosts --include alpha --exclude beta -- train
check "a filter and a number" refuses "give one" --hostfile hosts --include alpha --num-gpus 1 -- train
check "a host that is not there" refuses "'delta' is not one" --hostfile hosts --include delta -- train
check "a slot that is not there" refuses "does not have" --hostfile hosts --include gamma:2 -- train
check "a filter that is none" refuses "is no HOST" --hostfile hosts --include gamma: -- train
check "nothing left" refuses "no slot" --hostfile hosts --exclude alpha@beta@gamma -- train
check "too many slots" refuses "gamma has 2" --hostfile hosts --num-gpus 3 -- train
check "too many hosts" refuses "there are 3 hosts" --hostfile hosts --num-nodes 4 -- train
for line in "alpha" "alpha slots=0" "alpha slots=65" "alpha slots=1 x" "-oProxy slots=1" "a,b slots=1"; do
    echo "$line" >bad
    check "'$line'" refuses "bad, line 1" --hostfile bad -- train
done
printf 'a slots=1\na slots=1\n' >bad
check "a host twice" refuses "bad, line 2: a is there already" --hostfile bad -- train
: >bad
check "an empty file" refuses "has no host" --hostfile bad -- train
check "another mpirun" refuses "neither Open MPI nor MPICH" --num-gpus 1 --mpirun ./other -- train
check "none" refuses "is not there" --num-gpus 1 --mpirun ./nowhere -- train

# ---- other launchers ----

"$zinf" init --arch gpt2 --size small --layers 1 --hidden 32 --heads 2 --tokenizer bytes \
    --context 32 --output model >/dev/null || exit 99
make_text text.txt 60
train="train --model model --data text.txt --seq-len 16 --device host --threads 1 --micro-batch 2
    --steps 2 --progress none --output out"
RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 run 1 "$zinf" $train && complains "WORLD_SIZE" "mpirun" "launch"
verdict $? "a rank of torchrun's says what to do"
RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 run 0 "$zinf" $train
verdict $? "one that is alone trains"
if [ -n "$no_mpi" ]; then
    skip "a training of two ranks" "$no_mpi"
    finish
fi
rm -rf out
check "a training of two ranks" run 0 "$zinf" launch --mpirun "${MPIRUN:-mpirun}" --num-gpus 2 -- $train
check "has two" complains "2 ranks over"
finish
