//! Calls, each in a task of its own: whoever gives up waiting does not leave it half done.

use crate::errors::{Access, Failure, Step};
use rdq_spi::{Result, StorageError};
use std::{
    future::Future,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// How long a call may take in all, should the server not answer.
const CALL_MAX: Duration = Duration::from_secs(35);

/// Runs calls until the handle is closed. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Calls(Arc<AtomicBool>);

impl Calls {
    /// Refuses what comes from now on; says whether it was open.
    pub(crate) fn close(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.0.load(Ordering::Acquire) { Err(StorageError::Closed) } else { Ok(()) }
    }

    /// Runs a call to its end.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        operation: &'static str,
        access: Access,
        call: impl Future<Output = Step<T>> + Send + 'static,
    ) -> Result<T> {
        self.check_open()?;
        let ran = tokio::spawn(tokio::time::timeout(CALL_MAX, call)).await;
        match ran {
            Ok(Ok(step)) => step.map_err(|failure| failure.answer(operation)),
            Ok(Err(_)) => {
                let source = io::Error::from(io::ErrorKind::TimedOut).into();
                let failure = match access {
                    Access::Read => Failure::Unavailable(source),
                    Access::Write => Failure::Unknown(source),
                };
                Err(failure.answer(operation))
            }
            Err(error) => {
                Err(StorageError::Internal { operation, source: io::Error::other(error).into() })
            }
        }
    }
}
