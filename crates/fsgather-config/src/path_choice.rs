//! Chooses the way that an `all_gather` goes, in the order of the Python original: [`choose_path`].

use fsgather_core::WorldSize;

use crate::settings::Transport;

/// The way the values of one `all_gather` take, and who receives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GatherPath {
    /// A world of one: the value itself, and nothing is touched.
    Solo,
    /// Through the file system; rank 0 receives the list, every other rank an empty one.
    FilesysRootOnly,
    /// Through the file system; every rank receives the list.
    Filesys,
    /// Over the network; every rank receives the list.
    Memory,
    /// Whichever of the two is better; every rank receives the list.
    Auto,
}

/// All that decides which way an `all_gather` goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathConditions {
    /// How many ranks there are.
    pub world_size: WorldSize,
    /// The resolved switch `FSGATHER_ROOT_ONLY`.
    pub root_only: bool,
    /// The resolved setting `FSGATHER_TRANSPORT`.
    pub transport: Transport,
    /// The caller's argument of that name.
    pub force_filesys: bool,
    /// The caller's argument of that name.
    pub force_cpu: bool,
}

/// Chooses the way; the first condition that holds decides.
///
/// This order is the original's, and differs from the rule that arguments win over variables: the switch
/// for rank 0 goes before everything, the file system goes before memory, whether a variable or an argument
/// asks for it.
///
/// ```
/// use fsgather_config::path_choice::{GatherPath, PathConditions, choose_path};
/// use fsgather_config::settings::Transport;
/// use fsgather_core::WorldSize;
///
/// let path = choose_path(PathConditions {
///     world_size: WorldSize::new(8)?,
///     root_only: false,
///     transport: Transport::Memory,
///     force_filesys: true,
///     force_cpu: false,
/// });
/// assert_eq!(path, GatherPath::Filesys);
/// # Ok::<(), fsgather_core::Error>(())
/// ```
#[must_use]
pub fn choose_path(conditions: PathConditions) -> GatherPath {
    let PathConditions {
        world_size,
        root_only,
        transport,
        force_filesys,
        force_cpu,
    } = conditions;
    if world_size.is_solo() {
        GatherPath::Solo
    } else if root_only {
        GatherPath::FilesysRootOnly
    } else if transport == Transport::Filesys || force_filesys {
        GatherPath::Filesys
    } else if transport == Transport::Memory || force_cpu {
        GatherPath::Memory
    } else {
        GatherPath::Auto
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        environment::{self, Variables},
        settings::Settings,
    };

    /// What the original's table says, and where ours override it: written as a table, not as code.
    ///
    /// Columns: world size; root-only switch; file-system switch, by variable or argument; memory switch,
    /// likewise; `*` is any.
    const ORDER: [(&str, GatherPath); 5] = [
        ("1 * * *", GatherPath::Solo),
        ("n 1 * *", GatherPath::FilesysRootOnly),
        ("n 0 1 *", GatherPath::Filesys),
        ("n 0 0 1", GatherPath::Memory),
        ("n 0 0 0", GatherPath::Auto),
    ];

    fn expected([several, root_only, filesys, memory]: [bool; 4]) -> GatherPath {
        let row = [
            if several { "n" } else { "1" },
            if root_only { "1" } else { "0" },
            if filesys { "1" } else { "0" },
            if memory { "1" } else { "0" },
        ];
        let fits = |pattern: &str| {
            pattern
                .split(' ')
                .zip(row)
                .all(|(pattern, value)| pattern == "*" || pattern == value)
        };
        let mut matching = ORDER.iter().filter(|(pattern, _)| fits(pattern));
        let (_, path) = matching.next().unwrap();
        assert!(matching.next().is_none(), "rows overlap");
        *path
    }

    const BOTH: [bool; 2] = [false, true];

    fn resolve(pairs: &[(&str, &str)]) -> Settings {
        Settings::resolve(&pairs.iter().copied().collect()).unwrap()
    }

    #[test]
    fn switches_and_arguments_choose_as_in_the_original() {
        let mut rows = 0;
        for bits in 0..64_u32 {
            let bit = |n: u32| bits & (1 << n) != 0;
            let (several, root_only) = (bit(0), bit(1));
            let (filesys, cpu) = (bit(2), bit(3));
            let (force_filesys, force_cpu) = (bit(4), bit(5));
            let value = |on: bool| if on { "1" } else { "0" };
            let settings = resolve(&[
                (
                    environment::MDETR_FILESYS_REDUCE_RANK_0_ONLY,
                    value(root_only),
                ),
                (environment::MDETR_FILESYS_REDUCE, value(filesys)),
                (environment::MDETR_CPU_REDUCE, value(cpu)),
            ]);
            let path = choose_path(PathConditions {
                world_size: WorldSize::new(if several { 3 } else { 1 }).unwrap(),
                root_only: settings.root_only.value,
                transport: settings.transport.value,
                force_filesys,
                force_cpu,
            });
            let right = expected([
                several,
                root_only,
                filesys || force_filesys,
                cpu || force_cpu,
            ]);
            assert_eq!(path, right, "{bits:06b}");
            rows += 1;
        }
        assert_eq!(rows, 64);
    }

    #[test]
    fn our_own_names_take_the_place_of_the_originals() {
        let own_transports = [
            (None, None),
            (Some("auto"), Some((false, false))),
            (Some("filesys"), Some((true, false))),
            (Some("memory"), Some((false, true))),
        ];
        let own_root_only = [
            (None, None),
            (Some("0"), Some(false)),
            (Some("1"), Some(true)),
        ];
        for (transport, switches) in own_transports {
            for (root_only, rank_0) in own_root_only {
                for bits in 0..32_u32 {
                    let bit = |n: u32| bits & (1 << n) != 0;
                    let old = [
                        (environment::MDETR_FILESYS_REDUCE_RANK_0_ONLY, bit(0)),
                        (environment::MDETR_FILESYS_REDUCE, bit(1)),
                        (environment::MDETR_CPU_REDUCE, bit(2)),
                    ];
                    let (force_filesys, force_cpu) = (bit(3), bit(4));
                    let variables: Variables = old
                        .iter()
                        .filter(|(_, on)| *on)
                        .map(|(name, _)| (*name, "1"))
                        .chain(transport.map(|text| (environment::TRANSPORT, text)))
                        .chain(root_only.map(|text| (environment::ROOT_ONLY, text)))
                        .collect();
                    let settings = Settings::resolve(&variables).unwrap();
                    let path = choose_path(PathConditions {
                        world_size: WorldSize::new(2).unwrap(),
                        root_only: settings.root_only.value,
                        transport: settings.transport.value,
                        force_filesys,
                        force_cpu,
                    });
                    let (filesys, memory) = switches.unwrap_or((bit(1), bit(2)));
                    let right = expected([
                        true,
                        rank_0.unwrap_or(bit(0)),
                        filesys || force_filesys,
                        memory || force_cpu,
                    ]);
                    assert_eq!(path, right, "{transport:?} {root_only:?} {bits:05b}");
                }
            }
        }
    }

    #[test]
    fn a_world_of_one_goes_no_way_at_all() {
        for root_only in BOTH {
            for transport in [Transport::Auto, Transport::Filesys, Transport::Memory] {
                for (force_filesys, force_cpu) in [(false, false), (true, true)] {
                    let path = choose_path(PathConditions {
                        world_size: WorldSize::ONE,
                        root_only,
                        transport,
                        force_filesys,
                        force_cpu,
                    });
                    assert_eq!(path, GatherPath::Solo);
                }
            }
        }
    }

    #[test]
    fn only_the_exact_value_one_switches_an_old_variable_on() {
        for text in ["true", "yes", "01", " 1", "1 ", "2", "on"] {
            let settings = resolve(&[
                (environment::MDETR_FILESYS_REDUCE_RANK_0_ONLY, text),
                (environment::MDETR_FILESYS_REDUCE, text),
                (environment::MDETR_CPU_REDUCE, text),
            ]);
            assert!(!settings.root_only.value, "{text:?}");
            assert_eq!(settings.transport.value, Transport::Auto, "{text:?}");
        }
    }
}
