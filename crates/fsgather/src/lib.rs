//! Gather results of many processes through a shared directory: correct under failure, fast, without set-up
