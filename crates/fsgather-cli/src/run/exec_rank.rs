//! The hidden verb `exec-rank`: what happens in the new process before it becomes the rank's command.
//!
//! A process can ask for these things only for itself and only before the command runs; doing them here
//! needs no code between fork and exec.

use std::{
    ffi::OsString,
    io,
    os::{fd::AsFd, unix::process::CommandExt},
    process::{Command, Stdio},
};

use clap::Args;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal, setsid};

use super::handshake;
use crate::exit;

/// Become one rank of `fsgather run`, which starts this by itself.
#[derive(Args, Debug)]
#[command(hide = true)]
pub(crate) struct ExecRankArguments {
    /// The process id of `fsgather run`.
    #[arg(long)]
    parent: i32,

    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// Becomes the command; returns, with the code to exit with, only when that is not possible.
pub(crate) fn exec_rank(arguments: &ExecRankArguments) -> u8 {
    // A duplicate that closes when the command begins.
    let Ok(channel) = io::stdin().as_fd().try_clone_to_owned() else {
        return exit::OTHER;
    };
    let failure = match prepare(arguments) {
        Ok(Some(mut command)) => command.exec(),
        Ok(None) => return exit::OTHER,
        Err(failure) => failure,
    };
    // Without a number it is an argument that cannot be passed on: EINVAL.
    let os_code = failure.raw_os_error().unwrap_or(22);
    // If this cannot be told, nobody is there to hear it.
    let _ = handshake::report(channel, os_code);
    exit::NOT_EXECUTABLE
}

/// Everything but the last step; `None` when `run` is gone already.
fn prepare(arguments: &ExecRankArguments) -> io::Result<Option<Command>> {
    // The system sends this also when `run` is killed and can do nothing any more.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // It sends nothing if `run` was gone before we asked.
    if getppid() != Pid::from_raw(arguments.parent) {
        return Ok(None);
    }
    // A group of its own makes it possible to end the rank with all that it starts; a session of its own
    // lets rank 0 read from the terminal, which would stop a mere background group.
    setsid()?;
    let Some((program, rest)) = arguments.command.split_first() else {
        return Ok(None);
    };
    let input = handshake::wait_for_send_off(io::stdin())?;
    let mut command = Command::new(program);
    command
        .args(rest)
        .stdin(input.map_or_else(Stdio::null, Stdio::from));
    Ok(Some(command))
}
