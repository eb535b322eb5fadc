//! How a server came to be there, whichever database it is. It starts none.

use crate::{StartError, container::Container, local::LocalServer};

#[derive(Debug)]
pub(crate) enum Way {
    Given,
    Local(LocalServer),
    Container { _running: Container },
}

impl Way {
    /// The process, if it is one that this test started.
    pub(crate) fn local(&mut self) -> Option<&mut LocalServer> {
        match self {
            Self::Local(server) => Some(server),
            Self::Given | Self::Container { .. } => None,
        }
    }
}

/// Waits for what starts a program, on a thread that may block.
pub(crate) async fn started(
    start: impl FnOnce() -> Result<LocalServer, StartError> + Send + 'static,
) -> Result<LocalServer, StartError> {
    let started = tokio::task::spawn_blocking(start).await;
    started.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}
