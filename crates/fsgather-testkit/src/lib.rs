//! Test support for fsgather: conformance suites and real rank processes
