//! The record of a gather directory's owner: [`OwnerRecord`]. Pure.
//!
//! The file `owner` is text, so that an administrator can run `cat owner` to find the owner of a directory. Its first line
//! names the version, each further line is `key=value`, and the last one contains a checksum over all bytes before it:
//!
//! ```text
//! fsgather owner record 1
//! gather=20261121t033336z-5f3a9c01
//! communicator=67e55044-10b1-426f-9247-bb680e5fe0c8
//! created=2026-11-21T03:33:36Z
//! user=ada
//! uid=1000
//! job=4711
//! world_size=8
//! host=n7
//! boot_id=0b0e...
//! machine_id=2f5c...
//! pid_namespace=4026531836
//! mount_namespace=4026531841
//! pid=4242
//! start_time=123456
//! time_namespace=4026531834
//! ranks.0=0b0e... 2f5c... 4026531836 4026531841 4242:123456,4243:123460 n7
//! ranks.0.time_namespace=4026531834
//! xxh3_128=00112233445566778899aabbccddeeff
//! ```
//!
//! In values, `%` and control characters are written as `%XX`. `job` is missing if there is none. The lines `ranks.N` list all
//! ranks that use the directory, including its owner, so that later processes can check if any of them still runs: boot id,
//! machine id, pid and mount namespace, `pid:start_time` of each, and host. `-` stands for an empty value. These lines are
//! missing if they would make the record too long. A time namespace that is missing is unknown: the first builds did not write
//! it.

use std::{
    collections::BTreeMap,
    fmt::Write,
    str::FromStr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fsgather_core::{GatherId, ProcessId, Salt, WorldSize, hash::Hash128};
use uuid::Uuid;

/// The first line of the record.
const TITLE: &str = "fsgather owner record 1";
/// Maximum length of a record that is read, in bytes.
pub(crate) const MAX_RECORD_LEN: u64 = 128 * 1024;
/// Maximum length of all lines about ranks, in bytes.
const MAX_RANKS_LEN: usize = 96 * 1024;
/// Maximum length of a line about a time namespace, in bytes.
const CLOCK_LINE_LEN: usize = 50;

/// The owner of a gather directory, with its job and the creation time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerRecord {
    /// The process that made the directory: rank 0, or the first member of a group.
    pub process: ProcessId,
    /// The uid of its user.
    pub uid: u32,
    /// The name of its user, if known.
    pub user: String,
    /// The job, if the launcher gives one.
    pub job: Option<String>,
    /// Number of ranks of the world.
    pub world_size: WorldSize,
    /// The id in the directory's name.
    pub gather: GatherId,
    /// The communicator's identity.
    pub communicator: Uuid,
    /// Time of creation, by the owner's clock, with a precision of seconds.
    pub created: SystemTime,
    /// The processes of all ranks that use it, grouped by host and namespaces; empty if unknown.
    pub ranks: Vec<ProcessId>,
}

/// The reason why bytes are not an owner record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OwnerRecordError {
    /// The bytes are something else.
    #[error("it is not an owner record")]
    Foreign,
    /// The record is of another version.
    #[error("it is an owner record of version {0}, this build reads 1")]
    Version(String),
    /// The record is truncated or damaged.
    #[error("it does not match its checksum")]
    Checksum,
    /// A line is missing or cannot be read.
    #[error("its {0} cannot be read")]
    Field(&'static str),
}

/// Returns the tag in the salts of a job's gather directories, so that the job's next attempt examines only those. Jobs without
/// an id get the tag of the owner's host, because they can prove nothing beyond it.
///
/// One in a thousand unrelated directories has the same tag; the owner record shows the real owner.
pub(crate) fn job_tag(job: Option<&str>, host: &str) -> u16 {
    let hash = match job {
        Some(job) => Hash128::of(job.as_bytes()),
        None => Hash128::of(format!("\0{host}").as_bytes()),
    };
    // The remainder always fits.
    u16::try_from(hash % (1 << Salt::TAG_BITS)).unwrap_or_default()
}

/// Draws the id of a new gather directory for a job and an owner.
#[must_use]
pub fn draw_id(now: SystemTime, job: Option<&str>, owner: &ProcessId) -> GatherId {
    let tag = job_tag(job, &owner.host);
    GatherId::new(now, Salt::tagged(tag, fsgather_core::sys::random::fresh()))
}

impl OwnerRecord {
    /// Returns the record with another id for its directory.
    pub(crate) fn redrawn(mut self) -> Self {
        self.gather = draw_id(self.gather.time(), self.job.as_deref(), &self.process);
        self
    }

    /// Beginning of the first line in all versions.
    pub(crate) const TITLE_STEM: &str = "fsgather owner record ";

    /// Writes the record as text.
    ///
    /// ```
    /// # use fsgather_core::{GatherId, ProcessId, Salt, WorldSize};
    /// # use std::time::UNIX_EPOCH;
    /// use fsgather_store::OwnerRecord;
    ///
    /// let record = OwnerRecord {
    ///     process: ProcessId { host: "n7".into(), pid: 42, ..Default::default() },
    ///     uid: 1000,
    ///     user: "ada".into(),
    ///     job: None,
    ///     world_size: WorldSize::ONE,
    ///     gather: GatherId::new(UNIX_EPOCH, Salt::from_random(7)),
    ///     communicator: uuid::Uuid::nil(),
    ///     created: UNIX_EPOCH,
    ///     ranks: Vec::new(),
    /// };
    /// assert!(record.to_text().contains("user=ada\n"));
    /// assert_eq!(OwnerRecord::from_text(record.to_text().as_bytes()), Ok(record));
    /// ```
    #[must_use]
    pub fn to_text(&self) -> String {
        let created = self.created.clamp(UNIX_EPOCH, UNIX_EPOCH + LAST_WRITABLE);
        let created = humantime::format_rfc3339_seconds(created).to_string();
        let ProcessId {
            host,
            boot_id,
            machine_id,
            pid_namespace,
            mount_namespace,
            pid,
            start_time,
            time_namespace,
        } = &self.process;
        let mut lines = vec![
            ("gather", self.gather.to_string()),
            ("communicator", self.communicator.to_string()),
            ("created", created),
            ("user", self.user.clone()),
            ("uid", self.uid.to_string()),
        ];
        lines.extend(self.job.clone().map(|job| ("job", job)));
        lines.extend([
            ("world_size", self.world_size.to_string()),
            ("host", host.clone()),
            ("boot_id", boot_id.clone()),
            ("machine_id", machine_id.clone()),
            ("pid_namespace", pid_namespace.to_string()),
            ("mount_namespace", mount_namespace.to_string()),
            ("pid", pid.to_string()),
            ("start_time", start_time.to_string()),
            ("time_namespace", time_namespace.to_string()),
        ]);
        let ranks: Vec<(String, String)> = (0..)
            .zip(ranks_text(&self.ranks))
            .flat_map(|(n, (line, time_namespace))| {
                [
                    (rank_key(n), line),
                    (rank_clock_key(n), time_namespace.to_string()),
                ]
            })
            .collect();
        lines.extend(ranks.iter().map(|(key, line)| (key.as_str(), line.clone())));
        let mut text = format!("{TITLE}\n");
        for (key, value) in lines {
            text.push_str(key);
            text.push('=');
            escape_into(&mut text, &value);
            text.push('\n');
        }
        let checksum = Hash128::of(text.as_bytes());
        text + &format!("xxh3_128={checksum:032x}\n")
    }

    /// Parses a record.
    ///
    /// # Errors
    ///
    /// [`OwnerRecordError`]; the version is checked first.
    pub fn from_text(bytes: &[u8]) -> Result<Self, OwnerRecordError> {
        let text = str::from_utf8(bytes).map_err(|_| OwnerRecordError::Foreign)?;
        let title = text.lines().next().unwrap_or_default();
        match title.strip_prefix(Self::TITLE_STEM) {
            None => return Err(OwnerRecordError::Foreign),
            Some(_) if title == TITLE => {}
            Some(version) => return Err(OwnerRecordError::Version(version.to_owned())),
        }
        let (body, checksum) = text
            .strip_suffix('\n')
            .and_then(|text| text.rsplit_once('\n'))
            .ok_or(OwnerRecordError::Checksum)?;
        let expected = format!(
            "xxh3_128={:032x}",
            Hash128::of(format!("{body}\n").as_bytes())
        );
        if checksum != expected {
            return Err(OwnerRecordError::Checksum);
        }
        let fields: Fields<'_> = Fields(
            body.lines()
                .skip(1)
                .filter_map(|line| line.split_once('='))
                .collect(),
        );
        let created: String = fields.text("created")?;
        Ok(Self {
            gather: fields.value("gather")?,
            communicator: fields.value("communicator")?,
            created: humantime::parse_rfc3339(&created)
                .map_err(|_| OwnerRecordError::Field("created"))?,
            user: fields.text("user")?,
            uid: fields.value("uid")?,
            job: match fields.0.get("job") {
                None => None,
                Some(_) => Some(fields.text("job")?),
            },
            world_size: WorldSize::new(fields.value("world_size")?)
                .map_err(|_| OwnerRecordError::Field("world_size"))?,
            process: ProcessId {
                host: fields.text("host")?,
                boot_id: fields.text("boot_id")?,
                machine_id: fields.text("machine_id")?,
                pid_namespace: fields.value("pid_namespace")?,
                mount_namespace: fields.value("mount_namespace")?,
                pid: fields.value("pid")?,
                start_time: fields.value("start_time")?,
                time_namespace: fields.time_namespace("time_namespace")?,
            },
            ranks: fields.ranks()?,
        })
    }
}

fn rank_key(n: usize) -> String {
    format!("ranks.{n}")
}

fn rank_clock_key(n: usize) -> String {
    format!("ranks.{n}.time_namespace")
}

/// Returns one line for each group of processes with the same host and namespaces, with their time namespace; nothing if all
/// lines together are too long.
fn ranks_text(ranks: &[ProcessId]) -> Vec<(String, u64)> {
    let part = |text: &str| {
        if text.is_empty() {
            "-".to_owned()
        } else {
            text.to_owned()
        }
    };
    let mut lines: Vec<(&ProcessId, String)> = Vec::new();
    for rank in ranks {
        let pid = format!("{}:{}", rank.pid, rank.start_time);
        match lines
            .iter_mut()
            .find(|(other, _)| is_in_one_place(other, rank))
        {
            Some((_, pids)) => pids.extend([",", &pid]),
            None => lines.push((rank, pid)),
        }
    }
    let lines: Vec<(String, u64)> = lines
        .into_iter()
        .map(|(place, pids)| {
            let line = format!(
                "{} {} {} {} {pids} {}",
                part(&place.boot_id),
                part(&place.machine_id),
                place.pid_namespace,
                place.mount_namespace,
                place.host
            );
            (line, place.time_namespace)
        })
        .collect();
    let len_of = |(line, _): &(String, u64)| line.len() + CLOCK_LINE_LEN;
    if lines.iter().map(len_of).sum::<usize>() > MAX_RANKS_LEN {
        return Vec::new();
    }
    lines
}

fn is_in_one_place(one: &ProcessId, other: &ProcessId) -> bool {
    let place = |process: &ProcessId| ProcessId {
        pid: 0,
        start_time: 0,
        ..process.clone()
    };
    place(one) == place(other)
}

fn parse_ranks(line: &str, time_namespace: u64) -> Option<Vec<ProcessId>> {
    let part = |text: &str| {
        if text == "-" {
            String::new()
        } else {
            text.to_owned()
        }
    };
    let mut parts = line.splitn(6, ' ');
    let mut next = || parts.next();
    let (boot_id, machine_id) = (part(next()?), part(next()?));
    let (pid_namespace, mount_namespace) = (next()?.parse().ok()?, next()?.parse().ok()?);
    let (pids, host) = (next()?, next()?);
    pids.split(',')
        .map(|pid| {
            let (pid, start_time) = pid.split_once(':')?;
            Some(ProcessId {
                host: host.to_owned(),
                boot_id: boot_id.clone(),
                machine_id: machine_id.clone(),
                pid_namespace,
                mount_namespace,
                pid: pid.parse().ok()?,
                start_time: start_time.parse().ok()?,
                time_namespace,
            })
        })
        .collect()
}

/// The end of the year 9999, the last time in the text form.
const LAST_WRITABLE: Duration = Duration::from_secs(253_402_300_799);

struct Fields<'a>(BTreeMap<&'a str, &'a str>);

impl Fields<'_> {
    fn text(&self, key: &'static str) -> Result<String, OwnerRecordError> {
        self.0
            .get(key)
            .and_then(|value| unescape(value))
            .ok_or(OwnerRecordError::Field(key))
    }

    fn ranks(&self) -> Result<Vec<ProcessId>, OwnerRecordError> {
        let mut ranks = Vec::new();
        for n in 0.. {
            let Some(line) = self.0.get(rank_key(n).as_str()) else {
                break;
            };
            let time_namespace = self.time_namespace(&rank_clock_key(n))?;
            let line = unescape(line).and_then(|line| parse_ranks(&line, time_namespace));
            ranks.extend(line.ok_or(OwnerRecordError::Field("ranks"))?);
        }
        Ok(ranks)
    }

    fn time_namespace(&self, key: &str) -> Result<u64, OwnerRecordError> {
        let told = self.0.get(key).map_or(Ok(0), |value| value.parse());
        told.map_err(|_| OwnerRecordError::Field("time_namespace"))
    }

    fn value<T: FromStr>(&self, key: &'static str) -> Result<T, OwnerRecordError> {
        self.text(key)?
            .parse()
            .map_err(|_| OwnerRecordError::Field(key))
    }
}

fn escape_into(text: &mut String, value: &str) {
    for character in value.chars() {
        if character == '%' || character.is_control() {
            let mut bytes = [0; 4];
            for byte in character.encode_utf8(&mut bytes).bytes() {
                // Writing to a `String` cannot fail.
                let _ = write!(text, "%{byte:02x}");
            }
        } else {
            text.push(character);
        }
    }
}

fn unescape(value: &str) -> Option<String> {
    let mut parts = value.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(part.get(2..)?.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use fsgather_core::Salt;
    use proptest::prelude::*;

    use super::*;

    /// A record of this process, for tests.
    pub(crate) fn record(salt: u32) -> OwnerRecord {
        OwnerRecord {
            process: crate::os::process::this_process().unwrap(),
            uid: 1000,
            user: "ada".into(),
            job: Some("4711".into()),
            world_size: WorldSize::new(4).unwrap(),
            gather: GatherId::new(
                UNIX_EPOCH + Duration::from_secs(1_795_232_016),
                Salt::from_random(salt),
            ),
            communicator: Uuid::from_u128(0x1234),
            created: UNIX_EPOCH + Duration::from_secs(1_795_232_016),
            ranks: Vec::new(),
        }
    }

    #[test]
    fn ranks_of_one_place_share_a_line() {
        let of = |pid, host: &str| ProcessId {
            pid,
            start_time: pid.into(),
            host: host.into(),
            ..ProcessId::default()
        };
        let lines = ranks_text(&[of(1, "a"), of(2, "b"), of(3, "a")]);
        let texts: Vec<&str> = lines.iter().map(|(line, _)| line.as_str()).collect();
        assert_eq!(texts, ["- - 0 0 1:1,3:3 a", "- - 0 0 2:2 b"]);
    }

    proptest! {
        #[test]
        fn records_convert_both_ways_whatever_the_texts(
            user in any::<String>(), job in any::<Option<String>>(), host in any::<String>(),
        ) {
            let mut record = record(1);
            (record.user, record.job, record.process.host) = (user, job, host);
            let text = record.to_text();
            prop_assert_eq!(OwnerRecord::from_text(text.as_bytes()), Ok(record));
        }

        #[test]
        fn ranks_are_told_whole_wherever_they_run(hosts in prop::collection::vec(any::<String>(), 0..4)) {
            let mut record = record(1);
            for (pid, host) in (1_u32..).zip(&hosts) {
                let elsewhere = ProcessId {
                    host: host.clone(), pid, time_namespace: pid.into(), ..ProcessId::default()
                };
                let beside = ProcessId {
                    pid: pid + 100, start_time: 7, ..elsewhere.clone()
                };
                if !record.ranks.iter().any(|known| known.host == *host) {
                    record.ranks.extend([elsewhere, beside]);
                }
            }
            let text = record.to_text();
            prop_assert_eq!(OwnerRecord::from_text(text.as_bytes()), Ok(record));
        }

        #[test]
        fn no_damaged_record_is_accepted(at: prop::sample::Index, bit in 0..8, cut: prop::sample::Index) {
            let text = record(1).to_text().into_bytes();
            let mut flipped = text.clone();
            flipped[at.index(text.len())] ^= 1_u8 << bit;
            prop_assert!(OwnerRecord::from_text(&flipped).is_err());
            prop_assert!(OwnerRecord::from_text(&text[..cut.index(text.len())]).is_err());
        }
    }

    #[test]
    fn a_record_of_an_earlier_build_knows_no_time_namespace() {
        let mut record = record(1);
        record.ranks = vec![record.process.clone()];
        let text = record.to_text();
        let told: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("time_namespace="))
            .collect();
        assert_eq!(told.len(), 2);
        let mut body: String = text
            .lines()
            .filter(|line| !told.contains(line) && !line.starts_with("xxh3"))
            .flat_map(|line| [line, "\n"])
            .collect();
        let checksum = Hash128::of(body.as_bytes());
        let _ = writeln!(body, "xxh3_128={checksum:032x}");
        record.process.time_namespace = 0;
        record.ranks[0].time_namespace = 0;
        assert_eq!(OwnerRecord::from_text(body.as_bytes()), Ok(record));
    }

    #[test]
    fn a_record_of_hundreds_of_hosts_tells_all_ranks() {
        let mut record = record(1);
        let me = record.process.clone();
        let host = |number| ProcessId {
            host: format!("node-{number}"),
            ..me.clone()
        };
        record.ranks = (0..500).map(host).collect();
        let text = record.to_text();
        assert_eq!(OwnerRecord::from_text(text.as_bytes()), Ok(record));
        assert!(text.len() as u64 <= MAX_RECORD_LEN);
    }

    #[test]
    fn a_record_of_very_many_ranks_stays_readable_without_them() {
        let mut record = record(1);
        let me = record.process.clone();
        record.ranks = (0..20_000)
            .map(|pid| ProcessId { pid, ..me.clone() })
            .collect();
        let text = record.to_text();
        assert!(text.len() as u64 <= MAX_RECORD_LEN);
        record.ranks.clear();
        assert_eq!(OwnerRecord::from_text(text.as_bytes()), Ok(record));
    }

    #[test]
    fn other_versions_are_told_as_such() {
        assert_eq!(
            OwnerRecord::from_text(b"fsgather owner record 2\nanything"),
            Err(OwnerRecordError::Version("2".into()))
        );
        assert_eq!(
            OwnerRecord::from_text(b"hello\n"),
            Err(OwnerRecordError::Foreign)
        );
    }
}
