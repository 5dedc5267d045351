//! Hosts made of namespaces, on a network without other hosts: [`Hosts`]. Only root can make them; `ip` makes the network.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use fsgather_testkit::process;

use super::{Stage, World, mounts::need_root};

/// Hosts `node1`, `node2`, ... each with a name, addresses, a boot id and mounts of its own. They see the files of this machine. Host 1 has
/// the addresses `10.77.0.1` and `fd77::1`.
///
/// They end when this is dropped.
pub(crate) struct Hosts {
    /// Holds one process for the network, and one for each host after it.
    holders: Stage,
    /// Keeps the files that are mounted on hosts, and the state of a [slow network](Self::far_apart).
    place: tempfile::TempDir,
    count: u32,
}

/// The connection between the hosts.
#[derive(Clone, Copy, PartialEq)]
enum Switch {
    /// The kernel, at full speed.
    Bridge,
    /// `scripts/beds/link.py`, which can be slow, lossy and one-sided.
    Link,
}

/// The first commands of a host; `$1` is its number, `$2` the directory of its files, `$3` the commands before it has a network.
const HOST: &str = "
    hostname node$1
    ip link set lo up
    mount --bind $2/etc-hosts /etc/hosts
    mount --bind $2/boot-id /proc/sys/kernel/random/boot_id
    sh -euc \"$3\" sh $1
    echo ready
    read line
";

/// One address for each host, for [`Hosts::with`].
pub(crate) const PLAIN: &str = "ip address add 10.77.0.$1/24 dev eth0";

/// Ranks that meet in a directory, and send payloads over the network.
pub(crate) fn through_memory(ranks: u32, directory: &Path) -> World {
    World::new(ranks, directory)
        .with("FSGATHER_JOB", "network")
        .with("FSGATHER_TRANSPORT", "memory")
        .with("FSGATHER_JOIN_TIMEOUT", "20s")
}

const SWITCH: &str = "
    ip link add bridge0 type bridge mcast_snooping 0
    ip link set bridge0 up
    echo ready
    read line
";

/// Addresses of both families.
const BOTH_FAMILIES: &str = "
    ip address add 10.77.0.$1/24 dev eth0
    ip address add fd77::$1/64 dev eth0 nodad
";

impl Hosts {
    /// Makes `count` hosts.
    pub(crate) fn new(count: u32) -> Self {
        Self::with(count, "true", BOTH_FAMILIES)
    }

    /// Makes hosts that run the commands of `before`, then get a network card `eth0`, then run those of `addresses`. `$1` is a host's
    /// number.
    pub(crate) fn with(count: u32, before: &str, addresses: &str) -> Self {
        Self::connected_by(Switch::Bridge, count, before, addresses)
    }

    /// Makes hosts on a network that can be [distorted](Self::distort) like real networks; at first it is not.
    pub(crate) fn far_apart(count: u32) -> Self {
        Self::connected_by(Switch::Link, count, "true", BOTH_FAMILIES)
    }

    fn connected_by(switch: Switch, count: u32, before: &str, addresses: &str) -> Self {
        need_root();
        let place = super::place();
        let mut holders = Stage::new();
        let mut network = Command::new("unshare");
        network.args(["--net", "sh", "-euc", SWITCH]);
        let holder = holders.start(&mut network);
        holders.wait_for(holder, "ready");
        let names: Vec<String> = (1..=count)
            .map(|host| format!("10.77.0.{host} node{host}\n"))
            .collect();
        let names = format!("127.0.0.1 localhost\n{}", names.concat());
        for host in 1..=count {
            let files = place.path().join(format!("node{host}"));
            fs::create_dir(&files).expect("a directory");
            fs::write(files.join("etc-hosts"), &names).expect("a file");
            let boot_id = fs::read_to_string("/proc/sys/kernel/random/uuid").expect("a uuid");
            fs::write(files.join("boot-id"), boot_id).expect("a file");
            let mut command = Command::new("unshare");
            command
                .args(["--net", "--uts", "--mount", "sh", "-euc", HOST, "sh"])
                .args([&host.to_string(), files.to_str().expect("text"), before]);
            let holder = holders.start(&mut command);
            holders.wait_for(holder, "ready");
        }
        let mut hosts = Self {
            holders,
            place,
            count,
        };
        if switch == Switch::Link {
            hosts.start_link();
        }
        for host in 1..=count {
            let pid = hosts.pid(host);
            hosts.switch(&match switch {
                Switch::Bridge => format!(
                    "ip link add port{host} type veth peer name eth0 netns {pid}
                     ip link set port{host} master bridge0 up"
                ),
                Switch::Link => format!("ip link set cable{host} netns {pid} name eth0"),
            });
            hosts.on(host, "ip link set eth0 up");
            hosts.on(host, addresses);
        }
        hosts
    }

    fn start_link(&mut self) {
        self.distort("");
        let link = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/beds/link.py");
        let mut command = self.beside_the_switch(Path::new("python3"));
        command.arg(link).arg(self.distortions());
        let link = self.holders.start(command.arg(self.count.to_string()));
        self.holders.wait_for(link, "ready");
    }

    fn distortions(&self) -> PathBuf {
        self.place.path().join("distortions")
    }

    /// Sets the behaviour of the network between hosts that are [far apart](Self::far_apart), in the language of `scripts/beds/link.py`.
    pub(crate) fn distort(&self, how: &str) {
        let new = self.place.path().join("distortions.new");
        fs::write(&new, how).expect("a file");
        fs::rename(&new, self.distortions()).expect("a file");
    }

    /// The numbers of all hosts.
    pub(crate) fn all(&self) -> std::ops::RangeInclusive<u32> {
        1..=self.count
    }

    /// Number of hosts.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    fn pid(&self, host: u32) -> u32 {
        self.holders.pid(host as usize)
    }

    /// Runs shell commands on a host, as root; `$1` is its number.
    pub(crate) fn on(&self, host: u32, script: &str) {
        run(&self.enter(host), script, host);
    }

    /// Runs shell commands on all hosts.
    pub(crate) fn on_all(&self, script: &str) {
        for host in self.all() {
            self.on(host, script);
        }
    }

    /// Runs shell commands in the network namespace of the switch.
    pub(crate) fn switch(&self, script: &str) {
        let pid = self.holders.pid(0).to_string();
        run(&nsenter(&["--net", "--target", &pid]), script, 0);
    }

    /// Cuts a host off: its packets vanish.
    pub(crate) fn cut(&self, host: u32) {
        self.switch(&format!("ip link set port{host} down"));
    }

    /// Connects it again.
    pub(crate) fn mend(&self, host: u32) {
        self.switch(&format!("ip link set port{host} up"));
    }

    /// Limits the outgoing traffic of each host to `megabits` per second.
    pub(crate) fn slow_down(&self, megabits: u32) {
        self.on_all(&format!(
            "tc qdisc add dev eth0 root tbf rate {megabits}mbit burst 128kb latency 200ms"
        ));
    }

    /// Number of bytes that a host has sent over its network card.
    pub(crate) fn sent_by(&self, host: u32) -> u64 {
        self.sent_over(host, "eth0:")
    }

    /// Number of bytes that a host has sent to itself.
    pub(crate) fn looped_by(&self, host: u32) -> u64 {
        self.sent_over(host, "lo:")
    }

    fn sent_over(&self, host: u32, device: &str) -> u64 {
        let devices = fs::read_to_string(format!("/proc/{}/net/dev", self.pid(host)));
        let devices = devices.expect("a host that is up");
        let mut lines = devices.lines();
        let line = lines.find_map(|line| line.trim().strip_prefix(device));
        let sent = line.and_then(|line| line.split_whitespace().nth(8));
        sent.and_then(|sent| sent.parse().ok()).expect("a count")
    }

    /// A command in the network namespace of the switch.
    pub(crate) fn beside_the_switch(&self, program: &Path) -> Command {
        let pid = self.holders.pid(0).to_string();
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &pid]).arg(program);
        command
    }

    /// A rank on a host.
    pub(crate) fn rank(&self, host: u32, world: &World, rank: u32, script: &str) -> Command {
        world.rank_behind(&self.enter(host), rank, script)
    }

    /// The words before a command that run it on a host; the command replaces them.
    pub(crate) fn enter(&self, host: u32) -> Vec<String> {
        let pid = self.pid(host).to_string();
        nsenter(&["--net", "--uts", "--mount", "--target", &pid])
    }

    /// Gives every host a directory of its own at this path.
    pub(crate) fn unshare_directory(&self, directory: &Path) {
        let directory = directory.to_str().expect("text");
        self.on_all(&format!("mount -t tmpfs -o mode=0700 none {directory}"));
    }

    /// The path at which this process sees a path of a host.
    pub(crate) fn seen_from(&self, host: u32, path: &Path) -> PathBuf {
        let path = path.strip_prefix("/").expect("absolute");
        Path::new(&format!("/proc/{}/root", self.pid(host))).join(path)
    }
}

fn nsenter(options: &[&str]) -> Vec<String> {
    let words = ["nsenter"].iter().chain(options);
    words.map(|word| (*word).to_owned()).collect()
}

fn run(prefix: &[String], script: &str, host: u32) {
    let mut command = Command::new(&prefix[0]);
    command
        .args(&prefix[1..])
        .args(["sh", "-euc", script, "sh"]);
    let done = process::output(command.arg(host.to_string())).expect("nsenter");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{script}: {said}");
}
