//! The first words between `run` and a process that is about to become a rank.
//!
//! They speak over a socket that is the new process's standard input until it becomes the rank's
//! command. The process waits until it is sent off; with that it may be given a file to have as standard
//! input from then on. It answers with an error number when the command cannot be executed; when it can, the socket
//! closes by itself.

use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Lets the process become the rank, with this file as its standard input if there is one.
pub(super) fn send_off(channel: &UnixStream, stdin: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let fds = stdin.map(|file| [file]);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if let Some(fds) = &fds {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    // A file travels only along with at least one byte, which says whether there is one.
    sendmsg(
        channel,
        &[IoSlice::new(&[u8::from(stdin.is_some())])],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Waits for [`send_off`]; what it gives as standard input.
pub(super) fn wait_for_send_off(channel: impl AsFd) -> io::Result<Option<OwnedFd>> {
    let mut has_file = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(
        channel,
        &mut [IoSliceMut::new(&mut has_file)],
        &mut control,
        flags,
    )?;
    if received.bytes == 1 && has_file == [0] {
        return Ok(None);
    }
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut files) = message
            && let Some(file) = files.next()
        {
            return Ok(Some(file));
        }
    }
    Err(io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "no file arrived",
    ))
}

/// Tells that the command cannot be executed.
pub(super) fn report(channel: OwnedFd, os_code: i32) -> io::Result<()> {
    UnixStream::from(channel).write_all(&os_code.to_ne_bytes())
}

/// Waits until the command has begun, or returns why it cannot.
pub(super) fn wait_for_start(mut channel: UnixStream) -> io::Result<()> {
    let mut answer = Vec::new();
    match channel.read_to_end(&mut answer) {
        // It has ended before it could begin, by a signal that this process has, too: how, its end says.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
        read => read?,
    };
    match <[u8; 4]>::try_from(answer.as_slice()) {
        Ok(code) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(code))),
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_arrives_as_the_same_file() {
        let (here, there) = UnixStream::pair().unwrap();
        let (mut writer, reader) = UnixStream::pair().unwrap();
        send_off(&here, Some(reader.as_fd())).unwrap();
        drop(reader);
        let received = wait_for_send_off(&there).unwrap().unwrap();
        writer.write_all(b"through").unwrap();
        drop(writer);
        let mut text = String::new();
        UnixStream::from(received)
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "through");
    }

    #[test]
    fn one_may_be_sent_off_without_a_file_but_waits_for_it() {
        let (here, there) = UnixStream::pair().unwrap();
        send_off(&here, None).unwrap();
        assert!(wait_for_send_off(&there).unwrap().is_none());
        drop(here);
        assert!(wait_for_send_off(&there).is_err());
    }

    #[test]
    fn a_start_that_fails_is_told_with_its_error_number() {
        let (here, there) = UnixStream::pair().unwrap();
        report(there.into(), 13).unwrap();
        let error = wait_for_start(here).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_channel_that_closes_means_that_the_command_runs() {
        let (here, there) = UnixStream::pair().unwrap();
        drop(there);
        assert!(wait_for_start(here).is_ok());
    }
}
