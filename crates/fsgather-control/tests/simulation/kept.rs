//! Scripts that have found something: [`scripts`].

use crate::script::{Fault, Harm, Line, Parting, Script, Twist, Verb, What};

/// The same as words, as a failing test prints them.
pub(crate) const WORDS: [(&str, &str); 11] = [
    (
        "rank 0 is stopped after it has warned of a wait",
        "0304060000000009000400000100056a000102000a012600044313853700c91f15190568004e004a002048010000",
    ),
    (
        "rank 0 hears late of a time-out, and has moved something since",
        "040506002e000002020001000600550000040000010d0801530100000a0100030000",
    ),
    (
        "rank 0 is interrupted while another stays for calls of which it does not hear any more",
        "050606002500000c1a01000c000002340101000900020000000200020903020700329bda203f362a6234175e02871f4a082febb46aca08d20c\
         0708468d851f240227151909242808000000000000000000000000",
    ),
    (
        "rank 0 is stopped after it has said that it is there",
        "02030600bf000004000001000801000100000a011300043903970c00",
    ),
    (
        "a rank leaves before its call is decided, and stays",
        "030309000ccc00050400010203070000",
    ),
    (
        "the end is waited for in vain while a rank that has left stays",
        "0302020000000c74000302020700020601020a0009000000000000000000",
    ),
    (
        "rank 0 is stopped when it has been told that a rank has ended",
        "0302020001000200000000020b02011200040312450000bc0000000097070100000000000000",
    ),
    (
        "the only rank of a group has left it when rank 0 hears of its end",
        "0205060001000002000000040200010005820007010000020800048d01060104010400000000",
    ),
    (
        "a failure that nobody is left to hear",
        "0203040000000600370000040200010001010308000b0129012292111600520000",
    ),
    (
        "a group decides a call while rank 0 goes",
        "0404060066000002360201000400000100042200010000010e03000a4c3adc73970190ac5cdc",
    ),
    (
        "a rank that has waited for rank 0 in vain stays for others",
        "02040200000002000000020000000b000e00010003001400012400044c22001400445c000567000000312bbebe41658b00500700\
         002f00008900000000000000",
    ),
];

/// All of them, each with what it has found.
#[expect(clippy::too_many_lines, reason = "it is a table")]
pub(crate) fn scripts() -> Vec<(&'static str, Script)> {
    let on = |verb| Line { verb, on: Some(0) };
    let twist = |rank, line, what| Twist { rank, line, what };
    let start = |leaves, rounds| Verb::Start { leaves, rounds };
    let split = |bits| {
        let by = Parting::Bits(bits);
        Verb::Split {
            by,
            backwards: false,
        }
    };
    let stopped_in_close = Script {
        ranks: 4,
        program: vec![
            split(15).into(),
            Verb::Abandon(36).into(),
            split(3).into(),
            on(start(0, 0)),
            Line {
                verb: Verb::Barrier,
                on: Some(1),
            },
            Verb::Abandon(14).into(),
        ],
        twists: vec![twist(0, 1, What::Stray)],
        faults: vec![
            Fault {
                event: 60,
                rank: 2,
                harm: Harm::Stop(1),
            },
            Fault {
                event: 72,
                rank: 0,
                harm: Harm::Stop(18),
            },
        ],
        order: vec![
            194, 20, 7, 14, 23, 27, 175, 95, 106, 180, 203, 33, 97, 153, 11, 246, 130, 232, 132,
            22, 20, 13, 104, 31, 11, 29, 221, 2, 223, 100, 81, 31, 1, 117, 187, 44, 85, 108, 80,
            30, 156, 103, 49,
        ],
    };
    let differs_while_closing = Script {
        ranks: 2,
        program: vec![
            split(23).into(),
            Verb::AllGather {
                leaves: 54,
                rounds: 2,
            }
            .into(),
            Verb::Settle.into(),
            on(start(0, 0)),
        ],
        twists: vec![twist(0, 4, What::Close), twist(1, 3, What::Differ)],
        faults: vec![Fault {
            event: 30,
            rank: 1,
            harm: Harm::Stop(58),
        }],
        order: vec![
            0, 9, 6, 0, 50, 43, 91, 0, 108, 35, 56, 109, 0, 62, 0, 0, 0, 0, 158, 0, 1, 215, 11, 71,
            0, 76, 233, 16, 37, 202, 5, 0, 0, 0, 0, 161, 0, 0, 0, 0, 71, 26, 9, 0, 0, 31, 0,
        ],
    };
    let dies_as_close_times_out = Script {
        ranks: 4,
        program: vec![
            split(161).into(),
            on(Verb::Barrier),
            on(Verb::AllGather {
                leaves: 0,
                rounds: 1,
            }),
        ],
        twists: vec![twist(2, 1, What::Stray)],
        faults: vec![Fault {
            event: 49,
            rank: 2,
            harm: Harm::HiddenCrash,
        }],
        order: vec![
            96, 124, 188, 90, 198, 157, 17, 76, 76, 54, 0, 136, 127, 27, 2,
        ],
    };
    let strays_from_an_abandoned_call = Script {
        ranks: 5,
        program: vec![
            start(0, 1).into(),
            Verb::Abandon(152).into(),
            start(0, 0).into(),
            Verb::Barrier.into(),
        ],
        twists: vec![twist(4, 2, What::Stray)],
        faults: Vec::new(),
        order: vec![80, 8, 51, 23, 77],
    };
    vec![
        ("rank 0 is stopped while all close", stopped_in_close),
        (
            "a rank makes another call while others close",
            differs_while_closing,
        ),
        (
            "a rank dies just before the closing times out",
            dies_as_close_times_out,
        ),
        (
            "a rank strays from a call that others have abandoned",
            strays_from_an_abandoned_call,
        ),
    ]
}
