//! The depth of a function in the stack, by its instructions: [`at`]. Pure.
//!
//! The tables tell where the frame of a function is by the frame pointer, if it keeps one, which of a waiting thread nobody tells. But
//! such a function moves the stack pointer by numbers that stand in its code, unless it makes room for arrays of any length. All ways
//! through it are followed; where one of them is not understood, two differ, or the tables say something else, nothing is told.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};

/// How many instructions are looked at.
const MOST: usize = 20_000;

/// Of a function that keeps a frame pointer: how much of the stack is older than what that points to.
const OLDER: i64 = 16;

/// A function, and what the tables say of it.
pub(super) struct Function<'a> {
    /// Where it begins.
    pub(super) start: u64,
    pub(super) code: &'a [u8],
    /// From where to where the tables tell how much has been taken, in ascending order.
    pub(super) told: &'a [(u64, u64, i64)],
}

impl Function<'_> {
    /// Its code from an address on, if that is in it.
    fn code_from(&self, at: u64) -> Option<&[u8]> {
        let from = usize::try_from(at.checked_sub(self.start)?).ok()?;
        let code = self.code.get(from..)?;
        (!code.is_empty()).then_some(code)
    }

    fn told_at(&self, at: u64) -> Option<i64> {
        let after = self.told.partition_point(|(start, ..)| *start <= at);
        let (_, end, depth) = self.told.get(after.checked_sub(1)?)?;
        (at < *end).then_some(*depth)
    }
}

/// How far the stack pointer is from where it was before the call of a function, in the instruction that ends at an address.
pub(super) fn at(function: &Function<'_>, end: u64) -> Option<i64> {
    let mut ways = Ways {
        function,
        end,
        factory: InstructionInfoFactory::new(),
        known: BTreeMap::new(),
        left: BTreeSet::new(),
        found: None,
    };
    ways.follow(function.start, function.told_at(function.start)?)?;
    // The rest is come to by jumps to addresses that are computed, or by exceptions, which come out of calls.
    let mut decoder = decoder(function.code, function.start)?;
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let at = instruction.ip();
        let is_padding = matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
        if !is_padding && !ways.known.contains_key(&at) {
            let mut left = ways.left.iter();
            let depth = *left.next()?;
            if left.next().is_some() {
                return None;
            }
            ways.follow(at, depth)?;
        }
    }
    ways.found
}

fn decoder(code: &[u8], at: u64) -> Option<Decoder<'_>> {
    Decoder::try_with_ip(64, code, at, DecoderOptions::NONE).ok()
}

/// The ways through a function.
struct Ways<'a> {
    function: &'a Function<'a>,
    /// Where the instruction ends that is asked for.
    end: u64,
    factory: InstructionInfoFactory,
    /// How deep it is where instructions begin.
    known: BTreeMap<u64, i64>,
    /// How deep it is where ways lead on that cannot be followed.
    left: BTreeSet<i64>,
    found: Option<i64>,
}

impl Ways<'_> {
    /// Follows all that begin at an address; nothing where that cannot be done.
    fn follow(&mut self, at: u64, depth: i64) -> Option<()> {
        let mut waiting = vec![(at, depth)];
        while let Some((at, depth)) = waiting.pop() {
            let Some(code) = self.function.code_from(at) else {
                continue;
            };
            if let Some(known) = self.known.get(&at) {
                if *known != depth {
                    return None;
                }
                continue;
            }
            let told = self.function.told_at(at);
            if self.known.len() >= MOST || told.is_some_and(|told| told != depth) {
                return None;
            }
            self.known.insert(at, depth);
            let instruction = decoder(code, at)?.decode();
            if instruction.is_invalid() {
                return None;
            }
            let next = instruction.next_ip();
            if next == self.end {
                self.found = Some(depth);
            }
            let after = depth_after(&instruction, depth, &mut self.factory)?;
            match instruction.flow_control() {
                FlowControl::Next => waiting.push((next, after)),
                FlowControl::Call | FlowControl::IndirectCall => {
                    self.left.insert(after);
                    waiting.push((next, after));
                }
                FlowControl::UnconditionalBranch => {
                    waiting.push((instruction.near_branch_target(), after));
                }
                FlowControl::ConditionalBranch => {
                    waiting.push((next, after));
                    waiting.push((instruction.near_branch_target(), after));
                }
                FlowControl::IndirectBranch => {
                    self.left.insert(after);
                }
                FlowControl::Return | FlowControl::Exception | FlowControl::Interrupt => {}
                FlowControl::XbeginXabortXend => return None,
            }
        }
        Some(())
    }
}

/// What an instruction makes of it; nothing where that depends on more than the instruction.
fn depth_after(
    instruction: &Instruction,
    depth: i64,
    factory: &mut InstructionInfoFactory,
) -> Option<i64> {
    let is_stack = |operand: u32| {
        instruction.op_kind(operand) == OpKind::Register
            && instruction.op_register(operand) == Register::RSP
    };
    let number = || match instruction.op_kind(1) {
        OpKind::Immediate8to64 => Some(instruction.immediate8to64()),
        OpKind::Immediate32to64 => Some(instruction.immediate32to64()),
        _ => None,
    };
    match instruction.mnemonic() {
        Mnemonic::Push => depth.checked_sub(instruction.stack_pointer_increment().into()),
        Mnemonic::Pop if !is_stack(0) => {
            depth.checked_sub(instruction.stack_pointer_increment().into())
        }
        // What is left is where the function was called from.
        Mnemonic::Leave => Some(OLDER - 8),
        // Who is called takes away what the call itself has put there.
        Mnemonic::Call | Mnemonic::Ret => Some(depth),
        Mnemonic::Sub if is_stack(0) => depth.checked_add(number()?),
        Mnemonic::Add if is_stack(0) => depth.checked_sub(number()?),
        Mnemonic::Mov if is_stack(0) && instruction.op_kind(1) == OpKind::Register => {
            (instruction.op_register(1) == Register::RBP).then_some(OLDER)
        }
        Mnemonic::Lea if is_stack(0) && instruction.memory_index() == Register::None => {
            let distance = instruction.memory_displacement64().cast_signed();
            match instruction.memory_base() {
                Register::RSP => depth.checked_sub(distance),
                Register::RBP => OLDER.checked_sub(distance),
                _ => None,
            }
        }
        _ => {
            let used = factory.info(instruction);
            let changes = used.used_registers().iter().any(|used| {
                used.register().full_register() == Register::RSP
                    && !matches!(
                        used.access(),
                        OpAccess::None | OpAccess::Read | OpAccess::CondRead
                    )
            });
            (!changes).then_some(depth)
        }
    }
}

#[cfg(test)]
#[path = "depth_tests.rs"]
mod tests;
