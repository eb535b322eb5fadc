//! What those who wait are told, and by whom: this handle's own calls at once, other servers by a
//! change stream, and a look at the tasks whenever anything may have been missed, at least once a
//! second. Hints claim nothing and prove nothing.

use crate::{
    candidates::front,
    checks::Topology,
    coordination::Announcer,
    database::Db,
    listener::listen,
    notifier::{Notifier, WORTH_TELLING},
};
use futures::future::join_all;
use rdq_spi::{DueHints, HintHub, QueueName};
use std::{sync::Arc, time::Duration};
use tokio::{sync::Notify, task::JoinHandle};

/// What other servers know and do not tell, such as the end of a lease, is found this often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Where nobody can be told, it is all there is.
const POLL_EVERY: Duration = Duration::from_millis(200);
/// How soon the tasks are looked at again for what comes due: it is there a moment late rather than
/// asked for without end.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Those who wait, and what hints them.
#[derive(Debug)]
pub(crate) struct Waiting {
    hub: Arc<HintHub>,
    look: Arc<Notify>,
    /// Where there is a stream to tell others by.
    notifier: Option<Notifier>,
    announcer: Announcer,
    tasks: Vec<JoinHandle<()>>,
}

impl Waiting {
    /// Starts what hints.
    pub(crate) fn start(db: &Db, topology: Topology, announcer: &Announcer) -> Self {
        let (hub, look) = (Arc::new(HintHub::default()), Arc::new(Notify::new()));
        let (mut notifier, mut tasks, mut every) = (None, Vec::new(), POLL_EVERY);
        if topology == Topology::ReplicaSet {
            every = LOOK_EVERY;
            let told = Notifier::new(db.clone());
            let (hub, look) = (Arc::clone(&hub), Arc::clone(&look));
            let listen = listen(db.clone(), hub, look, told.clone(), announcer.clone());
            tasks.push(tokio::spawn(listen));
            tasks.push(tokio::spawn(told.clone().run()));
            notifier = Some(told);
        }
        tasks.push(tokio::spawn(look_around(
            db.clone(),
            Arc::clone(&hub),
            Arc::clone(&look),
            every,
        )));
        Self { hub, look, notifier, announcer: announcer.clone(), tasks }
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
        self.hub.hint(queue, due_in);
        if let Some(notifier) = self.notifier.as_ref().filter(|_| due_in < WORTH_TELLING) {
            notifier.tell(queue, due_in);
        }
    }

    /// A lease ends then: who waits here is told. Other servers look for themselves.
    pub(crate) fn hint_of_lease(&self, queue: &QueueName, due_in: Duration) {
        self.hub.hint(queue, due_in);
    }

    /// Ends every stream, and what hints.
    pub(crate) fn close(&self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.hub.close();
        self.announcer.close();
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.close();
    }
}

async fn look_around(db: Db, hub: Arc<HintHub>, look: Arc<Notify>, every: Duration) {
    let mut wait = every;
    loop {
        // It ends by time or by a call; both mean the same.
        let _ = tokio::time::timeout(wait, look.notified()).await;
        wait = every;
        let queues = hub.watched();
        for part in queues.chunks(50) {
            let fronts = join_all(part.iter().map(|queue| front(&db, queue))).await;
            for (queue, front) in part.iter().zip(fronts) {
                match front {
                    Ok(front) => {
                        if front.is_due() {
                            hub.hint(queue, Duration::ZERO);
                        }
                        if let Some(waits) = front.waits() {
                            hub.hint(queue, waits);
                            wait = wait.min(waits.max(LOOK_AGAIN));
                        }
                    }
                    Err(failure) => {
                        tracing::debug!(?failure, "a queue that somebody waits for was not read");
                    }
                }
            }
        }
    }
}
