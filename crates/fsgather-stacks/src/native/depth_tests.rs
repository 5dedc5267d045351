use super::*;

const START: u64 = 0x1000;

/// The depth in the instruction before the mark 0xf4, of code that begins with nothing but the return address on the stack.
fn depth(parts: &[&[u8]]) -> Option<i64> {
    depth_told(parts, &[(START, START + 1, 8)])
}

fn depth_told(parts: &[&[u8]], told: &[(u64, u64, i64)]) -> Option<i64> {
    let mut code = parts.concat();
    let mark = code.iter().position(|byte| *byte == 0xf4).unwrap();
    code.remove(mark);
    let function = Function {
        start: START,
        code: &code,
        told,
    };
    at(&function, START + mark as u64)
}

const PUSH_FRAME: &[u8] = &[0x55];
const FRAME: &[u8] = &[0x48, 0x89, 0xe5];
const PUSH: &[u8] = &[0x41, 0x57];
const POP: &[u8] = &[0x41, 0x5f];
const TAKE_32: &[u8] = &[0x48, 0x83, 0xec, 0x20];
const TAKE_ANY: &[u8] = &[0x48, 0x29, 0xc4];
const ALIGN: &[u8] = &[0x48, 0x83, 0xe4, 0xe0];
const CALL: &[u8] = &[0xe8, 0, 0, 0, 0];
const SYSTEM_CALL: &[u8] = &[0x0f, 0x05];
const MARK: &[u8] = &[0xf4];
const LEAVE: &[u8] = &[0xc9];
const RETURN: &[u8] = &[0xc3];

#[test]
fn what_stands_in_the_code_is_known() {
    assert_eq!(depth(&[SYSTEM_CALL, MARK, RETURN]), Some(8));
    let usual = [
        PUSH_FRAME, FRAME, PUSH, TAKE_32, CALL, MARK, POP, LEAVE, RETURN,
    ];
    assert_eq!(depth(&usual), Some(8 + 8 + 8 + 32));
    // A branch over a call that has something pushed for it.
    let pushes = [
        PUSH_FRAME,
        FRAME,
        &[0x74, 9],
        PUSH,
        CALL,
        MARK,
        POP,
        LEAVE,
        RETURN,
    ];
    assert_eq!(depth(&pushes), Some(24));
    let back = [
        PUSH_FRAME,
        FRAME,
        TAKE_32,
        &[0x48, 0x8d, 0x65, 0xf8],
        CALL,
        MARK,
        RETURN,
    ];
    assert_eq!(depth(&back), Some(24), "to 8 below the frame pointer");
}

#[test]
fn what_depends_on_more_than_the_code_is_not() {
    for part in [TAKE_ANY, ALIGN, &[0x5c], &[0x48, 0x89, 0xc4], &[0x06]] {
        let code = [PUSH_FRAME, FRAME, part, CALL, MARK, LEAVE, RETURN];
        assert_eq!(depth(&code), None, "{part:x?}");
    }
    // Not even where that comes afterwards, or on another way: the call may be come to again.
    let later = [PUSH_FRAME, FRAME, CALL, MARK, TAKE_ANY, LEAVE, RETURN];
    assert_eq!(depth(&later), None);
    let differ = [
        PUSH_FRAME,
        FRAME,
        &[0x74, 2],
        PUSH,
        CALL,
        MARK,
        LEAVE,
        RETURN,
    ];
    assert_eq!(depth(&differ), None);
}

#[test]
fn what_is_come_to_by_computed_jumps_is_as_deep_as_these() {
    const JUMP: &[u8] = &[0xff, 0xe0];
    let to_it = [PUSH_FRAME, FRAME, TAKE_32, JUMP, CALL, MARK, LEAVE, RETURN];
    assert_eq!(depth(&to_it), Some(48));
    let taken_there = [PUSH_FRAME, FRAME, JUMP, TAKE_32, CALL, MARK, LEAVE, RETURN];
    assert_eq!(depth(&taken_there), Some(48));
    // Back to what is known, and deeper.
    let deeper = [
        PUSH_FRAME,
        FRAME,
        &[0x74, 2],
        JUMP,
        CALL,
        MARK,
        LEAVE,
        RETURN,
        TAKE_32,
        &[0xeb, 0xf3],
    ];
    assert_eq!(depth(&deeper), None);
    let back = [
        PUSH_FRAME,
        FRAME,
        &[0x74, 2],
        JUMP,
        CALL,
        MARK,
        LEAVE,
        RETURN,
        &[0xeb, 0xf7],
    ];
    assert_eq!(depth(&back), Some(16));
    // By an exception, of calls that differ.
    let differ = [
        PUSH_FRAME, FRAME, CALL, PUSH, CALL, POP, LEAVE, RETURN, CALL, MARK, RETURN,
    ];
    assert_eq!(depth(&differ), None);
    let no_way = [PUSH_FRAME, RETURN, CALL, MARK];
    assert_eq!(depth(&no_way), None);
}

#[test]
fn what_the_tables_say_otherwise_is_not_known() {
    let code = [PUSH_FRAME, FRAME, CALL, MARK, LEAVE, RETURN];
    let begin = (START, START + 1, 8);
    assert_eq!(
        depth_told(&code, &[begin, (START + 1, START + 4, 16)]),
        Some(16)
    );
    assert_eq!(
        depth_told(&code, &[begin, (START + 1, START + 4, 24)]),
        None
    );
    assert_eq!(depth_told(&code, &[]), None, "a part of another function");
}

#[test]
fn any_bytes_are_looked_at_without_harm() {
    let mut state = 1_u64;
    for _ in 0..2000 {
        let bytes: Vec<u8> = (0..64)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 56) as u8
            })
            .filter(|byte| *byte != 0xf4)
            .collect();
        let _ = depth(&[&bytes, MARK]);
    }
}
