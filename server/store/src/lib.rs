//! rdq in process: [`Store::open`] and everything that hangs on it, for a Rust application that wants
//! no server of its own. And, for the server, [`open`]: the one place that names every plugin.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), rdq_store::StoreError> {
//! use rdq_store::{EnqueueOpts, QueueOpts, Store};
//!
//! let store = Store::open("memory:").await?;
//! let emails = store.queue("emails", QueueOpts::default())?;
//!
//! // An event and a task that are both there, or neither.
//! store
//!     .with_tx(async |tx| {
//!         tx.publish_tx("orders", &"order 42 was paid").await?;
//!         tx.enqueue_tx("emails", EnqueueOpts::default(), &"receipt for order 42").await
//!     })
//!     .await?;
//!
//! let claim = emails.claim_one("worker-1").await?.expect("the task");
//! assert_eq!(claim.job().payload_as::<String>()?, "receipt for order 42");
//! assert!(claim.ack().await?, "the claim was good to its end");
//! # store.close().await;
//! # Ok(())
//! # }
//! ```

mod opening;

mod store; // start here: the application's handle
mod queue;
mod job;
mod stream;
mod signal;
mod lock;
mod outbox;
mod schedule;
mod record;
mod transaction;

mod payload;
mod error;

pub use error::{Result, StoreError};
pub use job::{Job, JobHandle, JobState};
pub use lock::Lock;
pub use opening::{OpenError, migrate, open, redact};
pub use outbox::{Message, Outbox};
pub use payload::{decode_payload, encode_payload};
pub use queue::{EnqueueOpts, Queue, QueueOpts};
pub use rdq_spi::Record;
pub use schedule::{Schedule, ScheduleOpts};
pub use signal::{RECONNECTED_CHANNEL, Wake, WakeReceiver};
pub use store::Store;
pub use stream::{EventReceiver, StreamEvent, StreamHandle};
pub use tokio_util::sync::CancellationToken as StopToken;
pub use transaction::TxHandle;
