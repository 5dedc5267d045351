//! The one table of settings: name, type, variable, default, meaning, and what a program may say instead.
//!
//! It is a macro that hands its rows to another one. From the same rows come the names of variables
//! ([`environment`](crate::environment)), their description for the reference page and the command's help
//! ([`settings::variables`](crate::settings::variables)), [`Settings`](crate::settings::Settings) with what reads and shows it, and
//! [`Arguments`](crate::arguments::Arguments), which the builder and the Python package fill.
//!
//! A row:
//!
//! ```text
//! field: type {
//!     variable { NAME = "FSGATHER_NAME" or OLDER NAMES: "what it does" ["its values", "its default"] }
//!     help { "the same in a few words" }
//!     value { default VALUE, such as "one that is right", show FUNCTION }
//!     argument { name: type = FUNCTION }
//! }
//! ```
//!
//! - Values and default are those of the type and of `value` where the row does not say otherwise.
//! - `help` is for verbs that list the variable, and may be empty.
//! - `else FUNCTION` after the example asks older variables; `read FUNCTION`, or `take FUNCTION` for one that refuses nothing,
//!   stands in the place of all that where several variables count, or the launcher.
//! - `argument` is empty where programs leave the setting to variables; the function makes the setting of what they say.

/// Hands all rows to the macro `$use`, in the order of the reference page.
macro_rules! settings_table {
    ($use:ident) => {
        $use! {
            /// `None`: nobody said, and the default depends on the host.
            directory: Option<PathBuf> {
                variable {
                    DIR = "FSGATHER_DIR" or EXP_DIR:
                    "The directory in which `all_gather_via_filesys/` is made, for joining and payloads. An unusable default is skipped, unless `FSGATHER_TRANSPORT` is `filesys`." [
                        "a path, relative to the directory in which the process has begun",
                        "`/tmp/fsgather-<uid>` when the launcher says that all ranks are on one host, else the working directory; for ranks that a program's own channel introduces the former where they see the same mounts, else none"
                    ]
                }
                help { "the directory, if no --dir is given; else EXP_DIR" }
                value { take read::directory, show show::directory }
                argument { directory: PathBuf = |path| Ok(Some(absolute(path))) }
            }
            dir_mode: DirMode {
                variable {
                    DIR_MODE = "FSGATHER_DIR_MODE":
                    "The mode of gather directories. With `0750` the group of the parent directory may read their content, with `0770` also remove it; only the owner can change a file. `any` is for file systems without modes, such as SMB and vfat: all users who can read there can join the job and read its data."
                }
                help {}
                value { default DirMode::PRIVATE, such as "0770" }
                argument { directory_mode: u32 = DirMode::of_bits }
            }
            transport: Transport {
                variable {
                    TRANSPORT = "FSGATHER_TRANSPORT" or MDETR_FILESYS_REDUCE MDETR_CPU_REDUCE:
                    "The way of payloads; with `auto` through files if a directory is usable and has room, else through memory. `MDETR_FILESYS_REDUCE=1` means `filesys`, `MDETR_CPU_REDUCE=1` means `memory`."
                }
                help { "how payloads travel: auto, filesys or memory" }
                value { default Transport::Auto, such as "filesys", else read::old_transport }
                argument { transport: Transport = Ok }
            }
            root_only: bool {
                variable {
                    ROOT_ONLY = "FSGATHER_ROOT_ONLY" or MDETR_FILESYS_REDUCE_RANK_0_ONLY:
                    "With `1` the function `all_gather` returns an empty list on all ranks but 0; the methods of a communicator are not affected."
                }
                help {}
                value { default false, such as "1", else read::old_root_only }
                argument {}
            }
            control: Control {
                variable {
                    CONTROL = "FSGATHER_CONTROL":
                    "The way of messages: over TCP, or by marker files in the shared directory; with `auto` over TCP, unless a rank cannot reach rank 0. Rank 0's setting counts."
                }
                help { "how ranks talk: auto, tcp or markers" }
                value { default Control::Auto, such as "tcp" }
                argument { control: Control = Ok }
            }
            /// `None`: in the directory, or by a way that no setting can name.
            rendezvous: Option<RendezvousSetting> {
                variable {
                    RENDEZVOUS = "FSGATHER_RENDEZVOUS":
                    "Where ranks meet; at a loopback address, or `localhost`, only those of one host. With `ray:`, `dask:`, `spark:`, `jax:`, `mpi:` or a package's own name the engine of a Python program introduces them." ["the directory of `FSGATHER_DIR`"]
                }
                help { "where ranks meet, if not in the directory" }
                value { read read::rendezvous, show show::rendezvous }
                argument { rendezvous: Option<RendezvousSetting> = |place| Ok(place.map(absolute_place)) }
            }
            job: Option<String> {
                variable {
                    JOB = "FSGATHER_JOB":
                    "Separates jobs that share a directory." [
                        "any text",
                        "the launcher's job id"
                    ]
                }
                help { "which job this is; else the launcher's" }
                value { take read::job, show show::job }
                argument { job: String = |name| Ok(Some(name)) }
            }
            /// `None`: nothing besides what rank 0 draws; at an address it is derived.
            secret: Option<SecretSetting> {
                variable {
                    SECRET = "FSGATHER_SECRET":
                    "The secret for joining; in a directory in addition to rank 0's random one. Ranks with different secrets get an error." [
                        "32 random bytes in hexadecimal or base64",
                        "none; at an address it is derived from the job then"
                    ];
                    SECRET_FILE = "FSGATHER_SECRET_FILE":
                    "A file with the secret, owned by this user or root and closed to others (mode `0600`); `FSGATHER_SECRET` wins." [
                        "a path",
                        "none"
                    ]
                }
                help { "what ranks must know to join" }
                value { read read::secret, show show::secret }
                argument {}
            }
            encrypt: bool {
                variable {
                    ENCRYPT = "FSGATHER_ENCRYPT":
                    "Connections between hosts are always encrypted. With `1` nothing else crosses a network: messages do not move to marker files, `auto` uses files on local disks only, and `markers` and `filesys` are rejected elsewhere."
                }
                help {}
                value { default false, such as "1" }
                argument {}
            }
            rank: Rank {
                variable {
                    RANK = "FSGATHER_RANK":
                    "The rank of this process; requires `FSGATHER_WORLD_SIZE`." [
                        "a number from 0",
                        "from the launcher"
                    ]
                }
                help { "who this is, with FSGATHER_WORLD_SIZE" }
                value { take read::rank, show show::rank }
                argument { rank: u32 = |rank| Ok(Rank::new(rank)) }
            }
            world_size: WorldSize {
                variable {
                    WORLD_SIZE = "FSGATHER_WORLD_SIZE":
                    "The number of ranks; requires `FSGATHER_RANK`, or a pod of a Kubernetes indexed Job." [
                        "a number from 1",
                        "from the launcher"
                    ]
                }
                help {}
                value { take read::world_size, show show::world_size }
                argument { world_size: u32 = WorldSize::new }
            }
            local_rank: Option<u32> {
                variable {
                    LOCAL_RANK = "FSGATHER_LOCAL_RANK":
                    "The number of this process on its host." [
                        "a number from 0",
                        "from the launcher"
                    ]
                }
                help {}
                value { take read::local_rank, show show::local_rank }
                argument {}
            }
            local_size: Option<u32> {
                variable {
                    LOCAL_WORLD_SIZE = "FSGATHER_LOCAL_WORLD_SIZE":
                    "The number of ranks on this host." [
                        "a number from 1",
                        "from the launcher"
                    ]
                }
                help {}
                value { take read::local_size, show show::local_size }
                argument {}
            }
            join_timeout: Duration {
                variable {
                    JOIN_TIMEOUT = "FSGATHER_JOIN_TIMEOUT":
                    "How long to wait for all ranks to meet."
                }
                help { "how long ranks wait for each other to meet" }
                value { default DEFAULT_JOIN_TIMEOUT, such as "5m" }
                argument { join_timeout: Duration = above_zero }
            }
            timeout: Duration {
                variable {
                    TIMEOUT = "FSGATHER_TIMEOUT":
                    "How long a call waits without progress."
                }
                help { "how long nothing may move, without --timeout" }
                value { default DEFAULT_TIMEOUT, such as "30m" }
                argument { timeout: Duration = above_zero }
            }
            port: PortRange {
                variable {
                    PORT = "FSGATHER_PORT":
                    "Where rank 0 and neighbours listen." ["`0`, any free port"]
                }
                help {}
                value { default PortRange::ANY, such as "60001-60999", show show::port }
                argument {}
            }
            interfaces: InterfaceFilter {
                variable {
                    INTERFACE = "FSGATHER_INTERFACE":
                    "The network interfaces to publish and listen on, beside the loopback." ["all"]
                }
                help {}
                value { default InterfaceFilter::any(), such as "ib0,10.1.0.0/16" }
                argument {}
            }
            /// In bytes, before [`Settings::inline_bound`] limits it.
            inline_limit: u64 {
                variable {
                    INLINE_LIMIT = "FSGATHER_INLINE_LIMIT":
                    "Payloads up to this size travel inside messages, without a file; at most 4 MiB divided by the world size."
                }
                help {}
                value { default DEFAULT_INLINE_LIMIT, such as "64KiB", show show::inline_limit }
                argument { inline_limit: u64 = Ok }
            }
            /// In bytes.
            shared_memory: u64 {
                variable {
                    SHARED_MEMORY = "FSGATHER_SHARED_MEMORY":
                    "How much memory this rank may share with others of its host, where they read payloads in place; never above an eighth of what the host, or the control group, has, divided by its ranks. `0` shares none. With `filesys` none is shared."
                }
                help {}
                value { default DEFAULT_SHARED_MEMORY, such as "1GiB" }
                argument { shared_memory: u64 = Ok }
            }
            /// Whether this build can do so is not checked here.
            compression: CompressionSetting {
                variable {
                    COMPRESS = "FSGATHER_COMPRESS":
                    "Whether payload files of this rank are compressed. All ranks need the cargo feature `zstd`, which the command has. Payloads that travel by TCP are not compressed; a rank warns of that once."
                }
                help {}
                value { default CompressionSetting::None, such as "zstd" }
                argument { compression: CompressionSetting = Ok }
            }
            verify: Verify {
                variable {
                    VERIFY = "FSGATHER_VERIFY":
                    "Which payloads have checksums that readers verify: with `always` all, on each reading rank; with `host` those that travel, once for each host whose ranks share memory; with `off` none. Payloads travel unless all ranks, and the directory's file system, are on one host. The strictest setting of a rank counts. Payloads that are compressed, inside messages or sent through rank 0 always have them."
                }
                help { "which payloads have checksums: host, always or off" }
                value { default Verify::Host, such as "always" }
                argument { verify: Verify = Ok }
            }
            /// It is not checked here.
            log: String {
                variable {
                    LOG = "FSGATHER_LOG":
                    "The log on standard error of the command, and of Python programs without logging set up. A Rust program without a `tracing` subscriber prints its warnings there, unless this excludes warnings of `fsgather`. `debug` logs each call with its duration, the last rank and the wait for it. `-q` and `-v` win, but those of `fsgather run` not over its ranks' variable."
                }
                help { "what is said of the work, such as info; see -v" }
                value { default "warn".to_owned(), such as "fsgather=debug" }
                argument {}
            }
            stacks: bool {
                variable {
                    STACKS = "FSGATHER_STACKS":
                    "Whether a missing rank reports what it is doing: files, lines and names of functions, and the system call, file or address that it waits for, but no values of variables. `0` on rank 0 turns it off for all ranks, on another rank for that rank."
                }
                help {}
                value { default true, such as "0" }
                argument {}
            }
            trace: Trace {
                variable {
                    TRACE = "FSGATHER_TRACE":
                    "When the last 1000 calls of each rank are kept in a file of 192 KiB, for `fsgather ps` and `fsgather trace`: with `failed` while the job runs, and afterwards if a rank was lost, late or in another call; with `always` also after success; with `off` never. At the end of a rank the file is cut to 192 bytes a call."
                }
                help { "keep each rank's last calls: failed, always, off" }
                value { default Trace::Failed, such as "always" }
                argument { trace: Trace = Ok }
            }
            progress: ShowProgress {
                variable {
                    PROGRESS = "FSGATHER_PROGRESS":
                    "Whether the command shows a progress line on a terminal during a gather."
                }
                help { "`off`: shows no progress" }
                value { default ShowProgress::Auto, such as "off" }
                argument {}
            }
        }
    };
}
