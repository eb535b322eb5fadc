//! Pages: no skips, no duplicates, nothing newer, whatever comes and goes; and bad positions.

use crate::{Fixture, given::*};
use rdq_spi::{
    DlqListParams, ListParams, Moment, Page, Position, QueueName, Result, Selection, Storage,
    StorageError, TaskId, TaskStatus,
};
use std::collections::HashSet;

/// The two lists, so that a story is told of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listing {
    Tasks,
    DeadLetters,
}

const BOTH: [Listing; 2] = [Listing::Tasks, Listing::DeadLetters];

impl Listing {
    async fn page(
        self,
        store: &dyn Storage,
        queue: &QueueName,
        limit: u32,
        position: Option<Position>,
    ) -> Result<Page> {
        match self {
            Self::Tasks => store.list(ListParams { position, ..list_params(queue, limit) }).await,
            Self::DeadLetters => {
                store.dlq_list(DlqListParams { position, ..dlq_params(queue, limit) }).await
            }
        }
    }

    /// Reads the whole list; between pages, something happens.
    async fn walk(
        self,
        store: &dyn Storage,
        queue: &QueueName,
        limit: u32,
        mut between: impl AsyncFnMut(&[TaskId]),
    ) -> Vec<TaskId> {
        let (mut seen, mut position) = (Vec::new(), None);
        loop {
            let page = self.page(store, queue, limit, position).await.expect("a page");
            assert!(page.tasks.len() <= usize::try_from(limit).expect("small"), "Bounded");
            seen.extend(task_ids(&page.tasks));
            match page.next {
                Some(next) => position = Some(next),
                None => return seen,
            }
            between(&seen).await;
        }
    }
}

pub(crate) async fn entries_of_one_millisecond_are_told_apart<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let mut dead = die_together(&*store, &queue, 300).await;
    dead.reverse();
    let expected: HashSet<_> = dead.iter().cloned().collect();

    for listing in BOTH {
        for limit in [7, 1_000] {
            let seen = listing.walk(&*store, &queue, limit, async |_| {}).await;
            assert_eq!(seen.len(), 300, "{listing:?} by {limit}");
            assert_eq!(
                seen.into_iter().collect::<HashSet<_>>(),
                expected,
                "{listing:?} by {limit}"
            );
        }
    }
    let by_one = Listing::DeadLetters.walk(&*store, &queue, 1, async |_| {}).await;
    let by_many = Listing::DeadLetters.walk(&*store, &queue, 50, async |_| {}).await;
    assert_eq!(by_one, by_many, "one order, whatever the page");
}

pub(crate) async fn arrivals_and_departures_disturb_nobody_else<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    for limit in [1, 7] {
        let queue = some_queue();
        let dead = die_together(&*store, &queue, 40).await;
        let (mut left, mut newer) = (HashSet::new(), HashSet::new());

        let seen = Listing::DeadLetters
            .walk(&*store, &queue, limit, async |seen| {
                newer.extend(die_together(&*other, &queue, 2).await);
                let unseen = dead.iter().filter(|id| !seen.contains(id) && !left.contains(*id));
                let unseen: Vec<_> = unseen.cloned().collect();
                // One goes for good, one comes back as a newer death.
                let gone: Vec<_> = unseen.iter().step_by(7).take(2).cloned().collect();
                left.extend(gone.iter().cloned());
                if let Some(purged) = gone.first() {
                    let ids = Selection::Ids(vec![purged.clone()]);
                    purge(&*other, purge_params(&queue, ids)).await;
                }
                if let Some(redriven) = gone.get(1) {
                    let ids = Selection::Ids(vec![redriven.clone()]);
                    redrive(&*other, redrive_params(&queue, ids)).await;
                    die_all(&*other, &queue).await;
                }
            })
            .await;

        let once: HashSet<_> = seen.iter().cloned().collect();
        assert_eq!(once.len(), seen.len(), "no duplicates, by {limit}");
        assert!(once.is_disjoint(&newer), "nothing newer, by {limit}");
        assert!(once.is_disjoint(&left), "nothing that had left, by {limit}");
        let stayed = dead.iter().filter(|id| !left.contains(*id));
        assert!(stayed.clone().all(|id| once.contains(id)), "no skips, by {limit}");
    }
}

pub(crate) async fn new_tasks_never_enter_a_list<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let queue = some_queue();
    let admitted = enqueue_some(&*store, &queue, 30).await;

    let seen = Listing::Tasks
        .walk(&*store, &queue, 4, async |_| {
            enqueue_some(&*other, &queue, 3).await;
            claim(&*other, &queue, 1, LONG_LEASE).await;
        })
        .await;

    let newest_first: Vec<_> = admitted.into_iter().rev().collect();
    assert_eq!(seen, newest_first);
}

pub(crate) async fn a_list_is_of_one_status_if_asked<F: Fixture>(fixture: F) {
    use TaskStatus as S;
    let store = fixture.open().await;
    let queue = some_queue();
    let dead = dead_letter(&*store, Draft::of(&queue), "t").await;
    let done = enqueue_one(&*store, &queue).await;
    complete(&*store, &claim_one(&*store, &queue, LONG_LEASE).await).await;
    let held = enqueue_one(&*store, &queue).await;
    claim_one(&*store, &queue, LONG_LEASE).await;
    let cancelled = enqueue_one(&*store, &queue).await;
    cancel(&*store, &cancelled).await.expect("cancel");
    let pending = enqueue_one(&*store, &queue).await;
    let all = vec![pending.clone(), cancelled.clone(), held.clone(), done.clone(), dead.clone()];

    for (status, expected) in [
        (Some(S::Pending), vec![pending]),
        (Some(S::InFlight), vec![held]),
        (Some(S::Succeeded), vec![done]),
        (Some(S::Dead), vec![dead]),
        (Some(S::Cancelled), vec![cancelled]),
        (None, all),
    ] {
        let page =
            store.list(ListParams { status, ..list_params(&queue, 10) }).await.expect("list");
        assert_eq!(task_ids(&page.tasks), expected, "{status:?}");
    }
}

pub(crate) async fn a_list_shows_histories_on_request<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let id = dead_letter(&*store, Draft::of(&queue), "t").await;
    for include_attempts in [false, true] {
        let params = ListParams { include_attempts, ..list_params(&queue, 10) };
        let task = store.list(params).await.expect("list").tasks.remove(0);
        let whole = get(&*store, &id).await;
        assert_eq!(task.attempts, if include_attempts { whole.attempts } else { Vec::new() });
    }
}

pub(crate) async fn an_empty_list_is_one_empty_page<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    for listing in BOTH {
        let page = listing.page(&*store, &some_queue(), 10, None).await.expect("a page");
        assert_eq!(page, Page::default(), "{listing:?}");
    }
}

pub(crate) async fn positions_that_nobody_minted_are_refused<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let (queue, elsewhere) = (some_queue(), some_queue());
    for queue in [&queue, &elsewhere] {
        die_together(&*store, queue, 5).await;
        enqueue(&*store, Draft::of(queue).due(Moment::In(LONG_LEASE))).await;
    }
    for listing in BOTH {
        let minted = async |queue, listing: Listing| {
            listing.page(&*store, queue, 2, None).await.expect("a page").next.expect("more")
        };
        let huge = vec![0; 100_000];
        for garbage in [&b"\0"[..], b"garbage", &[0xff; 16], &[b'A'; 64], &huge] {
            let position = Some(Position(garbage.to_vec().into()));
            let answer = listing.page(&*store, &queue, 2, position).await;
            assert_refused(&answer, &format!("{listing:?}: {} bytes of garbage", garbage.len()));
        }
        let other = BOTH[usize::from(listing == Listing::Tasks)];
        let position = minted(&queue, other).await;
        let answer = listing.page(&*store, &queue, 2, Some(position)).await;
        assert_refused(&answer, &format!("{listing:?}: of the {other:?}"));

        // Bent or foreign ones may look good to a storage; they never show what is not asked for.
        let good = minted(&queue, listing).await.0.to_vec();
        let mut bent = vec![minted(&elsewhere, listing).await.0.to_vec()];
        bent.extend((0..good.len()).map(|len| good[..len].to_vec()).filter(|cut| !cut.is_empty()));
        bent.extend((0..good.len() * 8).step_by(5).map(|bit| {
            let mut flipped = good.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            flipped
        }));
        for position in bent {
            match listing.page(&*store, &queue, 2, Some(Position(position.into()))).await {
                Ok(page) => assert!(page.tasks.iter().all(|task| task.queue == queue)),
                answer => assert_refused(&answer, "bent"),
            }
        }
    }
}

fn assert_refused(answer: &Result<Page>, what: &str) {
    assert!(matches!(answer, Err(StorageError::InvalidPosition)), "{what}: {answer:?}");
}
