//! LZ4, as blocks, in safe Rust.

use lz4_flex::block::{
    CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size,
};

use super::{Compressor, Decompressor};

pub(super) fn compressor() -> Box<dyn Compressor> {
    Box::new(Lz4Compressor(CompressTable::large()))
}

pub(super) fn decompressor() -> Box<dyn Decompressor> {
    Box::new(Lz4Decompressor)
}

struct Lz4Compressor(CompressTable);

impl Compressor for Lz4Compressor {
    fn compress(&mut self, raw: &[u8], room: &mut Vec<u8>) -> Result<usize, String> {
        let most = get_maximum_output_size(raw.len());
        if room.len() < most {
            room.resize(most, 0);
        }
        compress_into_with_table(raw, room, &mut self.0).map_err(|error| error.to_string())
    }
}

struct Lz4Decompressor;

impl Decompressor for Lz4Decompressor {
    fn decompress(&mut self, stored: &[u8], raw: &mut [u8]) -> Result<usize, String> {
        decompress_into(stored, raw).map_err(|error| error.to_string())
    }
}
