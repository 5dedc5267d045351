//! Judges a mount by known facts about its type of file system, with advice on mount options: [`findings`].
//!
//! A trial decides whether a directory can be used, never a name. These facts explain why it is slow or fills up, if a mount option or a
//! command would cure that.

use crate::doctor::{
    facts::{DirectoryFacts, MountFacts},
    finding::{Finding, Topic},
};

/// A known fact about mounts.
struct Known {
    /// Prefixes of the type of such a mount, as the kernel names it, or of its source.
    names: &'static [&'static str],
    /// Returns true if the fact applies to a mount.
    applies: fn(&MountFacts) -> bool,
    /// True if jobs behave differently from what users expect; otherwise the finding is a note.
    is_warning: bool,
    text: &'static str,
    /// The advice; `DIR` stands for the directory.
    advice: &'static str,
}

const SMB: &[&str] = &["cifs", "smb3"];

const OBJECT_STORES: &[&str] = &[
    "fuse.s3fs",
    "fuse.gcsfuse",
    "fuse.mountpoint-s3",
    "fuse.geesefs",
    "fuse.goofys",
    "fuse.blobfuse",
];

const KNOWN: [Known; 7] = [
    Known {
        names: SMB,
        applies: |mount| {
            let mode = value_of(mount, "dir_mode=");
            mode.is_some_and(|mode| !mode.ends_with("00"))
        },
        is_warning: true,
        text: "on this SMB mount every directory has the mode that the mount options give it, which lets others of this host in",
        advice: "have it mounted for one user: uid=USER,file_mode=0600,dir_mode=0700",
    },
    Known {
        names: SMB,
        // A server that breaks a lease while its holder closes the file may not notice the close.
        applies: |mount| !mount.has("nolease") && !mount.has("vers=1.0"),
        is_warning: true,
        text: "this SMB mount takes leases: where the server is Samba, opening a file that another host has had open may take 5 to 10 s, \
               or hang",
        advice: "have it mounted with nolease",
    },
    Known {
        names: &["fuse.sshfs"],
        // The options of its daemon cannot be seen.
        applies: |_| true,
        is_warning: false,
        text: "sshfs remembers listings for 20 s unless told otherwise: ranks may take that long to meet, and each call over marker files does",
        advice: "mount it with -o dir_cache=no on all hosts",
    },
    Known {
        names: &["mfs#", "fuse.mfs"],
        applies: |_| true,
        is_warning: false,
        text: "MooseFS keeps removed files for a day unless told otherwise: payloads that are gone still take room",
        advice: "mfssettrashtime -r 0 DIR",
    },
    Known {
        names: &["fuse.juicefs"],
        applies: |_| true,
        is_warning: false,
        text: "JuiceFS keeps removed files for a day unless told otherwise: payloads that are gone still take room",
        advice: "juicefs config META-URL --trash-days 0",
    },
    Known {
        names: &["fuse.rclone"],
        applies: |_| true,
        is_warning: false,
        text: "rclone shows an object store: new files take seconds to be seen, and empty directories may not be seen at all",
        advice: "mount it with --vfs-cache-mode writes --dir-cache-time 5s --dir-perms 0700 --file-perms 0600, or set \
                 FSGATHER_TRANSPORT=memory",
    },
    Known {
        names: OBJECT_STORES,
        applies: |_| true,
        is_warning: false,
        text: "this mount shows an object store: each file costs some requests to it",
        advice: "FSGATHER_TRANSPORT=memory is faster as long as payloads fit into memory",
    },
];

/// The known facts that apply to the mount of a directory.
pub(super) fn findings(facts: &DirectoryFacts) -> Vec<Finding> {
    let Some(mount) = &facts.mount else {
        return Vec::new();
    };
    let about = |known: &&Known| {
        let is_so_named =
            |name: &&str| mount.kind.starts_with(*name) || mount.source.starts_with(*name);
        known.names.iter().any(is_so_named) && (known.applies)(mount)
    };
    let known = KNOWN.iter().filter(about);
    known
        .map(|known| {
            let advice = known.advice.replace("DIR", &facts.path);
            let finding = if known.is_warning {
                Finding::warning(Topic::Directory, known.text, &advice)
            } else {
                Finding::note(Topic::Directory, known.text).advise(advice)
            };
            finding.for_table()
        })
        .collect()
}

/// The value of an option, given its name with the equals sign.
fn value_of<'a>(mount: &'a MountFacts, option: &str) -> Option<&'a str> {
    mount
        .options
        .iter()
        .find_map(|known| known.strip_prefix(option))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Level;

    fn said(kind: &str, options: &str) -> Vec<(Level, String)> {
        let mount = MountFacts {
            point: "/shared".into(),
            source: if kind == "fuse" {
                "mfs#master:9421"
            } else {
                "server"
            }
            .into(),
            kind: kind.into(),
            options: options.split(',').map(str::to_owned).collect(),
        };
        let facts = DirectoryFacts {
            path: "/shared/scratch".into(),
            mount: Some(mount),
            ..DirectoryFacts::default()
        };
        let findings = findings(&facts);
        assert!(
            findings.iter().all(|known| known.advice.is_some()),
            "{findings:?}"
        );
        findings
            .into_iter()
            .map(|known| (known.level, known.advice.unwrap_or_default()))
            .collect()
    }

    #[test]
    fn smb_is_told_what_its_options_lack() {
        let usual = "rw,vers=3.1.1,cache=strict,file_mode=0755,dir_mode=0755,soft,closetimeo=1";
        let warned = said("cifs", usual);
        assert_eq!(warned.len(), 2, "{warned:?}");
        assert!(warned[0].1.contains("dir_mode=0700"), "{warned:?}");
        assert!(warned[1].1.contains("nolease"), "{warned:?}");
        assert!(warned.iter().all(|(level, _)| *level == Level::Warning));
        assert_eq!(said("cifs", "dir_mode=0700,closetimeo=1,nolease"), []);
        // Closing files at once does not prevent that.
        assert_eq!(said("smb3", "dir_mode=0700,closetimeo=0").len(), 1);
        assert_eq!(said("cifs", "vers=1.0,dir_mode=0700"), []);
    }

    #[test]
    fn others_are_known_by_name_and_the_rest_is_left_alone() {
        for (kind, advice) in [
            ("fuse.sshfs", "dir_cache=no"),
            ("fuse", "mfssettrashtime -r 0 /shared/scratch"),
            ("fuse.juicefs", "--trash-days 0"),
            ("fuse.rclone", "--dir-perms 0700"),
            ("fuse.s3fs", "FSGATHER_TRANSPORT=memory"),
            ("fuse.blobfuse2", "FSGATHER_TRANSPORT=memory"),
        ] {
            let said = said(kind, "rw");
            assert!(
                matches!(&said[..], [(Level::Note, told)] if told.contains(advice)),
                "{said:?}"
            );
        }
        for kind in ["nfs4", "lustre", "ext4", "fuse.glusterfs", "fuse.ceph-fuse"] {
            assert_eq!(said(kind, "rw"), []);
        }
    }
}
