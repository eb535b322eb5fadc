//! What a plugin tells the kit: how to get an empty store, and what the store is. No case is here.

use rdq_spi::{Capabilities, Faculties, Storage};
use std::{future::Future, sync::Arc};

/// One empty store (a temporary directory, a schema, a key prefix) that no other case sees. Dropping
/// it cleans up.
pub trait Fixture: Send + Sync + Sized + 'static {
    /// What the plugin claims. A case checks the claim.
    const CAPABILITIES: Capabilities;

    /// Which faculties the plugin has beside tasks. A case checks the claim.
    const FACULTIES: Faculties = Faculties::NONE;

    /// False where the store is not the kit's own, as on a server that others use: cases that need
    /// an empty store, or one that they may restart, are ignored then.
    const ISOLATED: bool = true;

    /// True where an engine stands between the kit and the storage, as on a server: cases about what
    /// the engine decides or hides (spent attempts, strict leases, retention) are ignored then.
    const THROUGH_ENGINE: bool = false;

    /// An empty store. Panics if there cannot be one; the case fails then.
    fn create() -> impl Future<Output = Self> + Send;

    /// A new handle on the same data, as another server would open it.
    fn open(&self) -> impl Future<Output = Arc<dyn Storage>> + Send;

    /// Stops whatever holds the data and starts it again. The case has closed its handles before,
    /// and opens new ones after. Nothing to do where closing the handles is all there is.
    fn restart(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}
