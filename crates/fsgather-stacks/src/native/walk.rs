//! The functions that a waiting thread is in, by the tables that exceptions are unwound with: [`walk`].
//!
//! Of the registers only two are known. The others are known where a function has kept what they were before it; where one is needed
//! that is not, the function's own code may tell instead how much of the stack it has taken, or else this ends.

use std::io;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, LittleEndian, Register, RegisterRule, UnwindContext,
    UnwindSection,
};

use super::{
    capture::Capture,
    depth::{self, Function},
    maps::{Mapping, Maps},
    module::Module,
};
use crate::memory::Memory;

/// How many functions are followed.
const MOST: usize = 256;

/// How long rules may be, in bytes: of one function, and what those of several have in common.
const LONGEST_RULES: u32 = 64 << 10;
const LONGEST_COMMON: u32 = 4 << 10;

/// How long a function may be of which the code is looked at, in bytes.
const LONGEST_CODE: u64 = 256 << 10;

/// What begins the rules of each: their length, and whose they are.
const HEAD: u64 = 8;

/// The longest instruction that calls, in bytes.
const LONGEST_CALL: usize = 7;

/// Registers as the tables number them: the frame pointer, the stack pointer, where the function was called from, and those that each gives back.
const FRAME: u16 = 6;
const STACK: u16 = 7;
const RETURN: u16 = 16;
const KEPT: [u16; 6] = [3, FRAME, 12, 13, 14, 15];

/// How far the frame pointer of all functions that keep one is from where the stack ended before the call.
const OLDER: i64 = 16;

/// A function that the thread is in.
#[derive(Debug)]
pub(super) struct Step<'maps> {
    /// Within the instruction that it has not come back from.
    pub(super) at: u64,
    pub(super) mapping: &'maps Mapping,
    pub(super) module: Module,
}

/// What is known of the registers.
#[derive(Debug, Default)]
struct Registers([Option<u64>; 17]);

impl Registers {
    fn get(&self, register: Register) -> Option<u64> {
        *self.0.get(usize::from(register.0))?
    }

    fn set(&mut self, register: u16, value: Option<u64>) {
        if let Some(place) = self.0.get_mut(usize::from(register)) {
            *place = value;
        }
    }
}

/// The functions, the innermost first, as far as they can be told for certain.
pub(super) fn walk<'maps>(
    memory: &impl Memory,
    maps: &'maps Maps,
    capture: &Capture,
) -> Vec<Step<'maps>> {
    let mut steps = Vec::new();
    let mut registers = Registers::default();
    registers.set(STACK, Some(capture.top));
    let mut context = UnwindContext::new();
    let mut at = capture.instruction;
    let mut is_kind = is_after_system_call as fn(&[u8]) -> bool;
    for _ in 0..MOST {
        let Ok(Some((mapping, module))) = code_before(memory, maps, at, is_kind) else {
            break;
        };
        let within = at - 1;
        let caller = caller_of(
            memory,
            &module,
            within,
            &mut context,
            &mut registers,
            capture,
        );
        steps.push(Step {
            at: within,
            mapping,
            module,
        });
        let Ok(Some(caller)) = caller else {
            break;
        };
        at = caller;
        is_kind = is_after_call;
    }
    steps
}

/// Where an address lies, if that is in code of a file, after an instruction of a kind.
fn code_before<'maps>(
    memory: &impl Memory,
    maps: &'maps Maps,
    at: u64,
    is_kind: fn(&[u8]) -> bool,
) -> io::Result<Option<(&'maps Mapping, Module)>> {
    let Some(before) = at.checked_sub(LONGEST_CALL as u64) else {
        return Ok(None);
    };
    let found = maps.at(before).filter(|mapping| {
        mapping.is_executable && mapping.is_of_file() && (before..mapping.end).contains(&(at - 1))
    });
    let Some(mapping) = found else {
        return Ok(None);
    };
    if !is_kind(&memory.bytes::<LONGEST_CALL>(before)?) {
        return Ok(None);
    }
    let module = Module::of(memory, maps, mapping, at - 1)?;
    Ok(Some((mapping, module)))
}

fn is_after_system_call(code: &[u8]) -> bool {
    code.ends_with(&[0x0f, 0x05])
}

/// Whether code ends with an instruction that calls: one with a distance, or one with a register or memory, whose length depends on
/// how that is named.
fn is_after_call(code: &[u8]) -> bool {
    let is_direct = code.len() >= 5 && code[code.len() - 5] == 0xe8;
    let is_indirect = |length: usize| {
        let Some([0xff, rest @ ..]) = code.len().checked_sub(length).map(|at| &code[at..]) else {
            return false;
        };
        let Some(&how) = rest.first() else {
            return false;
        };
        // The middle three bits are what is done: 2 is a call.
        if how >> 3 & 7 != 2 {
            return false;
        }
        let (kind, place) = (how >> 6, how & 7);
        let (scale, base) = if kind != 3 && place == 4 {
            (1, rest.get(1).map(|scale| scale & 7))
        } else {
            (0, Some(place))
        };
        let distance = match kind {
            0 if base == Some(5) => 4,
            1 => 1,
            2 => 4,
            _ => 0,
        };
        length == 2 + scale + distance
    };
    is_direct || (2..=LONGEST_CALL).any(is_indirect)
}

/// Where a function goes on in its caller, whose registers are left behind; nothing where that cannot be told.
fn caller_of(
    memory: &impl Memory,
    module: &Module,
    at: u64,
    context: &mut UnwindContext<usize>,
    registers: &mut Registers,
    capture: &Capture,
) -> io::Result<Option<u64>> {
    let rules = Rules::read(memory, module.rules_of(memory, at)?)?;
    let section = EhFrame::new(&rules.bytes, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(rules.base);
    let function = section
        .fde_from_offset(&bases, rules.own.into(), EhFrame::cie_from_offset)
        .map_err(io::Error::other)?;
    let is_usual = function.contains(at)
        && !function.is_signal_trampoline()
        && function.cie().return_address_register() == Register(RETURN);
    if !is_usual {
        return Ok(None);
    }
    // Where the tables tell how much of the stack has been taken.
    let mut told = Vec::new();
    let mut found = None;
    let mut rows = function
        .rows(&section, &bases, context)
        .map_err(io::Error::other)?;
    while let Some(row) = rows.next_row().map_err(io::Error::other)? {
        if let CfaRule::RegisterAndOffset { register, offset } = *row.cfa()
            && register == Register(STACK)
        {
            told.push((row.start_address(), row.end_address(), offset));
        }
        if row.contains(at) {
            found = Some(row.clone());
        }
    }
    let Some(row) = found else {
        return Ok(None);
    };
    let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else {
        return Ok(None);
    };
    let Some(top) = registers.get(Register(STACK)) else {
        return Ok(None);
    };
    if registers.get(register).is_none() && register == Register(FRAME) && offset == OLDER {
        let length = function.len();
        if length > LONGEST_CODE {
            return Ok(None);
        }
        let mut code = vec![0; usize::try_from(length).unwrap_or_default()];
        memory.read(function.initial_address(), &mut code)?;
        let of = Function {
            start: function.initial_address(),
            code: &code,
            told: &told,
        };
        let pointer = depth::at(&of, at + 1)
            .and_then(|depth| top.checked_add_signed(depth.checked_sub(OLDER)?));
        registers.set(FRAME, pointer);
    }
    // Where the stack ended before the call.
    let frame = registers
        .get(register)
        .and_then(|value| value.checked_add_signed(offset));
    let Some(frame) = frame.filter(|frame| frame.is_multiple_of(8) && *frame > top) else {
        return Ok(None);
    };
    let saved = |offset: i64| capture.word(frame.checked_add_signed(offset)?);
    let Some(RegisterRule::Offset(back)) = row.register(Register(RETURN)) else {
        return Ok(None);
    };
    let back = saved(back);
    let kept = KEPT.map(|register| match row.register(Register(register)) {
        None | Some(RegisterRule::SameValue) => registers.get(Register(register)),
        Some(RegisterRule::Offset(offset)) => saved(offset),
        Some(RegisterRule::ValOffset(offset)) => frame.checked_add_signed(offset),
        Some(RegisterRule::Register(other)) => registers.get(other),
        Some(_) => None,
    });
    *registers = Registers::default();
    registers.set(STACK, Some(frame));
    for (register, value) in KEPT.into_iter().zip(kept) {
        registers.set(register, value);
    }
    Ok(back)
}

/// The rules of one function, behind those that it has in common with others: a section with nothing else.
struct Rules {
    bytes: Vec<u8>,
    /// Where its own begin.
    own: usize,
    /// Where the section would lie in memory for its own to lie where they do.
    base: u64,
}

impl Rules {
    fn read(memory: &impl Memory, at: u64) -> io::Result<Self> {
        let own = Self::part(memory, at, LONGEST_RULES)?;
        let distance = own[4..].first_chunk().copied().map(u32::from_le_bytes);
        let distance = distance.filter(|distance| *distance != 0);
        let distance = distance.ok_or_else(|| io::Error::other("rules of no function"))?;
        let common = (at + 4).wrapping_sub(distance.into());
        let mut bytes = Self::part(memory, common, LONGEST_COMMON)?;
        let start = bytes.len();
        bytes.extend(own);
        // They are told by how far before this word they begin.
        let distance = u32::try_from(start + 4).unwrap_or(u32::MAX);
        bytes[start + 4..start + 8].copy_from_slice(&distance.to_le_bytes());
        Ok(Self {
            bytes,
            own: start,
            base: at.wrapping_sub(start as u64),
        })
    }

    fn part(memory: &impl Memory, at: u64, longest: u32) -> io::Result<Vec<u8>> {
        let length = u32::from_le_bytes(memory.bytes(at)?);
        if length > longest || u64::from(length) + 4 < HEAD || at.checked_add(4).is_none() {
            return Err(io::Error::other("rules are too long"));
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or_default() + 4];
        memory.read(at, &mut bytes)?;
        Ok(bytes)
    }
}

#[cfg(test)]
#[path = "walk_tests.rs"]
mod tests;
