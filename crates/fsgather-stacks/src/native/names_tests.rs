use super::*;

fn name(symbols: &[&str]) -> Option<String> {
    let symbols: Vec<String> = symbols.iter().map(ToString::to_string).collect();
    Name::of(&symbols).map(|name| name.text)
}

fn root(symbol: &str) -> Option<String> {
    let name = Name::of(&[symbol.to_owned()]).unwrap();
    name.root().map(str::to_owned)
}

#[test]
fn names_are_told_in_the_language_of_the_program() {
    let told = |symbol: &str| name(&[symbol]).unwrap();
    let rust = "_ZN6my_job6loader4next17h0123456789abcdefE";
    assert_eq!(told(rust), "my_job::loader::next");
    assert_eq!(told(&format!("{rust}.llvm.123")), "my_job::loader::next");
    assert_eq!(told("_RNvNtC6my_job6loader4next"), "my_job::loader::next");
    assert_eq!(told("_ZN6loader4nextEi"), "loader::next");
    assert_eq!(told("load.constprop.0"), "load");
    assert_eq!(told("load@@LIB_2.1"), "load");
    assert_eq!(told("H5Fopen"), "H5Fopen");
    for odd in ["_Z", "_R", ".x", "@", "ä.b", "_ZN"] {
        let _ = name(&[odd]);
    }
    assert_eq!(name(&[""]), None);
    assert_eq!(name(&[]), None);
}

#[test]
fn of_several_names_one_is_told_if_they_say_the_same() {
    assert_eq!(name(&["PMPI_Recv", "MPI_Recv"]).unwrap(), "MPI_Recv");
    assert_eq!(name(&["__load", "load"]).unwrap(), "load");
    // Constructors are there twice.
    assert_eq!(name(&["_ZN1AC1Ev", "_ZN1AC2Ev"]).unwrap(), "A::A");
    assert_eq!(name(&["load", "save"]), None, "which of them was called?");
}

#[test]
fn the_crate_of_a_function_is_known_whatever_it_is_a_method_of() {
    let of = |symbol: &str| root(symbol).unwrap_or_default();
    assert_eq!(of("_ZN6my_job6loader4next17h0123456789abcdefE"), "my_job");
    let legacy =
        "_ZN55_$LT$my_job..Loader$u20$as$u20$core..iter..Iterator$GT$4next17h0123456789abcdefE";
    let told = Name::of(&[legacy.to_owned()]).unwrap();
    assert_eq!(told.text, "<my_job::Loader as core::iter::Iterator>::next");
    assert_eq!(told.root(), Some("my_job"));
    assert!(!told.is_of_language());
    let any = "_ZN50_$LT$T$u20$as$u20$core..convert..Into$LT$U$GT$$GT$4into17h0123456789abcdefE";
    assert!(Name::of(&[any.to_owned()]).unwrap().is_of_language());
    assert_eq!(of("_ZNSt6thread4joinEv"), "std");
    assert!(
        Name::of(&["_ZNSt6thread4joinEv".into()])
            .unwrap()
            .is_of_language()
    );
    assert_eq!(root("main"), None);
}

#[test]
fn long_names_end_somewhere() {
    let many = format!("_ZN5000{}4nextEv", "x".repeat(5000));
    assert!(name(&[&many]).is_some());
    // Each part doubles what is before it.
    let mut symbol = String::from("_Z1fI");
    for depth in 0..60 {
        let _ = write!(symbol, "1AIS{depth}_S{depth}_E");
    }
    symbol.push_str("Evv");
    let told = name(&[&symbol]).unwrap();
    assert!(told.len() <= symbol.len().max(LONGEST), "{}", told.len());
    let deep = format!("_Z1f{}i", "P".repeat(10_000));
    assert!(name(&[&deep]).unwrap().len() <= deep.len());
    let deep = format!("_RNvC1a{}", "I".repeat(100_000));
    let _ = name(&[&deep]);
}
