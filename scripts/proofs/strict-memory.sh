# shellcheck shell=bash
# Send buffers where the kernel promises no more memory than there is (vm.overcommit_memory=2) and is older than 6.12: memory that a call
# cannot have is an error, and the program keeps its memory. The test runs on a kernel of its own, in user-mode Linux.
at_most 0 "$@"
ready

built=$(cargo test --quiet -p fsgather-arena --lib --no-run --message-format=json |
  sed -n 's/.*"name":"fsgather_arena".*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
cat >"$state/init" <<END
#!/bin/sh
mount -t proc proc /proc
echo 2 >/proc/sys/vm/overcommit_memory
uname -r
# The disk of this machine is only read.
"$built" --include-ignored --exact lent::tests::where_no_private_mapping_is_to_be_had_it_is_copied --nocapture --test-threads 1
echo "ended with \$?"
echo o >/proc/sysrq-trigger
sleep 10
END
chmod +x "$state/init"
timeout 120 linux.uml root=/dev/root rootfstype=hostfs rootflags=/ ro mem=256M "init=$state/init" quiet con=null con0=fd:0,fd:1 \
  </dev/null 2>&1 | tee "$state/said"
grep -q "^test result: ok. 1 passed" "$state/said"
