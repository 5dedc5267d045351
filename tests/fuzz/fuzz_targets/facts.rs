#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fsgather_doctor::fuzzing::facts(bytes));
