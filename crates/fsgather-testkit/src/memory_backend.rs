//! A rendezvous without files: [`MemoryBackend`].

use std::sync::{Mutex, PoisonError};

use fsgather_core::{Error, RendezvousBackend, lock};

/// Records in memory, for ranks that are threads of one process.
#[derive(Debug, Default)]
pub struct MemoryBackend {
    records: Mutex<Vec<Vec<u8>>>,
    reports: Mutex<Vec<Vec<u8>>>,
}

impl MemoryBackend {
    /// A backend with records of an earlier world.
    #[must_use]
    pub fn with_leftovers(records: Vec<Vec<u8>>) -> Self {
        Self {
            records: Mutex::new(records),
            reports: Mutex::default(),
        }
    }
}

impl RendezvousBackend for MemoryBackend {
    fn post(&self, record: &[u8]) -> Result<(), Error> {
        lock(&self.records).push(record.to_vec());
        Ok(())
    }

    fn records(&self) -> Result<Vec<Vec<u8>>, Error> {
        Ok(lock(&self.records).clone())
    }

    fn report_unreachable(&self, report: &[u8]) -> Result<(), Error> {
        let mut reports = self.reports.lock();
        let reports = reports
            .as_mut()
            .map_err(|_| Error::config("a test panicked"))?;
        reports.push(report.to_vec());
        Ok(())
    }

    fn unreachable_reports(&self) -> Result<Vec<Vec<u8>>, Error> {
        let reports = self.reports.lock();
        Ok(reports.unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn place(&self) -> String {
        "memory".into()
    }
}
