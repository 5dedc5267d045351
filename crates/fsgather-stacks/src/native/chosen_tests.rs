use super::*;

fn function(kind: Kind, path: &str, text: &str, is_rust: bool) -> Function {
    let name = (!text.is_empty()).then(|| Name {
        text: text.into(),
        is_rust,
    });
    Function {
        kind,
        path: path.into(),
        name,
    }
}

fn rust(text: &str) -> Function {
    function(Kind::Program, "/home/me/job", text, true)
}

fn c(text: &str) -> Function {
    function(Kind::Program, "/home/me/job", text, false)
}

fn library(path: &str, text: &str) -> Function {
    function(Kind::Library, path, text, false)
}

/// The functions, and which of them are the program's own, the innermost first.
fn told(functions: Vec<Function>) -> Vec<(String, bool)> {
    let told = choose(functions).into_iter().rev();
    told.map(|frame| {
        (
            format!("{}{frame}", if frame.is_own { "own " } else { "" }),
            frame.is_own,
        )
    })
    .collect()
}

fn texts(functions: Vec<Function>) -> Vec<String> {
    told(functions).into_iter().map(|(text, _)| text).collect()
}

#[test]
fn of_rust_the_crate_that_has_called_all_others_is_the_program() {
    let functions = vec![
        rust("std::sys::pal::unix::futex::futex_wait"),
        rust("h5::file::File::open"),
        rust("my_job::loader::next"),
        rust("my_job::main"),
        rust("std::rt::lang_start"),
        c("main"),
        c("_start"),
    ];
    let expected = [
        "h5::file::File::open",
        "own my_job::loader::next",
        "own my_job::main",
    ];
    assert_eq!(texts(functions), expected);
}

#[test]
fn of_this_library_only_the_function_is_told_that_was_called() {
    let wait = || rust("fsgather_control::thread_call::ThreadCall::wait");
    let barrier = || rust("fsgather::communicator::Communicator::barrier");
    let functions = vec![rust("tokio::park"), wait(), barrier(), rust("my_job::main")];
    let expected = [
        "fsgather::communicator::Communicator::barrier",
        "own my_job::main",
    ];
    assert_eq!(texts(functions), expected);
    let functions = vec![rust("my_job::write"), barrier(), rust("my_job::main")];
    assert_eq!(texts(functions).len(), 3, "it calls the program");
    let functions = vec![wait(), barrier()];
    assert_eq!(texts(functions).len(), 2, "it is the program");
}

#[test]
fn of_other_languages_the_program_is_what_lies_in_its_file() {
    let mpi = "/usr/lib/x86_64-linux-gnu/libmpi.so.40";
    let functions = vec![
        library(mpi, ""),
        library(mpi, "MPI_Recv"),
        library("/home/me/lib/libsolver.so", "solver::step"),
        c("main"),
    ];
    let expected = [
        "MPI_Recv of libmpi.so.40",
        "own solver::step of libsolver.so",
        "own main",
    ];
    assert_eq!(texts(functions), expected);
    assert_eq!(texts(vec![library(mpi, ""), c("")]), ["libmpi.so.40"]);
    assert_eq!(texts(vec![c(""), c("")]), [""; 0]);
}

#[test]
fn files_are_known_by_their_names() {
    let of = |path: &str| Kind::of(path, "/home/me/job");
    assert_eq!(of("/home/me/job"), Kind::Program);
    for system in [
        "/usr/lib/x86_64-linux-gnu/libc.so.6",
        "/lib64/ld-linux-x86-64.so.2",
        "/lib/libc-2.31.so",
        "/v/site-packages/fsgather/_fsgather.abi3.so",
        "/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so",
    ] {
        assert_eq!(of(system), Kind::System, "{system}");
    }
    for interpreter in [
        "/usr/bin/python3.11",
        "/o/python",
        "/o/lib/libpython3.13.so.1.0",
    ] {
        assert_eq!(of(interpreter), Kind::Interpreter, "{interpreter}");
    }
    for library in [
        "/o/libcudart.so.12",
        "/o/pythonic.so",
        "/o/torch/lib/libtorch_cpu.so",
        "/o/librte_eal.so",
    ] {
        assert_eq!(of(library), Kind::Library, "{library}");
    }
}
