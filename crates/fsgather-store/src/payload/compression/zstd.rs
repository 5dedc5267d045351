//! Zstandard, as frames, by the library in C.

use ::zstd::{bulk, compress_bound};
use fsgather_core::Error;

use super::{Compressor, Decompressor};

pub(super) fn compressor(level: i32) -> Result<Box<dyn Compressor>, Error> {
    bulk::Compressor::new(level)
        .map(|compressor| Box::new(compressor) as Box<dyn Compressor>)
        .map_err(|error| Error::config(format!("zstd cannot be used: {error}")))
}

pub(super) fn decompressor() -> Box<dyn Decompressor> {
    Box::new(bulk::Decompressor::default())
}

impl Compressor for bulk::Compressor<'static> {
    fn compress(&mut self, raw: &[u8], room: &mut Vec<u8>) -> Result<usize, String> {
        let most = compress_bound(raw.len());
        if room.len() < most {
            room.resize(most, 0);
        }
        self.compress_to_buffer(raw, room.as_mut_slice())
            .map_err(|error| error.to_string())
    }
}

impl Decompressor for bulk::Decompressor<'static> {
    fn decompress(&mut self, stored: &[u8], raw: &mut [u8]) -> Result<usize, String> {
        self.decompress_to_buffer(stored, raw)
            .map_err(|error| error.to_string())
    }
}
