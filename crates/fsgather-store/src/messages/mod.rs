//! Messages between ranks as files, where they cannot reach each other otherwise.
//!
//! - `factory`: makes what follows for a world: [`factory::MessageDirFactory`].
//! - `message_dir`: messages left and found: [`message_dir::MessageDir`].
//! - `names`: the names of their files; pure: [`names::MarkerName`].
//! - `message_file`: one message as a file.
//! - `sealed`: its bytes, which tell whether it is whole and where it belongs; pure.
//! - `role`: whose messages they are.
//! - `detours`: messages beside the place for them, where that cannot be used: [`detours::Detours`].
//! - `torn_files`: what a failed try may have left: [`torn_files::TornFiles`].
//! - `reserved_space`: room for messages on a disk that is full: [`reserved_space::ReservedSpace`].

pub(crate) mod detours;
pub(crate) mod factory;
pub(crate) mod message_dir;
pub(crate) mod message_file;
pub(crate) mod names;
pub(crate) mod reserved_space;
pub(crate) mod role;
pub(crate) mod sealed;
pub(crate) mod torn_files;
