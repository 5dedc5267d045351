//! How much of the stack a function has taken, by its instructions: [`at`]. Pure.
//!
//! The tables tell where the frame of a function is by the frame pointer, if it keeps one, which of a waiting thread nobody tells. But
//! such a function moves the stack pointer by numbers that stand in its code, unless it makes room for arrays of any length. All ways
//! through it are followed; where one of them is not understood, two differ, or the tables say something else, nothing is told.

use std::collections::BTreeMap;

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
    /// From where to where the tables tell how much has been taken.
    pub(super) told: &'a [(u64, u64, i64)],
}

impl Function<'_> {
    fn told_at(&self, at: u64) -> Option<i64> {
        let told = self.told.iter();
        let mut told = told.filter(|(start, end, _)| (*start..*end).contains(&at));
        told.next().map(|(_, _, depth)| *depth)
    }
}

/// How far the stack pointer is from where it was before the call of a function, in the instruction that ends at an address.
pub(super) fn at(function: &Function<'_>, end: u64) -> Option<i64> {
    let mut factory = InstructionInfoFactory::new();
    let mut known: BTreeMap<u64, i64> = BTreeMap::new();
    let mut waiting = vec![(function.start, function.told_at(function.start)?)];
    let mut found = None;
    while let Some((at, depth)) = waiting.pop() {
        let Some(code) = at
            .checked_sub(function.start)
            .and_then(|from| function.code.get(usize::try_from(from).ok()?..))
            .filter(|code| !code.is_empty())
        else {
            continue;
        };
        if let Some(known) = known.get(&at) {
            if *known != depth {
                return None;
            }
            continue;
        }
        if known.len() >= MOST || function.told_at(at).is_some_and(|told| told != depth) {
            return None;
        }
        known.insert(at, depth);
        let mut decoder = Decoder::try_with_ip(64, code, at, DecoderOptions::NONE).ok()?;
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return None;
        }
        let next = instruction.next_ip();
        if next == end {
            found = Some(depth);
        }
        let after = depth_after(&instruction, depth, &mut factory)?;
        match instruction.flow_control() {
            FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall => {
                waiting.push((next, after));
            }
            FlowControl::UnconditionalBranch => {
                waiting.push((instruction.near_branch_target(), after));
            }
            FlowControl::ConditionalBranch => {
                waiting.push((next, after));
                waiting.push((instruction.near_branch_target(), after));
            }
            FlowControl::Return
            | FlowControl::IndirectBranch
            | FlowControl::Exception
            | FlowControl::Interrupt => {}
            FlowControl::XbeginXabortXend => return None,
        }
    }
    found
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
        Mnemonic::Push => Some(depth - i64::from(instruction.stack_pointer_increment())),
        Mnemonic::Pop if !is_stack(0) => {
            Some(depth - i64::from(instruction.stack_pointer_increment()))
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
