//! One task a call: `Enqueue`, then `ClaimDue` and `Complete`, by many callers at once.

use super::{
    load::{Measured, closed_loop},
    place::{Place, task_id},
};
use crate::{connect::Client, errors::CliError, output};
use rdq_proto::v1::{ClaimDueRequest, ClaimedTask, CompleteRequest, EnqueueRequest};

/// A claim that finds nothing is repeated so often: each caller claims a task that is there, but
/// another one may have been given it first.
const EMPTY_CLAIMS_MAX: u32 = 1000;

/// Measures `Enqueue`; leaves `total` tasks in the queue.
pub(super) async fn enqueue(place: &Place, queue: &str, total: u64) -> Result<Measured, CliError> {
    let task = place.task(queue);
    let bar = output::progress("enqueue", Some(total));
    let clients = callers(place);
    let measured = closed_loop(place.callers, total, 1, &bar, move |caller| {
        let mut service = clients[caller as usize].tasks();
        let request = EnqueueRequest { task: task.clone() };
        async move {
            service.enqueue(request).await?;
            Ok(())
        }
    })
    .await;
    bar.finish_and_clear();
    measured
}

/// Measures `ClaimDue` and `Complete`, both counted, until `total` tasks are done.
pub(super) async fn claim_and_complete(
    place: &Place,
    queue: &str,
    total: u64,
) -> Result<Measured, CliError> {
    let bar = output::progress("claim and complete", Some(total));
    let clients = callers(place);
    let queue = queue.to_owned();
    let measured = closed_loop(place.callers, total, 2, &bar, move |caller| {
        let mut service = clients[caller as usize].tasks();
        let claim = ClaimDueRequest {
            queues: vec![queue.clone()],
            limit: Some(1),
            worker_id: format!("bench-{caller}"),
            ..ClaimDueRequest::default()
        };
        async move {
            let claimed = claim_one(&mut service, claim).await?;
            let request = CompleteRequest {
                id: task_id(&claimed.task)?,
                claim_token: claimed.claim_token,
                ..CompleteRequest::default()
            };
            service.complete(request).await?;
            Ok(())
        }
    })
    .await;
    bar.finish_and_clear();
    measured
}

async fn claim_one(service: &mut Tasks, claim: ClaimDueRequest) -> Result<ClaimedTask, CliError> {
    for _ in 0..EMPTY_CLAIMS_MAX {
        let mut stream = service.claim_due(claim.clone()).await?.into_inner();
        let mut claimed = None;
        while let Some(response) = stream.message().await? {
            claimed = response.tasks.into_iter().next().or(claimed);
        }
        if let Some(claimed) = claimed {
            return Ok(claimed);
        }
    }
    Err(CliError::Malformed("tasks that were enqueued cannot be claimed".into()))
}

type Tasks = rdq_proto::v1::task_service_client::TaskServiceClient<tonic::transport::Channel>;

fn callers(place: &Place) -> Vec<Client> {
    (0..place.callers).map(|caller| place.client(caller).clone()).collect()
}
