//! Kinds of file systems, and the worst behaviour of each: [`Profile`].

use std::time::Duration;

use crate::dice::Dice;

/// The worst behaviour of a client and its server, as measured or documented.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Profile {
    pub(crate) name: &'static str,
    /// The number by which the system identifies the type.
    pub(crate) magic: u32,
    /// The minimum and the maximum duration of a call, in microseconds.
    pub(crate) latency: (u64, u64),
    /// Time for which a client caches the attributes of a file.
    pub(crate) attributes: Duration,
    /// Time for which it caches the target of a name, and the absence of a name.
    pub(crate) names: Duration,
    pub(crate) missing_names: Duration,
    /// Time for which a cached listing is returned although the directory has changed.
    pub(crate) listings: Duration,
    /// True if opening a file or directory fetches its attributes from the server.
    pub(crate) is_asked_at_open: bool,
    /// True if a cached listing is returned as long as the directory seems unchanged.
    pub(crate) keeps_listings: bool,
    /// True if cached attributes of a file are used for the file that has its name now.
    pub(crate) goes_by_names: bool,
    /// True if a noticed change of a directory ends the memory of missing names in it.
    pub(crate) changes_are_news: bool,
    /// The granularity of the time stamps that show changes of a directory; zero if changes are counted.
    pub(crate) tick: Duration,
    /// True if an open file that its own host removes stays under another name.
    pub(crate) hides_open_files: bool,
    /// True if a call that is sent twice may find its own effect.
    pub(crate) loses_replies: bool,
    /// True if a restart of the server loses written data that was not synced.
    pub(crate) restart_forgets: bool,
    pub(crate) has_links: bool,
    /// Maximum time that a call may take after the last rank has reached it, without faults: at least twice the maximum of 2,500 seeds.
    pub(crate) promptness: Duration,
}

const LOCAL: Profile = Profile {
    name: "local",
    magic: 0xf2f5_2010,
    latency: (1, 30),
    attributes: Duration::ZERO,
    names: Duration::ZERO,
    missing_names: Duration::ZERO,
    listings: Duration::ZERO,
    is_asked_at_open: true,
    keeps_listings: false,
    goes_by_names: false,
    changes_are_news: true,
    tick: Duration::ZERO,
    hides_open_files: false,
    loses_replies: false,
    restart_forgets: false,
    has_links: true,
    promptness: Duration::from_secs(2),
};

const NFS3: Profile = Profile {
    promptness: Duration::from_secs(6),
    name: "nfs3",
    magic: 0x6969,
    latency: (200, 3000),
    attributes: Duration::from_secs(60),
    names: Duration::from_secs(60),
    missing_names: Duration::from_secs(60),
    keeps_listings: true,
    tick: Duration::from_millis(10),
    hides_open_files: true,
    loses_replies: true,
    ..LOCAL
};

const NFS4: Profile = Profile {
    name: "nfs4",
    tick: Duration::ZERO,
    ..NFS3
};

/// With the option `nocto`.
const NFS_NOCTO: Profile = Profile {
    name: "nfs-nocto",
    is_asked_at_open: false,
    ..NFS3
};

const GLUSTER: Profile = Profile {
    promptness: Duration::from_secs(6),
    name: "gluster",
    magic: 0x6573_5546,
    latency: (1000, 8000),
    attributes: Duration::from_secs(1),
    names: Duration::from_secs(1),
    restart_forgets: true,
    hides_open_files: true,
    ..LOCAL
};

/// With caches of the kernel and the daemon, as `negative_timeout=30`, and of listings for a second.
const FUSE: Profile = Profile {
    promptness: Duration::from_secs(20),
    name: "fuse",
    attributes: Duration::from_secs(30),
    names: Duration::from_secs(30),
    missing_names: Duration::from_secs(30),
    listings: Duration::from_secs(1),
    is_asked_at_open: false,
    goes_by_names: true,
    changes_are_news: false,
    has_links: false,
    ..GLUSTER
};

/// All bad properties at once, with time stamps of two seconds.
const WORST: Profile = Profile {
    name: "worst",
    magic: 0x6573_5546,
    latency: (200, 20_000),
    attributes: Duration::from_secs(60),
    names: Duration::from_secs(60),
    missing_names: Duration::from_secs(60),
    listings: Duration::from_secs(1),
    is_asked_at_open: false,
    keeps_listings: true,
    goes_by_names: true,
    changes_are_news: false,
    tick: Duration::from_secs(2),
    hides_open_files: true,
    loses_replies: true,
    restart_forgets: true,
    has_links: true,
    promptness: Duration::from_secs(60),
};

/// All kinds.
pub(crate) const ALL: [Profile; 7] = [LOCAL, NFS3, NFS4, NFS_NOCTO, GLUSTER, FUSE, WORST];

impl Profile {
    /// The profile of this name.
    pub(crate) fn named(name: &str) -> Self {
        let found = ALL.iter().find(|profile| profile.name == name);
        *found.expect("a profile of that name")
    }

    pub(crate) const fn is_local(&self) -> bool {
        self.magic == LOCAL.magic
    }

    /// Draws a file system of this kind, since real ones do not show the worst of everything all the time.
    pub(crate) fn draw(mut self, dice: &mut Dice) -> Self {
        let mut shorter = |worst: &mut Duration| {
            if !dice.one_in(3) {
                *worst = Duration::from_nanos(dice.any_size(worst.as_nanos() as u64));
            }
        };
        shorter(&mut self.attributes);
        shorter(&mut self.names);
        shorter(&mut self.missing_names);
        shorter(&mut self.listings);
        shorter(&mut self.tick);
        self
    }
}
