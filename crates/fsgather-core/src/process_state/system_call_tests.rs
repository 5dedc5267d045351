use super::*;

#[test]
fn calls_are_read_as_the_kernel_shows_them() {
    assert!(SystemCall::parse("running").is_none());
    assert!(SystemCall::parse("-1 0x7ffd 0x7f").is_none());
    let call = SystemCall::parse("0 0x3 0x7f00 0x1 0x0 0x0 0x0 0x7ffd 0x7f\n").unwrap();
    assert_eq!(call.arguments, [3, 0x7f00, 1, 0, 0, 0]);
    assert_eq!(address("0100007F:1F90").as_deref(), Some("127.0.0.1:8080"));
    assert_eq!(address("0100007F"), None);
    assert_eq!(address("01:1F90"), None);
}

#[test]
fn sockets_are_told_by_their_other_end_or_by_where_they_listen() {
    let line = |own: &str, remote: &str, state: &str| {
        let rest = "00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0";
        ends(
            "tcp",
            "4711",
            &format!("   0: {own} {remote} {state} {rest}"),
        )
    };
    let (all, none) = ("00000000:1F90", "00000000:0000");
    assert_eq!(
        line(all, none, "0A").as_deref(),
        Some("tcp listening on 0.0.0.0:8080")
    );
    let there = line("0100007F:C350", "0100007F:1F90", "01");
    assert_eq!(there.as_deref(), Some("tcp 127.0.0.1:8080"));
    assert_eq!(
        line(all, none, "07"),
        None,
        "it is bound, and not connected"
    );
    assert_eq!(ends("tcp", "1", "0: 0 0 0A 0 0 0 0 0 4711"), None);
    assert_eq!(ends("tcp", "1", ""), None);
}
