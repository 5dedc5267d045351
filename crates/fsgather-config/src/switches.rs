//! The switches of the function `all_gather`, as the variables set them: [`Switches`].

use std::sync::Once;

use fsgather_core::{Error, Rank, WorldSize};

use crate::{
    environment::Variables,
    path_choice::{GatherPath, PathConditions, choose_path},
    settings::{Settings, Transport},
};

/// What the variables say of the way that the function `all_gather` takes, and of who gets its result.
///
/// For functions of that name in all languages, which have to go the same way. The methods of a communicator do not look
/// at `root_only`.
///
/// ```
/// use fsgather_config::{path_choice::GatherPath, switches::Switches};
/// use fsgather_core::WorldSize;
///
/// let switches = Switches::from_env()?;
/// let path = switches.path(WorldSize::new(1)?, true, false);
/// assert_eq!(path, GatherPath::Solo);
/// # Ok::<(), fsgather_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// `FSGATHER_ROOT_ONLY`, `MDETR_FILESYS_REDUCE_RANK_0_ONLY`: only rank 0 gets the list.
    pub root_only: bool,
    /// `FSGATHER_TRANSPORT`, `MDETR_FILESYS_REDUCE`, `MDETR_CPU_REDUCE`: which way payloads take.
    pub transport: Transport,
}

impl Switches {
    /// As the variables of this process say now.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a variable that cannot be understood.
    pub fn from_env() -> Result<Self, Error> {
        let settings = Settings::resolve(&Variables::of_process())?;
        Ok(Self {
            root_only: settings.root_only.value,
            transport: settings.transport.value,
        })
    }

    /// The same for ranks that have agreed on a transport when they met: where they were told different ones, rank 0's
    /// counts.
    #[must_use]
    pub const fn agreed(self, transport: Transport) -> Self {
        Self { transport, ..self }
    }

    /// The way of one call, in the order of [`choose_path`].
    #[must_use]
    pub fn path(self, world_size: WorldSize, force_filesys: bool, force_cpu: bool) -> GatherPath {
        choose_path(PathConditions {
            world_size,
            root_only: self.root_only,
            transport: self.transport,
            force_filesys,
            force_cpu,
        })
    }
}

impl GatherPath {
    /// The transport of a call that goes this way.
    #[must_use]
    pub const fn transport(self) -> Transport {
        match self {
            Self::Solo | Self::Memory => Transport::Memory,
            Self::FilesysRootOnly | Self::Filesys => Transport::Filesys,
            Self::Auto => Transport::Auto,
        }
    }

    /// Whether rank 0 alone gets the list, and every other rank an empty one.
    #[must_use]
    pub const fn is_root_only(self) -> bool {
        matches!(self, Self::FilesysRootOnly)
    }

    /// Warns of the empty lists, if there are any: once for the whole job, by a rank that gets one.
    pub fn warn_of_empty_lists(self, rank: Rank) {
        static ONCE: Once = Once::new();
        if self.is_root_only() && rank == Rank::new(1) {
            ONCE.call_once(|| {
                fsgather_core::warn!(
                    "all_gather returns an empty list on every rank but 0, because FSGATHER_ROOT_ONLY=1 or \
                     MDETR_FILESYS_REDUCE_RANK_0_ONLY=1 is set"
                );
            });
        }
    }
}
