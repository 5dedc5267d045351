//! One announced payload file, which is opened again on errors: [`Source`].
//!
//! Data that differs from the locator may be from a stale cache: then the client is made to ask the server, and the file is
//! opened again by its path, until the visibility budget is used up. Only then is it an error.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use fsgather_core::{Error, Progress, StorageCause, bytes_text, duration_text, room_for};
use rustix::{
    io::Errno,
    process::{Resource, getrlimit},
};

use crate::{
    directory::gather_dir::{GatherDir, ask_again, is_not_seen},
    os::{file, filesystem::Class, listing, retry_budget::RetryBudget},
    payload::{
        bytes::Payload,
        chunk_table::{Chunk, ChunkTable},
        collect_policy::CollectPolicy,
        format::{
            CHUNK_LEN, ChunkEntry, Damage, FOOTER_LEN, Footer, HEADER_LEN, Header, VERSION,
            chunk_len, same,
        },
        locator::Locator,
        map::{self, Mapping},
        parallel,
    },
};

/// Number of errors of the medium or the network after which reading fails.
const MAX_FLAKY_ERRORS: u32 = 3;

/// Number of bytes of an unverified file that are read between two progress reports; they may have to come from a disk.
const POPULATED: usize = 16 << 20;

/// An announced payload, whose file is opened again on errors.
pub(crate) struct Source {
    directory: GatherDir,
    pub(crate) locator: Locator,
    file_len: u64,
    pub(crate) path: PathBuf,
    visibility: Duration,
    needs_checksums: bool,
    open: Option<Open>,
    /// Memory for a compressed chunk.
    stored: Vec<u8>,
}

/// An open payload file whose header, table and footer agree with the locator.
#[derive(Debug)]
pub(crate) struct Open {
    file: File,
    table: ChunkTable,
    /// True if the table has checksums.
    has_checksums: bool,
}

/// The reason why one attempt has failed.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The name is not visible.
    NotSeen(io::Error),
    /// The visible data is not the announced data.
    Damaged(Damage),
    /// Reading failed, perhaps only temporarily.
    Flaky(io::Error),
    /// Another attempt cannot help.
    Fatal(Error),
}

impl From<Damage> for Trouble {
    fn from(damage: Damage) -> Self {
        Self::Damaged(damage)
    }
}

impl Source {
    pub(crate) fn new(
        directory: &GatherDir,
        locator: &Locator,
        policy: &CollectPolicy,
    ) -> Result<Self, Error> {
        let file_len = locator.check()?;
        let is_local = directory.file_system().class() == Class::Local;
        Ok(Self {
            path: directory.payloads().join(locator.name.to_string()),
            directory: directory.clone(),
            locator: locator.clone(),
            file_len,
            visibility: if policy.single_host && is_local {
                Duration::ZERO
            } else {
                policy.visibility
            },
            needs_checksums: policy.needs_checksums,
            open: None,
            stored: Vec::new(),
        })
    }

    /// Runs `work` on the opened file. On an error, opens the file again and repeats, until that succeeds or the budget is used
    /// up.
    pub(crate) fn with_retries<T>(
        &mut self,
        progress: &mut Progress<'_>,
        mut work: impl FnMut(&Self, &Open, &mut Progress<'_>) -> Result<T, Trouble>,
    ) -> Result<T, Error> {
        let mut retries: Option<RetryBudget> = None;
        let mut flaky_left = MAX_FLAKY_ERRORS;
        let mut tries = 0;
        loop {
            tries += 1;
            let attempt = match self.open.take() {
                Some(open) => Ok(open),
                None => self.attempt_open(),
            };
            let trouble = match attempt.and_then(|open| Ok((work(self, &open, progress)?, open))) {
                Ok((done, open)) => {
                    self.open = Some(open);
                    return Ok(done);
                }
                Err(trouble) => trouble,
            };
            let retries = retries.get_or_insert_with(|| RetryBudget::new(self.visibility));
            if let Trouble::Flaky(_) = trouble {
                flaky_left = flaky_left.saturating_sub(1);
            }
            let is_hopeless = matches!(trouble, Trouble::Fatal(_)) || flaky_left == 0;
            if is_hopeless || !retries.pause(progress)? {
                return Err(self.give_up(trouble, tries, retries.spent()));
            }
            tracing::debug!(path = %self.path.display(), ?trouble, tries, "looking again");
            ask_again(&self.directory.payloads());
            listing::refresh(&self.path);
        }
    }

    /// Opens the file and checks everything except the payload.
    fn attempt_open(&self) -> Result<Open, Trouble> {
        let file = file::open(&self.path).map_err(|error| self.classify("open", error))?;
        let opened = file::examine(&file).map_err(|error| self.classify("examine", error))?;
        if !opened.is_regular || opened.uid != self.directory.own().0 {
            let found = if opened.is_regular {
                format!("of uid {}", opened.uid)
            } else {
                "a directory, pipe or device".to_owned()
            };
            return Err(Trouble::Fatal(self.not_ours(&found)));
        }
        same("length", &self.file_len, &opened.len)?;
        let mut header = [0; HEADER_LEN];
        self.read(&file, &mut header, 0)?;
        let found = Header::from_bytes(&header)?;
        self.check_header(&found)?;
        let mut footer = [0; FOOTER_LEN];
        self.read(&file, &mut footer, self.file_len - FOOTER_LEN as u64)?;
        let footer = Footer::from_bytes(&footer)?;
        same("payload length", &self.locator.raw_len, &footer.raw_len)?;
        same(
            "stored length",
            &self.locator.stored_len,
            &footer.stored_len,
        )?;
        same(
            "chunk count",
            &self.locator.chunk_count,
            &footer.chunk_count,
        )?;
        // The file has the announced length, so this allocation is no larger than the file.
        let table_len = self.file_len - self.locator.stored_len - (HEADER_LEN + FOOTER_LEN) as u64;
        let mut table = self.allocate(table_len)?;
        table.resize(usize::try_from(table_len).unwrap_or(0), 0);
        let table_at = HEADER_LEN as u64 + self.locator.stored_len;
        self.read(&file, &mut table, table_at)?;
        for found in [footer.digest, footer.digest_over(&header, &table)] {
            if found != self.locator.digest {
                return Err(Trouble::Damaged(Damage::Digest {
                    expected: self.locator.digest,
                    found,
                }));
            }
        }
        if self.needs_checksums && !found.has_checksums {
            return Err(Trouble::Fatal(self.not_verifiable()));
        }
        Ok(Open {
            file,
            table: ChunkTable::from_bytes(&table, &self.locator)?,
            has_checksums: found.has_checksums,
        })
    }

    fn not_verifiable(&self) -> Error {
        Error::config(format!(
            "rank {} has written {} without checksums, and this rank has to verify what it reads; set FSGATHER_VERIFY \
             to the same on all ranks",
            self.locator.name.rank(),
            self.path.display(),
        ))
    }

    fn not_ours(&self, found: &str) -> Error {
        let expected = self.directory.own().0;
        let problem = format!("it is not a file of uid {expected}, but {found}");
        Error::storage("open", &self.path, StorageCause::described(problem))
    }

    fn check_header(&self, found: &Header) -> Result<(), Damage> {
        let facts = self.directory.facts();
        same("communicator", &facts.communicator, &found.communicator)?;
        same("world size", &facts.world_size, &found.world_size)?;
        same("name", &self.locator.name, &found.name)?;
        same("encoding", &self.locator.encoding.0, &found.encoding.0)?;
        same(
            "compression",
            &self.locator.compression.0,
            &found.compression.0,
        )
    }

    /// Returns the table's entry for a chunk.
    fn chunk(&self, open: &Open, index: u64) -> Result<Chunk, Damage> {
        open.table.get(index).ok_or_else(|| Damage::Differs {
            field: "chunk count",
            expected: format!("more than {index}"),
            found: self.locator.chunk_count.to_string(),
        })
    }

    /// Verifies the stored bytes of one chunk, if it has a checksum.
    fn verify(&self, open: &Open, chunk: Chunk, index: u64, stored: &[u8]) -> Result<(), Damage> {
        if !open.has_checksums {
            return Ok(());
        }
        let found = ChunkEntry::of(stored, false).checksum;
        if chunk.checksum == found {
            return Ok(());
        }
        Err(Damage::Chunk {
            index,
            count: self.locator.chunk_count,
            offset: index * CHUNK_LEN as u64,
            expected: chunk.checksum,
            found,
        })
    }

    /// Reads one chunk into `raw`: verifies it, and only then decompresses it.
    fn unpack(
        &self,
        open: &Open,
        index: u64,
        stored: &mut Vec<u8>,
        raw: &mut [u8],
    ) -> Result<(), Trouble> {
        let chunk = self.chunk(open, index)?;
        if !chunk.is_compressed {
            self.read(&open.file, raw, chunk.offset)?;
            return Ok(self.verify(open, chunk, index, raw)?);
        }
        stored.resize(chunk.stored_len, 0);
        self.read(&open.file, stored, chunk.offset)?;
        self.verify(open, chunk, index, stored)?;
        let found = match self.locator.compression.decompress(stored, raw) {
            Ok(len) if len == raw.len() => return Ok(()),
            Ok(len) => format!("it holds {len}"),
            Err(error) => error,
        };
        Err(Trouble::Damaged(Damage::Decompression {
            index,
            count: self.locator.chunk_count,
            offset: index * CHUNK_LEN as u64,
            expected: raw.len() as u64,
            found,
        }))
    }

    /// Reads the chunk `index`, which fills `raw` exactly, and verifies it.
    pub(crate) fn read_chunk(
        &mut self,
        index: u64,
        raw: &mut [u8],
        progress: &mut Progress<'_>,
    ) -> Result<(), Error> {
        let mut stored = std::mem::take(&mut self.stored);
        let read = self.with_retries(progress, |source, open, _| {
            source.unpack(open, index, &mut stored, raw)
        });
        self.stored = stored;
        read?;
        progress(raw.len() as u64)
    }

    /// Returns the number of raw bytes of a chunk.
    pub(crate) fn raw_len(&self, index: u64) -> usize {
        chunk_len(self.locator.raw_len, index)
    }

    pub(crate) fn read_into_memory(
        mut self,
        progress: &mut Progress<'_>,
    ) -> Result<Payload, Error> {
        let len = self.locator.raw_len;
        if self.locator.chunk_count <= 1 {
            let mut bytes = match self.allocate(len) {
                Ok(bytes) => bytes,
                Err(trouble) => return Err(self.give_up(trouble, 1, Duration::ZERO)),
            };
            if self.locator.chunk_count == 1 {
                bytes.resize(self.raw_len(0), 0);
                self.read_chunk(0, &mut bytes, progress)?;
            } else {
                self.with_retries(progress, |_, _, _| Ok(()))?;
            }
            return Ok(bytes.into());
        }
        let mut room = map::room(len).map_err(|_| self.no_memory(len))?;
        for (index, chunk) in (0..).zip(room[..].chunks_mut(CHUNK_LEN)) {
            self.read_chunk(index, chunk, progress)?;
        }
        Ok(Payload::in_room(room))
    }

    /// Copies the payload into a nameless local file and maps that. Returns `None` if temporary files cannot be mapped here.
    pub(crate) fn spill(
        &mut self,
        place: &Path,
        progress: &mut Progress<'_>,
    ) -> Result<Option<Payload>, Error> {
        let len = self.locator.raw_len;
        let failed = |error: io::Error| {
            Error::storage(
                format!("copy a payload of {} into", bytes_text(len)),
                place,
                &error,
            )
        };
        let copy = tempfile::tempfile_in(place).map_err(failed)?;
        if Mapping::of(&copy, 0).map_err(failed)?.is_none() {
            tracing::debug!(path = %place.display(), "temporary files cannot be mapped; reading into memory");
            return Ok(None);
        }
        let mut bytes = Vec::new();
        for index in 0..self.locator.chunk_count {
            bytes.resize(self.raw_len(index), 0);
            self.read_chunk(index, &mut bytes, progress)?;
            file::write_all(&copy, &mut [io::IoSlice::new(&bytes)]).map_err(failed)?;
        }
        let mapping = Mapping::of(&copy, len).map_err(failed)?;
        Ok(mapping.map(Payload::copied))
    }

    /// Returns memory for `len` bytes, or an error about the lack of it.
    fn allocate(&self, len: u64) -> Result<Vec<u8>, Trouble> {
        room_for(len).ok_or_else(|| Trouble::Fatal(self.no_memory(len)))
    }

    fn no_memory(&self, len: u64) -> Error {
        let text = bytes_text(len);
        Error::storage(
            "read",
            &self.path,
            StorageCause::described(format!("there is not enough memory for {text}")),
        )
    }

    fn read(&self, file: &File, buffer: &mut [u8], offset: u64) -> Result<(), Trouble> {
        file::read_exact_at(file, buffer, offset).map_err(|error| {
            if error.kind() == io::ErrorKind::UnexpectedEof {
                // `fstat` returned a larger size: size and data are not of the same time.
                Trouble::Damaged(Damage::Differs {
                    field: "length",
                    expected: self.file_len.to_string(),
                    found: format!("less than {}", offset + buffer.len() as u64),
                })
            } else {
                self.classify("read", error)
            }
        })
    }

    fn classify(&self, operation: &str, error: io::Error) -> Trouble {
        if is_not_seen(&error) {
            return match self.directory.check_place() {
                Ok(()) => Trouble::NotSeen(error),
                Err(replaced) => Trouble::Fatal(replaced),
            };
        }
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::IO | Errno::TIMEDOUT | Errno::AGAIN) => Trouble::Flaky(error),
            Some(Errno::LOOP | Errno::NXIO) => Trouble::Fatal(self.not_ours("a link or socket")),
            _ => Trouble::Fatal(Error::storage(operation, &self.path, &error)),
        }
    }

    /// Returns the error after the last attempt.
    fn give_up(&self, trouble: Trouble, tries: u32, spent: Duration) -> Error {
        let rank = self.locator.name.rank();
        let mount = self.directory.file_system().name();
        match trouble {
            Trouble::Fatal(error) => error,
            Trouble::Flaky(error) => Error::storage(
                "read",
                &self.path,
                StorageCause {
                    os_code: error.raw_os_error(),
                    message: format!(
                        "{error}; the payload of rank {rank} was tried {tries} times (file system {mount})"
                    ),
                },
            ),
            Trouble::NotSeen(error) if self.visibility.is_zero() => Error::storage(
                "see",
                &self.path,
                StorageCause {
                    os_code: error.raw_os_error(),
                    message: format!(
                        "rank {rank} has announced this payload, but it is not there (file system {mount}); \
                         something has removed it, or this host sees another directory there"
                    ),
                },
            ),
            Trouble::NotSeen(error) => Error::storage(
                "see",
                &self.path,
                StorageCause {
                    os_code: error.raw_os_error(),
                    message: format!(
                        "rank {rank} has announced this payload, but it is not visible here after {}; is \
                         lookupcache or another negative cache on (file system {mount})",
                        duration_text(spent)
                    ),
                },
            ),
            Trouble::Damaged(Damage::Version { found }) => Error::incompatible(
                format!("the payload file {} of rank {rank}", self.path.display()),
                VERSION.to_string(),
                found.to_string(),
            ),
            Trouble::Damaged(damage) => Error::corrupt(
                self.path.clone(),
                format!(
                    "{damage} (payload of rank {rank}, file system {mount}, read {})",
                    match tries {
                        1 => "once".into(),
                        _ => format!("{tries} times over {}", duration_text(spent)),
                    }
                ),
                None,
                None,
            ),
        }
    }
}

/// Maps the file of a contiguous payload and verifies all of it, if it has checksums. Returns `None` if it cannot be mapped.
pub(crate) fn map_verified(
    source: &Source,
    open: &Open,
    progress: &mut Progress<'_>,
) -> Result<Option<Payload>, Trouble> {
    if !open.has_checksums {
        return map_unverified(source, open, progress);
    }
    map_whole(source, open, |mapping, len| {
        // All chunks except the last have the same length. A root that reads is often the only busy process on its host.
        let chunks = mapping[HEADER_LEN..HEADER_LEN + len].chunks(CHUNK_LEN);
        let starts = (HEADER_LEN..).step_by(CHUNK_LEN);
        parallel::share(
            parallel::size(),
            (0..)
                .zip(starts.zip(chunks))
                .collect::<Vec<_>>()
                .into_iter(),
            |(index, (start, stored))| {
                mapping.populate(start, stored.len());
                source.verify(open, source.chunk(open, index)?, index, stored)?;
                Ok(stored.len() as u64)
            },
            |len| progress(len).map_err(Trouble::Fatal),
        )
    })
}

/// Maps the file of a contiguous payload whose bytes have not left this host. Returns `None` if it cannot be mapped.
pub(crate) fn map_unverified(
    source: &Source,
    open: &Open,
    progress: &mut Progress<'_>,
) -> Result<Option<Payload>, Trouble> {
    map_whole(source, open, |mapping, len| {
        // On one thread: several take longer, because they block each other in the kernel.
        for start in (0..len).step_by(POPULATED) {
            let piece = POPULATED.min(len - start);
            mapping.populate(HEADER_LEN + start, piece);
            progress(piece as u64).map_err(Trouble::Fatal)?;
        }
        Ok(())
    })
}

/// Maps a file, and passes the mapping and the length of the payload to `read`.
fn map_whole(
    source: &Source,
    open: &Open,
    read: impl FnOnce(&Mapping, usize) -> Result<(), Trouble>,
) -> Result<Option<Payload>, Trouble> {
    let mapped = Mapping::of(&open.file, source.file_len);
    let mapping = mapped.map_err(|error| {
        let is_memory = error.raw_os_error() == Some(Errno::NOMEM.raw_os_error());
        let mut trouble = source.classify("map", error);
        if let Trouble::Fatal(Error::Storage { cause, .. }) = &mut trouble
            && is_memory
            && let Some(limit) = getrlimit(Resource::As).current
        {
            let limit = bytes_text(limit);
            cause.message = format!(
                "{}; the address space of this process is limited to {limit} (`ulimit -v`); raise the limit, or lower \
                 FSGATHER_SHARED_MEMORY",
                cause.message
            );
        }
        trouble
    })?;
    let Some((mapping, len)) = mapping.zip(usize::try_from(source.locator.raw_len).ok()) else {
        return Ok(None);
    };
    read(&mapping, len)?;
    Ok(Some(Payload::in_file(mapping, len)))
}
