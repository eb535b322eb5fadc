//! Claims: how they are taken. Keeping and ending them is elsewhere.

use crate::{
    errors::{Sql, corrupt},
    handoff::Handoffs,
    heads::Place,
    history,
    rows::{self, Columns, millis},
    token::StoreId,
};
use bytes::Bytes;
use rdq_spi::{
    Claim, ClaimParams, ClaimQueue, Overrides, QueueName, Task, TaskId, TaskStatus, Timestamp,
};
use sqlx::PgConnection;
use std::{collections::HashMap, mem, sync::Arc, time::Duration};

/// Claims of the same queues, which one statement serves.
#[derive(Debug)]
pub(crate) struct Group {
    /// In the order of their turns.
    pub(crate) queues: Vec<ClaimQueue>,
    pub(crate) claims: Vec<ClaimParams>,
    /// Where each stands in its call.
    pub(crate) indexes: Vec<usize>,
}

/// What claims of a group took.
#[derive(Debug, Default)]
pub(crate) struct Served {
    /// Of each, in their order.
    pub(crate) claims: Vec<Vec<Claim>>,
    /// How long until there may be more.
    pub(crate) next_due_in: Option<Duration>,
    /// Of each queue that gave something: where the last of it stood, and how much it was.
    pub(crate) given: HashMap<QueueName, (Place, u64)>,
}

/// What claims took, on its way to whoever called. Nobody may be there any more: dropped without
/// having been received, it is given back.
#[derive(Debug)]
pub(crate) struct Delivery {
    served: Served,
    handoffs: Arc<Handoffs>,
}

impl Delivery {
    /// It goes on its way.
    pub(crate) fn of(served: Served, handoffs: Arc<Handoffs>) -> Self {
        Self { served, handoffs }
    }

    /// It was received.
    pub(crate) fn received(mut self) -> Served {
        mem::take(&mut self.served)
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.handoffs.give_back(mem::take(&mut self.served.claims).into_iter().flatten());
    }
}

/// Puts claims of the same queues together.
pub(crate) fn grouped(claims: Vec<ClaimParams>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (index, claim) in claims.into_iter().enumerate() {
        match groups.iter_mut().find(|group| group.queues == claim.queues) {
            Some(group) => {
                group.claims.push(claim);
                group.indexes.push(index);
            }
            None => groups.push(Group {
                queues: claim.queues.clone(),
                claims: vec![claim],
                indexes: vec![index],
            }),
        }
    }
    groups
}

/// Serves claims, in one transaction. Each of their queues has a head, behind which tasks are looked
/// for.
pub(crate) async fn claim_due(
    db: &mut PgConnection,
    store_id: StoreId,
    group: &Group,
    heads: &[Place],
) -> Sql<Served> {
    let Group { queues, claims, .. } = group;
    let rows = sqlx::query(include_str!("queries/claim_due.sql"))
        .bind(queues.iter().map(|queue| queue.queue.as_str()).collect::<Vec<_>>())
        .bind(queues.iter().map(|queue| millis(queue.lease)).collect::<Vec<_>>())
        .bind(queues.iter().map(|queue| millis(queue.lease_max)).collect::<Vec<_>>())
        .bind(heads.iter().map(|head| head.rank).collect::<Vec<_>>())
        .bind(heads.iter().map(|head| head.at).collect::<Vec<_>>())
        .bind(heads.iter().map(|head| head.seq).collect::<Vec<_>>())
        .bind(
            claims.iter().map(|it| i32::try_from(it.limit).unwrap_or(i32::MAX)).collect::<Vec<_>>(),
        )
        .bind(
            claims
                .iter()
                .map(|it| i64::try_from(it.bytes_max).unwrap_or(i64::MAX))
                .collect::<Vec<_>>(),
        )
        .bind(claims.iter().map(|claim| claim.lease.map(millis)).collect::<Vec<_>>())
        .bind(claims.iter().map(|claim| claim.worker_id.as_str()).collect::<Vec<_>>())
        .fetch_all(db)
        .await?;
    let mut served = Served {
        claims: claims.iter().map(|_| Vec::new()).collect(),
        next_due_in: None,
        given: HashMap::new(),
    };
    let mut taken = Vec::with_capacity(rows.len());
    for row in &rows {
        let mut columns = Columns::of(row);
        let number: Option<i32> = columns.take()?;
        let next_due_in: Option<i64> = columns.take()?;
        match number {
            Some(number) => {
                let index =
                    usize::try_from(number - 1).map_err(|_| corrupt("number of a claim"))?;
                let params = claims.get(index).ok_or_else(|| corrupt("number of a claim"))?;
                let (place, claim) = claim_of(columns, store_id, queues, params)?;
                taken.push((index, place, claim));
            }
            // The last row.
            None => served.next_due_in = next_due_in.map(rows::remaining),
        }
    }
    // Rows come in no order.
    taken.sort_unstable_by_key(|(index, place, _)| (*index, *place));
    for (index, place, claim) in taken {
        let (furthest, count) = served.given.entry(claim.task.queue.clone()).or_insert((place, 0));
        (*furthest, *count) = (place.max(*furthest), *count + 1);
        served.claims[index].push(claim);
    }
    Ok(served)
}

fn claim_of(
    mut columns: Columns<'_>,
    store_id: StoreId,
    queues: &[ClaimQueue],
    params: &ClaimParams,
) -> Sql<(Place, Claim)> {
    let (at, seq) = (columns.take()?, columns.take()?);
    let generation: i64 = columns.take()?;
    let created_at = Timestamp::from_millis(columns.take()?);
    let claimed_at = columns.timestamp()?;
    let lease_expires_at = columns.timestamp()?;
    let expires_at = columns.timestamp()?;
    let attempt_count = columns.count()?;
    let redrive_count = columns.count()?;
    let lease_expired_count = columns.count()?;
    let last_attempt_no = columns.count()?;
    let overrides = Overrides {
        max_attempts: columns.take::<Option<i64>>()?.map(rows::count).transpose()?,
        lease: columns.duration()?,
        initial_backoff: columns.duration()?,
        retention_dead: columns.duration()?,
    };
    let rank: i32 = columns.take()?;
    let id = TaskId::stored(columns.text()?);
    let queue = columns.text()?;
    let from = queues.iter().find(|from| from.queue.as_str() == queue);
    let from = from.ok_or_else(|| corrupt("queue of a claim"))?;
    let handler_ref = QueueName::stored(columns.text()?);
    let (progress, envelope) = (columns.bytes()?, columns.bytes()?);
    let attempts = history::decode(columns.take()?)?;
    let task = Task {
        id,
        queue: from.queue.clone(),
        handler_ref,
        priority: !rank,
        envelope,
        overrides,
        status: TaskStatus::InFlight,
        attempt_count,
        redrive_count,
        lease_expired_count,
        progress,
        result: Bytes::new(),
        claimed_at,
        claimed_by: Some(params.worker_id.clone()),
        next_attempt_at: None,
        lease_expires_at,
        expires_at,
        created_at,
        finished_at: None,
        attempts,
        last_attempt_no,
    };
    let lease = lease_of(params, &overrides, from);
    let claim = Claim { task, token: store_id.token(generation), generation, lease };
    Ok((Place { rank, at, seq }, claim))
}

/// The lease of a claim of a task.
pub(crate) fn lease_of(params: &ClaimParams, of_task: &Overrides, from: &ClaimQueue) -> Duration {
    params.lease.or(of_task.lease).unwrap_or(from.lease).min(from.lease_max)
}
