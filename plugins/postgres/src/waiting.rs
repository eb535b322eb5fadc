//! What those who wait are told, and by whom: this handle's own calls at once, other servers by
//! NOTIFY, and a look at the tables whenever anything may have been missed, at least once a second.
//! Hints claim nothing and prove nothing.

use crate::{
    coordination::Announcer,
    errors::Sql,
    handoff::Handoffs,
    listener,
    notifier::{Notifier, WORTH_TELLING},
    pool::Pool,
    rows::remaining,
};
use futures::FutureExt as _;
use rdq_spi::{DueHints, HintHub, QueueName};
use sqlx::{PgConnection, Row as _};
use std::{sync::Arc, time::Duration};
use tokio::{sync::Notify, task::JoinHandle};

/// What other servers know and do not tell, such as the end of a lease, is found this often.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Those who wait, and what hints them.
#[derive(Debug)]
pub(crate) struct Waiting {
    hub: Arc<HintHub>,
    look: Arc<Notify>,
    notifier: Notifier,
    handoffs: Arc<Handoffs>,
    tasks: Vec<JoinHandle<()>>,
}

impl Waiting {
    /// Starts what hints.
    pub(crate) fn start(
        pool: &Arc<Pool>,
        listener: listener::Listener,
        announcer: Announcer,
        handoffs: Arc<Handoffs>,
    ) -> Self {
        let (hub, look) = (Arc::new(HintHub::default()), Arc::new(Notify::new()));
        let notifier = Notifier::new(Arc::clone(pool), listener.channel().to_owned());
        let listen = listener.run(Arc::clone(&hub), Arc::clone(&look), notifier.clone(), announcer);
        let tasks = vec![
            tokio::spawn(look_around(Arc::clone(pool), Arc::clone(&hub), Arc::clone(&look))),
            tokio::spawn(listen),
            tokio::spawn(notifier.clone().run()),
        ];
        Self { hub, look, notifier, handoffs, tasks }
    }

    /// A stream of hints; the first comes at once where something is due.
    pub(crate) fn subscribe(&self, queues: &[QueueName]) -> DueHints {
        // Subscribed before the look, so that nothing falls in between.
        let hints = self.hub.subscribe(queues);
        self.look.notify_one();
        hints
    }

    /// Something of the queue is due then: those who wait here are told at once, and other servers
    /// if it is soon.
    pub(crate) fn hint(&self, queue: &QueueName, due_in: Duration) {
        self.handoffs.stir(queue, due_in);
        self.hub.hint(queue, due_in);
        if due_in < WORTH_TELLING {
            self.notifier.tell(queue, due_in);
        }
    }

    /// A lease ends then: who waits here is told. Other servers look for themselves.
    pub(crate) fn hint_of_lease(&self, queue: &QueueName, due_in: Duration) {
        self.handoffs.note_lease(queue, due_in);
        self.hub.hint(queue, due_in);
    }

    /// Ends every stream, and what hints.
    pub(crate) fn close(&self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.hub.close();
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.close();
    }
}

async fn look_around(pool: Arc<Pool>, hub: Arc<HintHub>, look: Arc<Notify>) {
    let mut wait = LOOK_EVERY;
    loop {
        // It ends by time or by a call; both mean the same.
        let _ = tokio::time::timeout(wait, look.notified()).await;
        wait = LOOK_EVERY;
        let watched = hub.watched();
        if watched.is_empty() {
            continue;
        }
        let queues: Arc<[QueueName]> = watched.into();
        let asked = Arc::clone(&queues);
        let found = pool.read("wait_due", move |db| {
            let asked = Arc::clone(&asked);
            async move { next_due(db, &asked).await }.boxed()
        });
        match found.await {
            Ok(found) => {
                for (queue, next) in queues.iter().zip(found) {
                    if next.is_ready {
                        hub.hint(queue, Duration::ZERO);
                    }
                    if let Some(waiting_for) = next.waiting_for {
                        hub.hint(queue, waiting_for);
                        wait = wait.min(waiting_for.max(LOOK_AGAIN));
                    }
                }
            }
            Err(error) => tracing::debug!(%error, "queues that somebody waits for were not read"),
        }
    }
}

/// How soon the tables are looked at again for what comes due: it is there a moment late rather than
/// asked for without end.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

struct NextDue {
    is_ready: bool,
    waiting_for: Option<Duration>,
}

async fn next_due(db: &mut PgConnection, queues: &[QueueName]) -> Sql<Vec<NextDue>> {
    let names: Vec<_> = queues.iter().map(QueueName::as_str).collect();
    let rows = sqlx::query(include_str!("queries/next_due.sql")).bind(names).fetch_all(db).await?;
    rows.iter()
        .map(|row| {
            let waiting_for: Option<i64> = row.try_get("waiting_for")?;
            let is_ready = row.try_get("is_ready")?;
            Ok(NextDue { is_ready, waiting_for: waiting_for.map(remaining) })
        })
        .collect()
}
