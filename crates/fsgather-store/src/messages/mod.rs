//! Messages between ranks as files, if the ranks cannot reach each other otherwise.
//!
//! - `factory`: makes the message directories of a world: [`factory::MessageDirFactory`].
//! - `message_dir`: writes and receives messages: [`message_dir::MessageDir`].
//! - `names`: the names of their files; pure: [`names::MarkerName`].
//! - `message_file`: one message as a file.
//! - `sealed`: its bytes, which prove that it is complete and in its place; pure.
//! - `role`: the role of a rank.
//! - `detours`: messages outside of their directory, if that cannot be used: [`detours::Detours`].
//! - `torn_files`: files that a failed attempt may have left: [`torn_files::TornFiles`].
//! - `reserved_space`: space for messages on a full disk: [`reserved_space::ReservedSpace`].

pub(crate) mod detours;
pub(crate) mod factory;
pub(crate) mod message_dir;
pub(crate) mod message_file;
pub(crate) mod names;
pub(crate) mod reserved_space;
pub(crate) mod role;
pub(crate) mod sealed;
pub(crate) mod torn_files;
